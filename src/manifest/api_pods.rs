//! The pods of a node, as an API server lists and watches them: the paths of the requests, and the
//! state that follows from the responses (client-go: `tools/cache/reflector.go`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::manifest::document::{self, Manifest};
use crate::manifest::index::Manifests;
use crate::manifest::source::Source;
use crate::terminal::sanitize;

/// Annotation of a mirror pod: its value is the uid of the static pod, which the runtime has as
/// that of the sandbox (`pkg/kubelet/types/pod_update.go`: `ConfigMirrorAnnotationKey`).
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Status code of a watch that begins at a version which the API server no longer has.
pub(crate) const GONE: u16 = 410;

/// The pods of a node. Each request and each event of a watch changes them.
#[derive(Debug, Default)]
pub(crate) struct ApiPods {
    /// Pods by uid.
    pods: BTreeMap<String, ReadPod>,
    /// Version from which the next watch begins.
    resource_version: String,
    /// Whether errors omit values, which may be commands.
    redact: bool,
}

/// A pod as it was read.
#[derive(Debug, PartialEq, Eq)]
struct ReadPod {
    /// `None` if the pod has errors.
    manifest: Option<Manifest>,
    problems: Vec<String>,
}

/// Effect of an event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchEffect {
    /// Specifications of pods have changed.
    Changed,
    /// Nothing that matters has changed.
    Unchanged,
    /// The watch has ended with this status code and message.
    Failed(u16, String),
}

#[derive(Deserialize)]
struct PodList<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
}

