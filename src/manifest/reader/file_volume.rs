//! Reads volumes of files: of ConfigMaps and Secrets, of fields of the pod, and projected ones.

use std::ops::RangeInclusive;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{
    DataKind, DownwardApiFile, FileSource, FilesKind, KeyToPath, PodField, VolumeSource,
};
use crate::manifest::pod_spec::PodSpec;
use crate::manifest::reader::env;
use crate::manifest::reader::fields::{FieldSet, list, required, text};
use crate::manifest::validation::has_backstep;

/// Default mode of files: readable by all users, writable by their owner.
const MODE: u32 = 0o644;

/// Reason why service accounts and the sources of their tokens have no effect.
pub(super) const SERVICE_ACCOUNTS: &str =
    "pods run without service accounts, and volumes have no files of their tokens";

/// ConfigMap with the certificate of an API server, which a cluster adds to each namespace.
const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

const CONFIG_MAP: FieldSet = FieldSet::only(&["name", "items", "defaultMode", "optional"]);

const SECRET: FieldSet = FieldSet::only(&["secretName", "items", "defaultMode", "optional"]);

const DOWNWARD: FieldSet = FieldSet::only(&["items", "defaultMode"]);

const PROJECTED: FieldSet = FieldSet::only(&["sources", "defaultMode"]);

const PROJECTED_DATA: FieldSet = FieldSet::only(&["name", "items", "optional"]);

const PROJECTED_TOKEN: FieldSet = FieldSet::only(&["audience", "expirationSeconds", "path"]);

/// Range of the lifetime of a token in seconds (`core/validation/validation.go`:
/// `validateProjectionSources`).
const TOKEN_LIFETIME: RangeInclusive<i64> = 600..=1 << 32;

const PROJECTED_DOWNWARD: FieldSet = FieldSet::only(&["items"]);

const SOURCE: FieldSet = FieldSet {
    known: &["configMap", "secret", "downwardAPI", "serviceAccountToken"],
    ignored: &[],
    unsupported: &[
        ("clusterTrustBundle", "requires an API server"),
        ("podCertificate", "requires an API server"),
    ],
};

const ITEM: FieldSet = FieldSet::only(&["key", "path", "mode"]);

const DOWNWARD_ITEM: FieldSet = FieldSet::only(&["path", "mode", "fieldRef", "resourceFieldRef"]);

