//! Checks claims of volumes in templates, in whose place probeshim puts an empty directory.

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::quantity::Quantity;
use crate::manifest::reader::fields::{FieldSet, list};

/// Reason why probeshim does not support claims of volumes.
pub(super) const CLAIM: &str =
    "requires the storage of a cluster; --ignore-unsupported puts an emptyDir in its place";

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

/// Reports errors in a claim template as the API server does (`core/validation/validation.go`:
/// `ValidatePersistentVolumeClaimSpec`).
pub(super) fn check(template: &Cursor<'_>, problems: &mut Vec<Violation>) {
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
    spec.field("volumeMode").and_then(|at| at.one_of(&[("Block", ()), ("Filesystem", ())], problems));
    let Some(storage) = spec.at(&["resources", "requests", "storage"]) else {
        spec.missing("resources.requests.storage", "", problems);
        return;
    };
    let amount = match storage.value() {
        serde_json::Value::String(text) => Quantity::parse(text),
        serde_json::Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    };
    match amount {
        None => storage.error("must be a quantity, such as 10Gi", problems),
        Some(amount) if amount.is_zero() || amount.units() < 0 => {
            storage.error("must be greater than zero", problems);
        }
        Some(_) => {}
    }
}