/// The parts of a pod that are read. Its status and the owners of its fields are skipped.
#[derive(Deserialize)]
struct ApiPod {
    metadata: PodMetadata,
    #[serde(default)]
    spec: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodMetadata {
    name: Value,
    namespace: Value,
    uid: String,
    resource_version: String,
    annotations: BTreeMap<String, Value>,
    deletion_timestamp: Option<Value>,
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Bookmark {
    metadata: ListMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
    message: String,
}

/// Returns the path and query of a list of the pods of a node. The Node authorizer permits a
/// kubelet no other list. The API server may answer from its cache if that has the version, and any
/// cache has version 0. `None`: it does not answer from its cache.
pub(crate) fn list_path(node: &str, version: Option<&str>) -> String {
    let version =
        version.and_then(|version| serde_urlencoded::to_string([("resourceVersion", version)]).ok());
    let version = version.map(|version| format!("&{version}")).unwrap_or_default();
    format!("/api/v1/pods?{}{version}", selector(node))
}

fn selector(node: &str) -> String {
    let selector = format!("spec.nodeName={node}");
    serde_urlencoded::to_string([("fieldSelector", selector)]).unwrap_or_default()
}

impl ApiPods {
    pub(crate) fn new(redact: bool) -> Self {
        Self { redact, ..Self::default() }
    }

    /// Returns the path and query of a watch from the last known version, which the API server ends
    /// after a number of seconds.
    pub(crate) fn watch_path(&self, node: &str, seconds: u64) -> String {
        let parameters =
            [("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", &self.resource_version)];
        let parameters = serde_urlencoded::to_string(parameters).unwrap_or_default();
        format!("/api/v1/pods?{}&{parameters}&timeoutSeconds={seconds}", selector(node))
    }

    /// Returns the last known version; `None` before the first list.
    pub(crate) fn resource_version(&self) -> Option<&str> {
        Some(&*self.resource_version).filter(|version| !version.is_empty())
    }

    /// Replaces all pods by those of a list.
    pub(crate) fn set_list(&mut self, list: &[u8]) -> Result<(), serde_json::Error> {
        let PodList { metadata, items } = serde_json::from_slice(list)?;
        let mut pods = BTreeMap::new();
        for item in items {
            let pod: ApiPod = serde_json::from_str(item.get())?;
            pods.insert(pod.metadata.uid.clone(), self.read(pod));
        }
        self.pods = pods;
        self.resource_version = metadata.resource_version;
        Ok(())
    }

    /// Applies an event of a watch.
    pub(crate) fn apply(&mut self, event: &[u8]) -> Result<WatchEffect, serde_json::Error> {
        let WatchEvent { r#type, object } = serde_json::from_slice(event)?;
        let object = object.get();
        let has_changed = match r#type {
            "ADDED" | "MODIFIED" => {
                let pod: ApiPod = serde_json::from_str(object)?;
                self.resource_version.clone_from(&pod.metadata.resource_version);
                let uid = pod.metadata.uid.clone();
                let pod = self.read(pod);
                let is_new = self.pods.get(&uid) != Some(&pod);
                self.pods.insert(uid, pod);
                is_new
            }
            "DELETED" => {
                let PodMetadata { uid, resource_version, .. } =
                    serde_json::from_str::<ApiPod>(object)?.metadata;
                self.resource_version = resource_version;
                self.pods.remove(&uid).is_some()
            }
            "BOOKMARK" => {
                let Bookmark { metadata } = serde_json::from_str(object)?;
                self.resource_version = metadata.resource_version;
                false
            }
            "ERROR" => {
                let Status { code, message } = serde_json::from_str(object)?;
                return Ok(WatchEffect::Failed(code, sanitize(&message)));
            }
            _ => false,
        };
        Ok(if has_changed { WatchEffect::Changed } else { WatchEffect::Unchanged })
    }

    /// Returns the specifications of all pods.
    pub(crate) fn manifests(&self) -> Manifests {
        self.pods.values().filter_map(|pod| pod.manifest.clone()).collect()
    }

    /// Returns the errors in individual pods.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.pods.values().flat_map(|pod| pod.problems.clone()).collect()
    }

    /// Reads a pod as an item of a list, so that errors name it.
    fn read(&self, pod: ApiPod) -> ReadPod {
        let ApiPod { metadata, spec } = pod;
        let mirrored = metadata.annotations.get(MIRROR_ANNOTATION).and_then(Value::as_str);
        let uid = mirrored.unwrap_or(&metadata.uid);
        let mut object = json!({
            "kind": "Pod",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": uid},
            "spec": spec,
        });
        if let Some(deleted) = metadata.deletion_timestamp {
            object["metadata"]["deletionTimestamp"] = deleted;
        }
        let mut problems = Vec::new();
        let list = json!({"kind": "PodList", "items": [object]});
        let manifests = document::read_manifests(&list, Source::ApiServer, self.redact, &mut problems);
        let problems = problems.iter().map(ToString::to_string).collect();
        ReadPod { manifest: manifests.into_iter().next(), problems }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, version: u32, command: &str) -> Value {
        json!({
            "metadata": {"name": uid, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string(),
                "managedFields": [{"manager": "x"}]},
            "spec": {"containers": [{"name": "main", "livenessProbe": {"exec": {"command": [command]}}}]},
            "status": {"phase": "Running"},
        })
    }

    fn listed(pods: &[Value]) -> ApiPods {
        let mut known = ApiPods::new(false);
        let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "10"}, "items": pods});
        known.set_list(list.to_string().as_bytes()).unwrap();
        known
    }

    fn applied(pods: &mut ApiPods, event: &str, object: &Value) -> WatchEffect {
        pods.apply(json!({"type": event, "object": object}).to_string().as_bytes()).unwrap()
    }

    fn names(pods: &ApiPods) -> Vec<(String, Option<String>)> {
        pods.manifests().iter().map(|it| (it.owner.name.clone(), it.owner.uid.clone())).collect()
    }

    #[test]
    fn events_of_a_watch_change_the_listed_pods_and_the_version_of_the_next_watch() {
        let mut pods = listed(&[pod("a", 3, "x"), pod("b", 4, "x")]);
        assert!(pods.watch_path("node-1", 300).contains("resourceVersion=10&timeoutSeconds=300"));
        assert_eq!(
            applied(&mut pods, "MODIFIED", &pod("a", 11, "x")),
            WatchEffect::Unchanged,
            "only its status"
        );
        assert_eq!(applied(&mut pods, "MODIFIED", &pod("a", 12, "y")), WatchEffect::Changed);
        assert_eq!(applied(&mut pods, "ADDED", &pod("c", 13, "x")), WatchEffect::Changed);
        assert_eq!(applied(&mut pods, "DELETED", &pod("b", 14, "x")), WatchEffect::Changed);
        let bookmark = json!({"kind": "Pod", "metadata": {"resourceVersion": "20"}});
        assert_eq!(applied(&mut pods, "BOOKMARK", &bookmark), WatchEffect::Unchanged);
        assert!(pods.watch_path("node-1", 300).contains("resourceVersion=20&"));
        let gone = json!({"kind": "Status", "code": 410, "message": "too old"});
        assert_eq!(applied(&mut pods, "ERROR", &gone), WatchEffect::Failed(GONE, "too old".to_owned()));
        let own = |name: &str| (name.to_owned(), Some(name.to_owned()));
        assert_eq!(names(&pods), [own("a"), own("c")]);
    }

    #[test]
    fn a_mirror_pod_has_the_uid_of_its_static_pod() {
        let mut mirror = pod("a", 3, "x");
        mirror["metadata"]["annotations"] = json!({MIRROR_ANNOTATION: "4f5e6d"});
        assert_eq!(names(&listed(&[mirror])), [("a".to_owned(), Some("4f5e6d".to_owned()))]);
    }

    #[test]
    fn an_invalid_pod_is_reported_by_its_name_and_does_not_affect_others() {
        let mut wrong = pod("a", 3, "x");
        wrong["spec"]["containers"][0]["livenessProbe"]["periodSeconds"] = json!("often");
        let pods = listed(&[wrong, pod("b", 4, "x")]);
        assert_eq!(names(&pods).len(), 1);
        let problems = pods.problems();
        assert!(
            problems[0].starts_with("Pod shop/a: spec.containers[0].livenessProbe.periodSeconds"),
            "{problems:?}"
        );
    }

    #[test]
    fn the_list_is_limited_to_the_node() {
        assert_eq!(
            list_path("node-1.example", Some("0")),
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1.example&resourceVersion=0"
        );
    }
}
