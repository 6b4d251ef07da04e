//! Reads volumes of a pod.

use std::collections::BTreeSet;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{
    DataKind, DownwardApiFile, EmptyDirMedium, FileSource, FilesKind, HostPathKind, KeyToPath, PodField,
    PullPolicy, Volume, VolumeSource,
};
use crate::manifest::pod_spec::PodSpec;
use crate::manifest::quantity::Quantity;
use crate::manifest::reader::env::{self, quantity};
use crate::manifest::reader::fields::{FieldSet, list, pull_policy, required};
use crate::manifest::validation::{DNS_LABEL, has_backstep, is_dns_label};

/// Default mode of files: readable by all users, writable by their owner.
const MODE: u32 = 0o644;

/// Reason why probeshim does not support most kinds of volumes.
const CLUSTER: &str = "requires the storage of a cluster";

/// Reason why probeshim does not support file systems and disks of a network.
const NETWORK: &str = "programs and drivers of the host mount it; mount it on the host, and use hostPath";

const VOLUME: FieldSet = FieldSet {
    known: &["name", "emptyDir", "hostPath", "image", "configMap", "secret", "downwardAPI", "projected"],
    ignored: &[],
    unsupported: &[
        ("persistentVolumeClaim", CLUSTER),
        ("ephemeral", CLUSTER),
        ("csi", CLUSTER),
        ("nfs", NETWORK),
        ("iscsi", NETWORK),
        ("fc", NETWORK),
        ("cephfs", CLUSTER),
        ("rbd", CLUSTER),
        ("glusterfs", CLUSTER),
        ("cinder", CLUSTER),
        ("awsElasticBlockStore", CLUSTER),
        ("azureDisk", CLUSTER),
        ("azureFile", CLUSTER),
        ("gcePersistentDisk", CLUSTER),
        ("flexVolume", CLUSTER),
        ("flocker", CLUSTER),
        ("photonPersistentDisk", CLUSTER),
        ("portworxVolume", CLUSTER),
        ("quobyte", CLUSTER),
        ("scaleIO", CLUSTER),
        ("storageos", CLUSTER),
        ("vsphereVolume", CLUSTER),
        ("gitRepo", "removed from Kubernetes"),
    ],
};

const EMPTY_DIR: FieldSet = FieldSet::only(&["medium", "sizeLimit"]);

const HOST_PATH: FieldSet = FieldSet::only(&["path", "type"]);

const IMAGE: FieldSet = FieldSet::only(&["reference", "pullPolicy"]);

const CONFIG_MAP: FieldSet = FieldSet::only(&["name", "items", "defaultMode", "optional"]);

const SECRET: FieldSet = FieldSet::only(&["secretName", "items", "defaultMode", "optional"]);

const DOWNWARD: FieldSet = FieldSet::only(&["items", "defaultMode"]);

const PROJECTED: FieldSet = FieldSet::only(&["sources", "defaultMode"]);

const PROJECTED_DATA: FieldSet = FieldSet::only(&["name", "items", "optional"]);

const PROJECTED_DOWNWARD: FieldSet = FieldSet::only(&["items"]);

const SOURCE: FieldSet = FieldSet {
    known: &["configMap", "secret", "downwardAPI"],
    ignored: &[],
    unsupported: &[
        ("serviceAccountToken", "the API server issues service account tokens"),
        ("clusterTrustBundle", "requires an API server"),
        ("podCertificate", "requires an API server"),
    ],
};

const ITEM: FieldSet = FieldSet::only(&["key", "path", "mode"]);

const DOWNWARD_ITEM: FieldSet = FieldSet::only(&["path", "mode", "fieldRef", "resourceFieldRef"]);

/// The volumes of a pod, and the names of unsupported or invalid ones, which are left out.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    pub(super) there: Vec<Volume>,
    pub(super) left_out: BTreeSet<String>,
}

