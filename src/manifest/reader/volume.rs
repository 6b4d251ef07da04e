//! Reads volumes of a pod.

use std::collections::BTreeSet;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{EmptyDirMedium, HostPathKind, PullPolicy, Volume, VolumeSource};
use crate::manifest::pod_spec::PodSpec;
use crate::manifest::quantity::Quantity;
use crate::manifest::reader::claim::{self, CLAIM};
use crate::manifest::reader::env::quantity;
use crate::manifest::reader::fields::{FieldSet, list, pull_policy, required};
use crate::manifest::reader::file_volume;
use crate::manifest::validation::{DNS_LABEL, has_backstep, is_dns_label};

/// An emptyDir without fields.
const EMPTY_DISK: VolumeSource = VolumeSource::EmptyDir { medium: EmptyDirMedium::Disk, size: None };

/// Reason why probeshim does not support most kinds of volumes.
const CLUSTER: &str = "requires the storage of a cluster";

/// Kinds of volumes in whose place is an emptyDir if unsupported fields are ignored.
const CLAIMS: [&str; 2] = ["persistentVolumeClaim", "ephemeral"];

/// Reason why probeshim does not support file systems and disks of a network.
const NETWORK: &str = "programs and drivers of the host mount it; mount it on the host, and use hostPath";

const VOLUME: FieldSet = FieldSet {
    known: &["name", "emptyDir", "hostPath", "image", "configMap", "secret", "downwardAPI", "projected"],
    ignored: &[],
    unsupported: &[
        ("persistentVolumeClaim", CLAIM),
        ("ephemeral", CLAIM),
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

const CLAIM_VOLUME: FieldSet = FieldSet::only(&["claimName", "readOnly"]);

const EPHEMERAL: FieldSet = FieldSet::only(&["volumeClaimTemplate"]);

const EMPTY_DIR: FieldSet = FieldSet::only(&["medium", "sizeLimit"]);

const HOST_PATH: FieldSet = FieldSet::only(&["path", "type"]);

const IMAGE: FieldSet = FieldSet::only(&["reference", "pullPolicy"]);

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

/// Reads the volumes of a pod. `claims` are the names of a `StatefulSet`'s claim templates, whose
/// volumes take the place of those of the pod
/// (`pkg/controller/statefulset/stateful_set_utils.go`: `updateStorage`).
pub(super) fn volumes(
    spec: &Cursor<'_>,
    pod: &PodSpec,
    claims: &[String],
    problems: &mut Vec<Violation>,
) -> Volumes {
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
    volumes.there.retain(|volume| !claims.contains(&volume.name));
    volumes.there.extend(claims.iter().map(|claim| Volume { name: claim.clone(), source: EMPTY_DISK }));
    volumes
}

/// Reads the source of a volume. A volume without a source is an emptyDir, as in Kubernetes
/// (`pkg/apis/core/v1/defaults.go`: `SetDefaults_Volume`), and so is one with a claim.
fn source(node: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<VolumeSource> {
    if !node.value().is_object() {
        return None;
    }
    let unsupported = VOLUME.unsupported.iter().map(|(kind, _)| kind);
    let kinds: Vec<&str> = VOLUME.known[1..]
        .iter()
        .chain(unsupported.clone())
        .filter(|kind| node.field(kind).is_some())
        .copied()
        .collect();
    match kinds.as_slice() {
        [] => return Some(EMPTY_DISK),
        [kind] if CLAIMS.contains(kind) => {
            if let Some(claim) = node.field("persistentVolumeClaim") {
                CLAIM_VOLUME.check(&claim, problems);
                required(&claim, "claimName", "", problems);
            } else if let Some(ephemeral) = node.field("ephemeral") {
                EPHEMERAL.check(&ephemeral, problems);
                match ephemeral.field("volumeClaimTemplate") {
                    Some(template) => claim::check(&template, problems),
                    None => ephemeral.missing("volumeClaimTemplate", "", problems),
                }
            }
            return Some(EMPTY_DISK);
        }
        [kind] if !VOLUME.known.contains(kind) => return None,
        [_] => {}
        _ => {
            node.forbidden("may not specify more than 1 volume type", problems);
            return None;
        }
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
    file_volume::files(node, pod, problems)
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
