//! Pods and containers of this node for the ids in a capture.

use std::collections::HashMap;

use tonic::Status;
use tonic::transport::Channel;

use super::file::RecordedCall;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::cri::v1::{
    Container, ContainerState, ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxState,
};
use crate::cri::{FieldMessage, FieldPath, MethodName};
use crate::history::json::Pod;

/// Fields of requests that name an object by its id.
const ID_FIELDS: [(&str, TargetKind); 2] =
    [("container_id", TargetKind::Container), ("pod_sandbox_id", TargetKind::Sandbox)];

/// The sandboxes and containers of this node, and the identities of those in the capture.
#[derive(Debug)]
pub(super) struct Targets {
    sandboxes: Vec<PodSandbox>,
    containers: Vec<Container>,
    /// Pods in the capture, by id of their sandbox.
    recorded_pods: HashMap<String, Pod>,
    /// Containers in the capture, by id: their pod and name.
    recorded_containers: HashMap<String, (Pod, String)>,
}

/// Kind of an object with an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetKind {
    Container,
    Sandbox,
}

impl Targets {
    /// Lists the objects of this node.
    pub(super) async fn list(
        client: &mut RuntimeServiceClient<Channel>,
        calls: &[RecordedCall],
    ) -> Result<Self, Status> {
        let sandboxes = client.list_pod_sandbox(ListPodSandboxRequest::default()).await?.into_inner().items;
        let containers = client.list_containers(ListContainersRequest::default()).await?.into_inner();
        Ok(Self::new(sandboxes, containers.containers, calls))
    }

    pub(super) fn new(
        sandboxes: Vec<PodSandbox>,
        containers: Vec<Container>,
        calls: &[RecordedCall],
    ) -> Self {
        let (mut recorded_pods, mut recorded_containers) = (HashMap::new(), HashMap::new());
        for call in calls {
            let Some(pod) = &call.pod else { continue };
            if let Some(id) = &pod.id {
                recorded_pods.insert(id.clone(), pod.clone());
            }
            if let Some(container) = &call.container
                && let (Some(id), Some(name)) = (&container.id, &container.name)
            {
                recorded_containers.insert(id.clone(), (pod.clone(), name.clone()));
            }
        }
        Self { sandboxes, containers, recorded_pods, recorded_containers }
    }

    /// Replaces the ids in a request by those of this node. Returns an id that is not on this node
    /// as an error.
    pub(super) fn resolve(&self, method: &MethodName, request: &mut FieldMessage) -> Result<(), String> {
        let listed = match method.label() {
            "ListPodSandbox" | "ListPodSandboxStats" => TargetKind::Sandbox,
            _ => TargetKind::Container,
        };
        let filters = [("id", listed), ("pod_sandbox_id", TargetKind::Sandbox)];
        let filters = filters.map(|(name, kind)| (vec!["filter", name], kind));
        for (path, kind) in ID_FIELDS.map(|(name, kind)| (vec![name], kind)).into_iter().chain(filters) {
            let Some(id) = request.text(&path) else { continue };
            let found = match kind {
                TargetKind::Container => self.container(&id),
                TargetKind::Sandbox => self.sandbox(&id),
            };
            let found = found.ok_or_else(|| id.clone())?;
            if found != id
                && let Ok(path) = FieldPath::parse(&path.join("."))
            {
                request.set(&path, found);
            }
        }
        Ok(())
    }

    /// Returns the full id of a container: the same one, or the one with its pod and name.
    fn container(&self, id: &str) -> Option<&str> {
        if let Some(known) = self.containers.iter().find(|container| container.id.starts_with(id)) {
            return Some(&known.id);
        }
        let (pod, name) = self.recorded_containers.get(id)?;
        let named = self.containers.iter().filter_map(|container| {
            let metadata = container.metadata.as_ref()?;
            let sandbox = self.sandboxes.iter().find(|sandbox| sandbox.id == container.pod_sandbox_id)?;
            let is_same_pod = is_pod(sandbox, pod)?;
            let is_running = container.state() == ContainerState::ContainerRunning;
            let rank = (is_same_pod, is_running, container.created_at);
            (metadata.name == *name).then_some((rank, container))
        });
        named.max_by_key(|(rank, _)| *rank).map(|(_, container)| container.id.as_str())
    }

    /// Returns the full id of a sandbox: the same one, or the one of its pod.
    fn sandbox(&self, id: &str) -> Option<&str> {
        if let Some(known) = self.sandboxes.iter().find(|sandbox| sandbox.id.starts_with(id)) {
            return Some(&known.id);
        }
        let pod = self.recorded_pods.get(id)?;
        let named = self.sandboxes.iter().filter_map(|sandbox| {
            let is_ready = sandbox.state() == PodSandboxState::SandboxReady;
            Some(((is_pod(sandbox, pod)?, is_ready, sandbox.created_at), sandbox))
        });
        named.max_by_key(|(rank, _)| *rank).map(|(_, sandbox)| sandbox.id.as_str())
    }

