//! Checks claims of volumes in templates, in whose place probeshim puts an empty directory.

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::quantity::Quantity;
use crate::manifest::reader::env::quantity;
use crate::manifest::reader::fields::{FieldSet, list, object_name, required, text};
use crate::manifest::validation::{DNS_LABEL, is_dns_label};

/// Reason why probeshim does not support claims of volumes.
pub(super) const CLAIM: &str =
    "requires the storage of a cluster; --ignore-unsupported puts an emptyDir in its place";

const TEMPLATE: FieldSet = FieldSet::only(&["apiVersion", "kind", "metadata", "spec", "status"]);

const SPEC: FieldSet = FieldSet::only(&[
    "accessModes",
    "selector",
    "resources",
    "volumeName",
    "storageClassName",
    "volumeMode",
    "dataSource",
    "dataSourceRef",
    "volumeAttributesClassName",
]);

/// Reports a claim template of a `StatefulSet` without a name that a volume can have.
pub(super) fn check_name(template: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let Some(metadata) = template.field("metadata") else {
        template.missing("metadata.name", "", problems);
        return;
    };
    if let Some(at) = required(&metadata, "name", "", problems)
        .filter(|name| !is_dns_label(name))
        .and_then(|_| metadata.field("name"))
    {
        at.error(DNS_LABEL, problems);
    }
}

/// Reports errors in a claim template as the API server does (`core/validation/validation.go`:
/// `ValidatePersistentVolumeClaimSpec`).
pub(super) fn check(template: &Cursor<'_>, problems: &mut Vec<Violation>) {
    TEMPLATE.check(template, problems);
    let Some(spec) = template.field("spec") else {
        template.missing("spec.accessModes", "at least 1 access mode is required", problems);
        return;
    };
    SPEC.check(&spec, problems);
    if !spec.value().is_object() {
        return;
    }
    let modes = list(&spec, "accessModes", problems);
    if modes.is_empty() {
        spec.missing("accessModes", "at least 1 access mode is required", problems);
    }
    let known = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"].map(|mode| (mode, ()));
    for mode in &modes {
        mode.one_of(&known, problems);
    }
    let has_mode = |only: bool| modes.iter().any(|mode| (mode.value() == "ReadWriteOncePod") == only);
    if let Some(at) = spec.field("accessModes").filter(|_| has_mode(true) && has_mode(false)) {
        at.forbidden("may not use ReadWriteOncePod with other access modes", problems);
    }
    object_name(&spec, "storageClassName", problems);
    text(&spec, "volumeName", problems);
    spec.field("volumeMode").and_then(|at| at.one_of(&[("Block", ()), ("Filesystem", ())], problems));
    let Some(storage) = spec.at(&["resources", "requests", "storage"]) else {
        spec.missing("resources.requests.storage", "", problems);
        return;
    };
    // No quantity is negative.
    if quantity(&storage, problems).is_some_and(Quantity::is_zero) {
        storage.error("must be greater than zero", problems);
    }
}