impl Volumes {
    /// Returns the names of the volumes, for errors.
    pub(super) fn known(&self) -> String {
        let names: Vec<&str> = self.there.iter().map(|known| known.name.as_str()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("the volumes of the pod are: {known}")
    }
}

/// Reads the volumes of a pod.
pub(super) fn volumes(spec: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Volumes {
    let (mut volumes, mut names) = (Volumes::default(), BTreeSet::new());
    for node in list(spec, "volumes", problems) {
        let Some(name) = required(&node, "name", "", problems) else { continue };
        if !is_dns_label(&name) {
            node.field("name").inspect(|at| at.error(DNS_LABEL, problems));
        } else if !names.insert(name.clone()) {
            node.duplicate("name", &name, problems);
        }
        VOLUME.check(&node, problems);
        match source(&node, pod, problems) {
            Some(source) => volumes.there.push(Volume { name, source }),
            None => drop(volumes.left_out.insert(name)),
        }
    }
    volumes
}

/// Reads the source of a volume. A volume without a source is an emptyDir, as in Kubernetes
/// (`pkg/apis/core/v1/defaults.go`: `SetDefaults_Volume`).
fn source(node: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<VolumeSource> {
    let there = VOLUME.known[1..].iter().filter(|kind| node.field(kind).is_some()).count();
    let is_other = VOLUME.unsupported.iter().any(|(kind, _)| node.field(kind).is_some());
    if !node.value().is_object() {
        return None;
    }
    if there > 1 {
        node.forbidden("may not specify more than 1 volume type", problems);
    }
    if there > 1 || is_other {
        return None;
    }
    if there == 0 {
        return Some(VolumeSource::EmptyDir { medium: EmptyDirMedium::Disk, size: None });
    }
    if let Some(node) = node.field("emptyDir") {
        EMPTY_DIR.check(&node, problems);
        let medium = node.field("medium").map(|medium| self::medium(&medium, problems));
        let size = node.field("sizeLimit").map(|size| quantity(&size, problems));
        let size = size.map_or(Some(None), |size| size.map(Some))?;
        let size = size.and_then(|size| u64::try_from(size.units()).ok()).filter(|size| *size > 0);
        return Some(VolumeSource::EmptyDir { medium: medium.unwrap_or_default(), size });
    }
    if let Some(node) = node.field("hostPath") {
        return host_path(&node, problems);
    }
    if let Some(node) = node.field("image") {
        return image(&node, problems);
    }
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
            let mut sources = Vec::new();
            for source in list(&node, "sources", problems) {
                sources.extend(projected(&source, pod, problems));
            }
            sources
        }
    };
    conflicting_paths(&node, &sources, kind == FilesKind::Projected, problems);
    Some(VolumeSource::Files { kind, sources, mode })
}

/// Reads the medium of an emptyDir. The API server accepts any text, but a kubelet cannot set up a
/// volume with another medium.
fn medium(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> EmptyDirMedium {
    let Some(text) = node.text(problems) else { return EmptyDirMedium::Disk };
    let of_size = |size: &str| Quantity::parse(size).filter(|size| !size.is_zero());
    let page_size = match text.as_str() {
        "" => return EmptyDirMedium::Disk,
        "Memory" => return EmptyDirMedium::Memory,
        "HugePages" => Some(None),
        other => other.strip_prefix("HugePages-").and_then(of_size).map(Some),
    };
    let Some(page_size) = page_size else {
        node.unknown_value(&["Memory", "HugePages", "HugePages-SIZE"], problems);
        return EmptyDirMedium::Disk;
    };
    EmptyDirMedium::HugePages { text, page_size }
}

/// Reports variables from files of volumes that are missing or no emptyDir (Kubernetes:
/// `core/validation/validation.go`: `validateFileKeyRefVolumes`).
pub(super) fn check_env_files(container: &Cursor<'_>, volumes: &Volumes, problems: &mut Vec<Violation>) {
    for node in list(container, "env", &mut Vec::new()) {
        let Some(at) = node.at(&["valueFrom", "fileKeyRef", "volumeName"]) else { continue };
        let Some(name) = at.value().as_str().filter(|name| !volumes.left_out.contains(*name)) else {
            continue;
        };
        match volumes.there.iter().find(|volume| volume.name == name) {
            None => at.not_found(&volumes.known(), problems),
            Some(Volume { source: VolumeSource::EmptyDir { .. }, .. }) => {}
            Some(_) => at.error("referenced volume must be of type emptyDir", problems),
        }
    }
}

fn host_path(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<VolumeSource> {
    HOST_PATH.check(node, problems);
    let path = required(node, "path", "", problems)?;
    if has_backstep(&path) {
        node.field("path")?.error("must not contain '..'", problems);
    }
    let kinds = [
        ("", HostPathKind::Any),
        ("DirectoryOrCreate", HostPathKind::DirectoryOrCreate),
        ("Directory", HostPathKind::Directory),
        ("FileOrCreate", HostPathKind::FileOrCreate),
        ("File", HostPathKind::File),
        ("Socket", HostPathKind::Socket),
        ("CharDevice", HostPathKind::CharDevice),
        ("BlockDevice", HostPathKind::BlockDevice),
    ];
    let kind = node.field("type").map_or(Some(HostPathKind::Any), |kind| kind.one_of(&kinds, problems))?;
    Some(VolumeSource::HostPath { path, kind })
}

/// Reads an image volume (Kubernetes: `core/validation/validation.go`:
/// `validateImageVolumeSource`).
fn image(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<VolumeSource> {
    IMAGE.check(node, problems);
    let policy = pull_policy(node, "pullPolicy", problems);
    let reference = required(node, "reference", "", problems)?;
    let policy = policy.unwrap_or_else(|| PullPolicy::default_pull_policy(&reference));
    Some(VolumeSource::Image { reference, policy })
}

/// Reads a source of a projected volume.
fn projected(source: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<FileSource> {
    SOURCE.check(source, problems);
    let there: Vec<(&str, Cursor<'_>)> =
        SOURCE.known.iter().filter_map(|name| Some((*name, source.field(name)?))).collect();
    let is_other = SOURCE.unsupported.iter().any(|(kind, _)| source.field(kind).is_some());
    match there.as_slice() {
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