    /// Returns the name of an object of the capture for people.
    pub(super) fn name(&self, id: &str) -> String {
        let pod = |pod: &Pod| {
            let part = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
            format!("{}/{}", part(&pod.namespace), part(&pod.name))
        };
        let container = self.recorded_containers.get(id).map(|(of, name)| format!("{} {name}", pod(of)));
        container.or_else(|| self.recorded_pods.get(id).map(pod)).unwrap_or_else(|| id.to_owned())
    }
}

/// Returns whether a sandbox is of the same pod as in the capture, uid included. Returns `None` if
/// its pod has another name.
fn is_pod(sandbox: &PodSandbox, pod: &Pod) -> Option<bool> {
    let metadata = sandbox.metadata.as_ref()?;
    let is_named =
        Some(&metadata.namespace) == pod.namespace.as_ref() && Some(&metadata.name) == pod.name.as_ref();
    is_named.then_some(Some(&metadata.uid) == pod.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::*;
    use crate::cri::v1::{ContainerMetadata, PodSandboxMetadata};
    use crate::cri::{MessageSide, Method};
    use crate::history::json;
    use crate::relay::CallOutcome;

    fn sandbox(id: &str, name: &str, uid: &str) -> PodSandbox {
        let metadata = PodSandboxMetadata {
            name: name.into(),
            namespace: "shop".into(),
            uid: uid.into(),
            ..Default::default()
        };
        PodSandbox { id: id.into(), metadata: Some(metadata), ..Default::default() }
    }

    fn container(id: &str, sandbox: &str, created_at: i64, state: ContainerState) -> Container {
        let metadata = ContainerMetadata { name: "main".into(), attempt: 0 };
        Container {
            id: id.into(),
            pod_sandbox_id: sandbox.into(),
            metadata: Some(metadata),
            created_at,
            state: state as i32,
            ..Default::default()
        }
    }

    fn recorded(container_id: &str) -> RecordedCall {
        let text = |text: &str| Some(text.to_owned());
        let pod = Pod { id: text("oldpod"), namespace: text("shop"), name: text("web-0"), uid: text("u-1") };
        RecordedCall {
            id: 1,
            start: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            method: MethodName::of_path("/runtime.v1.RuntimeService/ExecSync"),
            outcome: CallOutcome::ClientGone,
            timeout: None,
            request: None,
            has_no_command: false,
            affected_by: Vec::new(),
            pod: Some(pod),
            container: Some(json::Container { id: text(container_id), name: text("main"), attempt: None }),
            exec: None,
        }
    }

    fn resolved(targets: &Targets, method: &str, request: &serde_json::Value) -> Result<String, String> {
        let method = Method::from_name(method).unwrap();
        let mut message = FieldMessage::from_json(method, MessageSide::Request, request).unwrap();
        targets.resolve(&MethodName::Known(method), &mut message)?;
        Ok(message.to_json().to_string())
    }

    #[test]
    fn ids_of_a_capture_are_replaced_by_those_of_the_pod_with_the_same_name() {
        use ContainerState::{ContainerExited, ContainerRunning};
        let sandboxes = vec![sandbox("newpod", "web-0", "u-2"), sandbox("otherpod", "db-0", "u-1")];
        let containers = vec![
            container("exited", "newpod", 9, ContainerExited),
            container("running", "newpod", 2, ContainerRunning),
            container("other", "otherpod", 10, ContainerRunning),
        ];
        let targets = Targets::new(sandboxes, containers, &[recorded("oldcontainer")]);
        for (method, request, expected) in [
            ("ExecSync", json!({"containerId": "oldcontainer"}), r#"{"containerId":"running"}"#),
            ("ExecSync", json!({"containerId": "exited"}), r#"{"containerId":"exited"}"#),
            ("ContainerStatus", json!({"containerId": "exi"}), r#"{"containerId":"exited"}"#),
            ("PodSandboxStatus", json!({"podSandboxId": "oldpod"}), r#"{"podSandboxId":"newpod"}"#),
            ("ListPodSandbox", json!({"filter": {"id": "oldpod"}}), r#"{"filter":{"id":"newpod"}}"#),
            (
                "ListContainers",
                json!({"filter": {"id": "oldcontainer", "podSandboxId": "oldpod"}}),
                r#"{"filter":{"id":"running","podSandboxId":"newpod"}}"#,
            ),
            ("ListContainers", json!({}), "{}"),
        ] {
            assert_eq!(resolved(&targets, method, &request).as_deref(), Ok(expected), "{method}");
        }
        let unknown = resolved(&targets, "ExecSync", &json!({"containerId": "c0ffee"}));
        assert_eq!(unknown, Err("c0ffee".to_owned()));
        assert_eq!(
            (targets.name("oldcontainer"), targets.name("c0ffee")),
            ("shop/web-0 main".into(), "c0ffee".into())
        );
    }
}