/// Reads a volume of files. Returns `None` if the volume has no such type.
pub(super) fn files(node: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<VolumeSource> {
    let kind = |name: &str, kind| node.field(name).map(|node| (node, kind));
    let (node, kind) = kind("configMap", FilesKind::ConfigMap)
        .or_else(|| kind("secret", FilesKind::Secret))
        .or_else(|| kind("downwardAPI", FilesKind::DownwardApi))
        .or_else(|| kind("projected", FilesKind::Projected))?;
    let fields = match kind {
        FilesKind::ConfigMap => CONFIG_MAP,
        FilesKind::Secret => SECRET,
        FilesKind::DownwardApi => DOWNWARD,
        FilesKind::Projected => PROJECTED,
    };
    fields.check(&node, problems);
    if !node.value().is_object() {
        return None;
    }
    let mode = mode(&node, "defaultMode", problems).unwrap_or(MODE);
    let sources = match kind {
        FilesKind::ConfigMap => {
            data_source(&node, DataKind::ConfigMap, "name", problems).into_iter().collect()
        }
        FilesKind::Secret => {
            data_source(&node, DataKind::Secret, "secretName", problems).into_iter().collect()
        }
        FilesKind::DownwardApi => vec![downward_source(&node, pod, problems)],
        FilesKind::Projected => {
            let nodes = list(&node, "sources", problems);
            let has_token = nodes.iter().any(|source| source.field("serviceAccountToken").is_some());
            let mut sources = Vec::new();
            for source in nodes {
                let read = projected(&source, pod, problems);
                sources.extend(read.filter(|source| !(has_token && is_root_certificate(source))));
            }
            sources
        }
    };
    conflicting_paths(&node, &sources, kind == FilesKind::Projected, problems);
    Some(VolumeSource::Files { kind, sources, mode })
}

/// Reads a source of a projected volume.
fn projected(source: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<FileSource> {
    SOURCE.check(source, problems);
    let there: Vec<(&str, Cursor<'_>)> =
        SOURCE.known.iter().filter_map(|name| Some((*name, source.field(name)?))).collect();
    let is_other = SOURCE.unsupported.iter().any(|(kind, _)| source.field(kind).is_some());
    match there.as_slice() {
        [("serviceAccountToken", node)] if !is_other => {
            service_account_token(node, problems);
            None
        }
        [("downwardAPI", node)] if !is_other => {
            PROJECTED_DOWNWARD.check(node, problems);
            Some(downward_source(node, pod, problems))
        }
        [(name, node)] if !is_other => {
            PROJECTED_DATA.check(node, problems);
            let kind = if *name == "secret" { DataKind::Secret } else { DataKind::ConfigMap };
            data_source(node, kind, "name", problems)
        }
        [] if is_other => None,
        // A source without a type is valid, and has no files.
        [] => None,
        _ => {
            source.forbidden("may not specify more than 1 volume type per source", problems);
            None
        }
    }
}

/// Checks the source of a token, which has no file here.
fn service_account_token(node: &Cursor<'_>, problems: &mut Vec<Violation>) {
    PROJECTED_TOKEN.check(node, problems);
    if !node.value().is_object() {
        return;
    }
    let _ = (path(node, problems), text(node, "audience", problems));
    let reason = "must be an integer between 600 and 4294967296";
    node.field("expirationSeconds").and_then(|at| at.number::<i64>(TOKEN_LIFETIME, reason, problems));
    problems.push(node.repeated_remark(SERVICE_ACCOUNTS));
}

/// Returns whether the files of a source are the certificate of an API server, without which a
/// token is of no use.
fn is_root_certificate(source: &FileSource) -> bool {
    matches!(source, FileSource::Data { object, .. } if object.kind == DataKind::ConfigMap && object.name == ROOT_CERTIFICATE)
}

/// Reports a file at the path of a directory, and in a projected volume two files at one path, as
/// far as the paths are in the manifest. In other volumes the last file at a path counts
/// (`core/validation/validation.go`: `validateProjectionSources`).
fn conflicting_paths(
    node: &Cursor<'_>,
    sources: &[FileSource],
    is_projected: bool,
    problems: &mut Vec<Violation>,
) {
    let paths: Vec<&str> =
        sources.iter().flat_map(FileSource::paths).map(|path| path.trim_end_matches('/')).collect();
    for (place, path) in paths.iter().enumerate() {
        let is_in_the_way = |other: &&&str| {
            let is_below = || other.strip_prefix(*path).is_some_and(|rest| rest.starts_with('/'));
            if other == &path { is_projected } else { is_below() }
        };
        let mut others = paths.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, path)| path);
        if let Some(other) = others.find(is_in_the_way) {
            node.error(format!("conflicting duplicate paths {path:?} and {other:?}"), problems);
            return;
        }
    }
}

/// Reads a source with the keys of a ConfigMap or Secret. `field` is the field with its name.
fn data_source(
    node: &Cursor<'_>,
    kind: DataKind,
    field: &str,
    problems: &mut Vec<Violation>,
) -> Option<FileSource> {
    let object = env::data_ref(node, field, kind, problems);
    let mut items = Vec::new();
    for item in list(node, "items", problems) {
        ITEM.check(&item, problems);
        let key = required(&item, "key", "", problems);
        let (path, mode) = (path(&item, problems), mode(&item, "mode", problems));
        items.extend(key.zip(path).map(|(key, path)| KeyToPath { key, path, mode }));
    }
    Some(FileSource::Data { object: object?, items })
}

/// Reads a source with fields of the pod.
fn downward_source(node: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> FileSource {
    let items = list(node, "items", problems);
    FileSource::DownwardApi(items.iter().filter_map(|item| downward_file(item, pod, problems)).collect())
}

fn downward_file(item: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<DownwardApiFile> {
    DOWNWARD_ITEM.check(item, problems);
    if !item.value().is_object() {
        return None;
    }
    let (path, mode) = (path(item, problems), mode(item, "mode", problems));
    let content = match (item.field("fieldRef"), item.field("resourceFieldRef")) {
        (Some(field), None) => PodField::Field(env::field(&field, true, problems)?),
        (None, Some(resource)) => PodField::Resource(env::resource(&resource, true, pod, problems)?),
        (Some(_), Some(_)) => {
            item.forbidden("fieldRef and resourceFieldRef can not be specified simultaneously", problems);
            return None;
        }
        (None, None) => {
            item.empty("one of fieldRef and resourceFieldRef is required", problems);
            return None;
        }
    };
    Some(DownwardApiFile { path: path?, mode, content })
}

fn path(item: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<String> {
    let path = required(item, "path", "", problems)?;
    if !is_within(&path) {
        item.field("path")?
            .error("must be a relative path, and must not contain or start with '..'", problems);
    }
    Some(path)
}

/// Returns whether a path is valid for a file of a volume. The volume itself uses names that begin
/// with two dots.
fn is_within(path: &str) -> bool {
    !path.starts_with('/') && !path.starts_with("..") && !has_backstep(path)
}

fn mode(node: &Cursor<'_>, field: &str, problems: &mut Vec<Violation>) -> Option<u32> {
    node.field(field)?.number(
        0..=0o777,
        "must be a number between 0 and 0777 (octal), both inclusive",
        problems,
    )
}
