//! Pods and workloads, and the names of their pods on a node.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest as _, Sha256};

/// Maximum length of the prefix to which the API server appends five random characters
/// (`apiserver/pkg/storage/names/generate.go`: `MaxGeneratedNameLength`).
pub(super) const MAX_GENERATED_BASE: usize = 58;

/// Length of the random characters at the end of generated names.
pub(super) const SUFFIX_LEN: usize = 5;

/// Characters of generated names (`apimachinery/pkg/util/rand/rand.go`). Without vowels, they form
/// no words.
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Kind of a pod or workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkloadKind {
    Pod,
    Deployment,
    DaemonSet,
    StatefulSet,
    ReplicaSet,
    ReplicationController,
    Job,
    CronJob,
}

/// A pod, or a workload that creates pods from a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) kind: WorkloadKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether the name begins with the manifest's `generateName`. In a cluster it ends otherwise.
    pub(crate) is_generated: bool,
    /// Uid of a pod, if the manifest specifies it; `None` for workloads.
    pub(crate) uid: Option<String>,
    /// Labels of the pods.
    pub(crate) labels: BTreeMap<String, String>,
}

impl WorkloadKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Pod,
        Self::Deployment,
        Self::DaemonSet,
        Self::StatefulSet,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::Job,
        Self::CronJob,
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the name of the kind.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Deployment => "Deployment",
            Self::DaemonSet => "DaemonSet",
            Self::StatefulSet => "StatefulSet",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    /// Returns the API version of the kind that Kubernetes 1.36 serves.
    pub(crate) fn version(self) -> &'static str {
        self.known_versions()[0]
    }

    /// Returns the API versions that define the kind, or did in an earlier version of Kubernetes.
    pub(crate) fn known_versions(self) -> &'static [&'static str] {
        match self {
            Self::Pod | Self::ReplicationController => &["v1"],
            Self::Deployment | Self::DaemonSet | Self::StatefulSet | Self::ReplicaSet => {
                &["apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1"]
            }
            Self::Job | Self::CronJob => &["batch/v1", "batch/v1beta1", "batch/v2alpha1"],
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Workload {
    /// Returns kind, namespace, name and uid, which distinguish the workload from others.
    pub(crate) fn key(&self) -> (WorkloadKind, &str, &str, Option<&str>) {
        (self.kind, &self.namespace, &self.name, self.uid.as_deref())
    }

    /// Returns whether the controller of the workload generates pod names like this one.
    pub(crate) fn owns_name(&self, name: &str) -> bool {
        if self.is_generated {
            // The workload, or the pod itself, has other characters at the end of its name.
            let Some((own, begin)) =
                name.get(..self.name.len()).zip(self.name.get(..self.name.len() - SUFFIX_LEN))
            else {
                return false;
            };
            let is_alike = own.strip_prefix(begin).is_some_and(is_name_suffix);
            return is_alike
                && Self { name: own.to_owned(), is_generated: false, ..self.clone() }.owns_name(name);
        }
        let is_random = |part: &str| part.len() == 5 && is_name_suffix(part);
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let generated = |base: &str| {
            // Names in Kubernetes are ASCII. If a name is not, `get` may fail, and the full name is
            // the prefix.
            let base = base.get(..base.len().min(MAX_GENERATED_BASE)).unwrap_or(base);
            name.strip_prefix(base).is_some_and(is_random)
        };
        // An indexed job puts the index before the random characters.
        let is_indexed = |rest: &str| {
            rest.split_once('-').is_some_and(|(index, random)| is_number(index) && is_random(random))
        };
        let own = format!("{}-", self.name);
        match self.kind {
            WorkloadKind::Pod => *name == self.name,
            WorkloadKind::StatefulSet => name.strip_prefix(&own).is_some_and(is_number),
            WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController | WorkloadKind::DaemonSet => {
                generated(&own)
            }
            WorkloadKind::Job => generated(&own) || name.strip_prefix(&own).is_some_and(is_indexed),
            // The middle part is the hash of the template, or the minute for which the job was
            // scheduled.
            WorkloadKind::Deployment | WorkloadKind::CronJob => {
                name.strip_prefix(&own).is_some_and(|rest| match rest.split_once('-') {
                    Some((middle, end)) => {
                        let is_of_job = self.kind == WorkloadKind::CronJob && is_indexed(end);
                        is_name_suffix(middle) && (is_random(end) || is_of_job)
                    }
                    // The API server truncated a name that was too long.
                    None => name.len() == MAX_GENERATED_BASE + 5,
                })
            }
        }
    }
}

/// Returns a name that begins with `begin`, and ends with characters that depend on a text, where
/// an API server has random ones.
pub(super) fn generate_name(begin: &str, text: &str) -> String {
    format!("{}{}", begin.get(..MAX_GENERATED_BASE).unwrap_or(begin), encode(text, SUFFIX_LEN))
}

/// Returns the first characters of a text's hash, as they occur in generated names.
pub(super) fn encode(text: &str, len: usize) -> String {
    let digest = Sha256::digest(text);
    let characters = digest.iter().take(len);
    characters.map(|byte| char::from(NAME_CHARACTERS[usize::from(*byte) % NAME_CHARACTERS.len()])).collect()
}

fn is_name_suffix(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_pod_shows_its_workload() {
        for (kind, name, is_one) in [
            (WorkloadKind::Deployment, "web-5d4f8c7b9-x2x4z", true),
            (WorkloadKind::Deployment, "web-x2x4z", false),
            (WorkloadKind::Deployment, "web-api-5d4f8c7b9-x2x4z", false),
            (WorkloadKind::ReplicaSet, "web-x2x4z", true),
            (WorkloadKind::ReplicaSet, "web-5d4f8c7b9-x2x4z", false),
            (WorkloadKind::DaemonSet, "web-x2x4z", true),
            (WorkloadKind::DaemonSet, "web-X2x4z", false),
            (WorkloadKind::StatefulSet, "web-0", true),
            (WorkloadKind::StatefulSet, "web-12", true),
            (WorkloadKind::StatefulSet, "web-x2x4z", false),
            (WorkloadKind::Job, "web-x2x4z", true),
            (WorkloadKind::Job, "web-3-x2x4z", true),
            (WorkloadKind::CronJob, "web-29391840-x2x4z", true),
            (WorkloadKind::CronJob, "web-29391840-3-x2x4z", true),
            (WorkloadKind::Deployment, "web-29391840-3-x2x4z", false),
            (WorkloadKind::CronJob, "web", false),
        ] {
            let owner = Workload {
                kind,
                namespace: String::new(),
                name: "web".into(),
                is_generated: false,
                uid: None,
                labels: BTreeMap::new(),
            };
            assert_eq!(owner.owns_name(name), is_one, "{kind:?} {name}");
        }
        let long = Workload {
            kind: WorkloadKind::DaemonSet,
            namespace: String::new(),
            name: "n".repeat(60),
            is_generated: false,
            uid: None,
            labels: BTreeMap::new(),
        };
        assert!(long.owns_name(&format!("{}x2x4z", "n".repeat(58))));
        let generated =
            |kind| Workload { kind, name: "web-bcdfg".into(), is_generated: true, ..long.clone() };
        for (kind, name, is_one) in [
            (WorkloadKind::Pod, "web-x2x4z", true),
            (WorkloadKind::Pod, "web-x2x4z-x2x4z", false),
            (WorkloadKind::Pod, "wep-x2x4z", false),
            (WorkloadKind::Pod, "web", false),
            (WorkloadKind::Job, "web-x2x4z-x2x4z", true),
            (WorkloadKind::Job, "web-x2x4z", false),
        ] {
            assert_eq!(generated(kind).owns_name(name), is_one, "{kind:?} {name}");
        }
        let strange = Workload { name: format!("{}é", "n".repeat(57)), ..long };
        assert!(!strange.owns_name(&format!("{}x2x4z", "n".repeat(58))));
    }
}
