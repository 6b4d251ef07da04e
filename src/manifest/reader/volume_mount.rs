//! Reads mounts of volumes in containers.

use std::collections::BTreeSet;

use crate::cri::v1::MountPropagation;
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{RecursiveReadOnly, VolumeMount};
use crate::manifest::reader::fields::{FieldSet, flag, list, required, text};
use crate::manifest::reader::volume::Volumes;
use crate::manifest::validation::has_backstep;

const MOUNT: FieldSet = FieldSet::only(&[
    "name",
    "mountPath",
    "subPath",
    "subPathExpr",
    "readOnly",
    "recursiveReadOnly",
    "mountPropagation",
]);

/// Reads the mounts of a container.
pub(super) fn mounts(
    container: &Cursor<'_>,
    volumes: &Volumes,
    is_privileged: bool,
    problems: &mut Vec<Violation>,
) -> Vec<VolumeMount> {
    let (mut mounts, mut paths) = (Vec::new(), BTreeSet::new());
    for node in list(container, "volumeMounts", problems) {
        MOUNT.check(&node, problems);
        let name = required(&node, "name", "", problems);
        let path = required(&node, "mountPath", "", problems);
        let (Some(volume), Some(path)) = (name, path) else { continue };
        if volumes.left_out.contains(&volume) {
            continue;
        }
        if !volumes.there.iter().any(|known| known.name == volume) {
            node.field("name").inspect(|at| at.not_found(&volumes.known(), problems));
        }
        let at = node.field("mountPath");
        if !paths.insert(path.clone()) {
            at.inspect(|at| at.error("must be unique", problems));
        }
        let expression = text(&node, "subPathExpr", problems);
        let sub_path = text(&node, "subPath", problems);
        if let Some(at) = node.field("subPathExpr").filter(|_| expression.is_some() && sub_path.is_some()) {
            at.error("subPathExpr and subPath are mutually exclusive", problems);
        }
        for (field, text) in [("subPath", &sub_path), ("subPathExpr", &expression)] {
            if text.as_ref().is_some_and(|text| text.starts_with('/') || has_backstep(text)) {
                let at = node.field(field);
                at.inspect(|at| at.error("must be a relative path, and must not contain '..'", problems));
            }
        }
        let kinds = [
            ("None", MountPropagation::PropagationPrivate),
            ("HostToContainer", MountPropagation::PropagationHostToContainer),
            ("Bidirectional", MountPropagation::PropagationBidirectional),
        ];
        let at = node.field("mountPropagation");
        let propagation = at.as_ref().and_then(|kind| kind.one_of(&kinds, problems));
        let propagation = propagation.unwrap_or(MountPropagation::PropagationPrivate);
        if propagation == MountPropagation::PropagationBidirectional && !is_privileged {
            at.inspect(|at| {
                let reason = "Bidirectional mount propagation is available only to privileged containers";
                at.forbidden(reason, problems);
            });
        }
        let is_read_only = flag(&node, "readOnly", problems);
        let is_private = propagation == MountPropagation::PropagationPrivate;
        let recursive = recursive(&node, is_read_only && is_private, problems);
        let expands = expression.is_some();
        // The kubelet treats relative mount paths as relative to the root directory.
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        mounts.push(VolumeMount {
            volume,
            path,
            sub_path: expression.or(sub_path).unwrap_or_default(),
            expands,
            is_read_only,
            recursive,
            propagation,
        });
    }
    mounts
}

/// Reads whether mounts below a read-only mount are read-only as well.
fn recursive(mount: &Cursor<'_>, may_be: bool, problems: &mut Vec<Violation>) -> RecursiveReadOnly {
    let kinds = [
        ("Disabled", RecursiveReadOnly::Disabled),
        ("IfPossible", RecursiveReadOnly::IfPossible),
        ("Enabled", RecursiveReadOnly::Enabled),
    ];
    let at = mount.field("recursiveReadOnly");
    let kind = at.as_ref().and_then(|at| at.one_of(&kinds, problems)).unwrap_or_default();
    if kind != RecursiveReadOnly::Disabled && !may_be {
        let reason = "may only be specified when readOnly is true and mountPropagation is None";
        at.inspect(|at| at.forbidden(reason, problems));
    }
    kind
}
