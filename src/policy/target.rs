//! The pod, container, image and command of a call.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message as _;

use super::command_match::CommandLine;
use crate::cri::{FieldMessage, MessageSide, Method, unary_message, v1};
use crate::inventory::{Container, Inventory, Sandbox};

/// Maximum length in bytes of a message whose names are read. A longer one names nothing.
const MAX_MESSAGE: usize = 256 << 10;

/// Maximum length in bytes of a message with the configuration of a pod or container.
const MAX_CONFIG: usize = 4 << 20;

/// Names and ids in the request of a call.
#[derive(Debug, Default)]
pub(super) struct RequestNames {
    pub(super) container_id: Option<String>,
    pub(super) sandbox_id: Option<String>,
    namespace: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    image: Option<String>,
    labels: Option<HashMap<String, String>>,
    pub(super) command: Option<Vec<String>>,
    pub(super) timeout_seconds: i64,
    /// Whether the command was not read, because it is too long for patterns.
    has_long_command: bool,
}

/// The request of an `ExecSync` without its command.
#[derive(Clone, PartialEq, prost::Message)]
struct ExecSyncWithoutCommand {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(int64, tag = "3")]
    timeout: i64,
}

/// The object of a call, from its request and from the node.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) sandbox: Option<Arc<Sandbox>>,
    pub(super) container: Option<Arc<Container>>,
    names: RequestNames,
}

impl From<v1::ExecSyncRequest> for RequestNames {
    fn from(request: v1::ExecSyncRequest) -> Self {
        let v1::ExecSyncRequest { container_id, cmd, timeout } = request;
        Self {
            container_id: (!container_id.is_empty()).then_some(container_id),
            command: (!cmd.is_empty()).then_some(cmd),
            timeout_seconds: timeout,
            ..Self::default()
        }
    }
}

impl RequestNames {
    /// Reads the message of a request, with its gRPC frame. A message that cannot be read names
    /// nothing.
    pub(super) fn read(method: Method, frame: &[u8]) -> Self {
        let limit = match method.name() {
            "RunPodSandbox" | "CreateContainer" => MAX_CONFIG,
            _ => MAX_MESSAGE,
        };
        let message = unary_message(frame).ok().filter(|message| message.len() <= limit);
        let names = message.and_then(|message| match method.name() {
            // The most frequent calls on a busy node. Their own type decodes them fastest.
            "ExecSync" => v1::ExecSyncRequest::decode(message).ok().map(Self::from),
            _ => FieldMessage::decode(method, MessageSide::Request, message)
                .map(|message| Self::from_fields(method, &message)),
        });
        names.unwrap_or_default()
    }

    fn from_fields(method: Method, message: &FieldMessage) -> Self {
        // A request that creates an object has the configuration of its pod, or of its container
        // beside that of its pod.
        let pod = match method.name() {
            "RunPodSandbox" => "config",
            _ => "sandbox_config",
        };
        let container = (method.name() == "CreateContainer").then_some("config");
        let in_container = |path: &[&str]| message.text(&[&[container?], path].concat());
        let image = in_container(&["image", "user_specified_image"])
            .or_else(|| in_container(&["image", "image"]))
            .or_else(|| message.text(&["image", "user_specified_image"]))
            .or_else(|| message.text(&["image", "image"]));
        Self {
            container_id: message.text(&["container_id"]),
            sandbox_id: message.text(&["pod_sandbox_id"]),
            namespace: message.text(&[pod, "metadata", "namespace"]),
            pod: message.text(&[pod, "metadata", "name"]),
            container: in_container(&["metadata", "name"]),
            image,
            labels: message.map(&[pod, "labels"]),
            command: message.texts("cmd"),
            timeout_seconds: message.number("timeout").unwrap_or(0),
            has_long_command: false,
        }
    }

    /// Reads the message of an `ExecSync` whose command is too long for patterns, without the
    /// command, which may have many thousands of arguments.
    pub(super) fn read_without_command(frame: &[u8]) -> Self {
        let message = unary_message(frame).ok().filter(|message| message.len() <= MAX_MESSAGE);
        let read = message.and_then(|message| ExecSyncWithoutCommand::decode(message).ok());
        let ExecSyncWithoutCommand { container_id, timeout } = read.unwrap_or_default();
        Self {
            container_id: (!container_id.is_empty()).then_some(container_id),
            timeout_seconds: timeout,
            has_long_command: true,
            ..Self::default()
        }
    }

    /// Returns the id of the object that must be known on the node to know the call's pod.
    pub(super) fn object_id(&self) -> Option<&str> {
        self.container_id.as_deref().or(self.sandbox_id.as_deref())
    }
}

/// Reads the names in the message of a request, with its gRPC frame, for a fuzz target.
pub(crate) fn read_request_names(method: Method, frame: &[u8]) {
    let target = Target::new(RequestNames::read(method, frame));
    drop((target.counter_key(), target.command_line()));
}

impl Target {
    /// Creates a target from the names of a request, whose objects are unknown.
    pub(super) fn new(names: RequestNames) -> Self {
        Self { names, ..Self::default() }
    }

    /// Finds the objects that the request names. Returns whether all are known.
    pub(super) fn find(&mut self, inventory: &Inventory) -> bool {
        let RequestNames { container_id, sandbox_id, .. } = &self.names;
        self.container = container_id.as_deref().and_then(|id| inventory.container(id)).cloned();
        let of_container = self.container.as_deref().and_then(|container| inventory.sandbox_of(container));
        let by_id = sandbox_id.as_deref().and_then(|id| inventory.sandbox(id));
        self.sandbox = of_container.or(by_id).cloned();
        let is_known = |id: &Option<String>, is_found| id.is_none() || is_found;
        is_known(container_id, self.container.is_some()) && is_known(sandbox_id, self.sandbox.is_some())
    }

    /// Returns namespace, pod, container and image, as far as they are known.
    pub(super) fn names(&self) -> [Option<&str>; 4] {
        let pod = self.sandbox.as_deref().map(|sandbox| &*sandbox.pod);
        let container = self.container.as_deref();
        let name = container.and_then(|container| container.container_ref.name.as_deref());
        let image = container.map(|container| container.image.as_str()).filter(|image| !image.is_empty());
        let RequestNames { namespace, pod: pod_name, container: container_name, image: named, .. } =
            &self.names;
        [
            pod.and_then(|pod| pod.namespace.as_deref()).or(namespace.as_deref()),
            pod.and_then(|pod| pod.name.as_deref()).or(pod_name.as_deref()),
            name.or(container_name.as_deref()),
            image.or(named.as_deref()),
        ]
    }

    /// Returns the value of a label of the pod.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let known = self.sandbox.as_deref().and_then(|sandbox| sandbox.labels.get(key));
        known.or_else(|| self.names.labels.as_ref()?.get(key).map(String::as_str))
    }

    /// Returns the command with its arguments, as patterns are compared with it.
    pub(super) fn command_line(&self) -> CommandLine {
        if self.names.has_long_command {
            return CommandLine::TooLong;
        }
        CommandLine::new(self.names.command.as_deref())
    }

    /// Returns the command and the timeout of an `ExecSync`.
    pub(super) fn exec(&self) -> Option<(&[String], i64)> {
        Some((self.names.command.as_deref()?, self.names.timeout_seconds))
    }

    /// Returns the sandbox and the container, if both are known.
    pub(super) fn objects(&self) -> Option<(&Arc<Sandbox>, &Arc<Container>)> {
        self.sandbox.as_ref().zip(self.container.as_ref())
    }

    /// Returns the id of the container, or of the sandbox, if the request names one.
    pub(super) fn object_id(&self) -> Option<&str> {
        self.names.object_id()
    }

    /// Returns the full id of the container, or the id in the request if the container is unknown.
    pub(super) fn container_id(&self) -> Option<&str> {
        let known = self.container.as_deref().and_then(|container| container.container_ref.id.as_deref());
        known.or(self.object_id())
    }

    /// Returns whether the names come from the node alone, so that they are the same for each call
    /// about the object.
    pub(super) fn is_cacheable(&self) -> bool {
        let RequestNames { namespace, pod, container, image, labels, .. } = &self.names;
        let is_known = self.sandbox.is_some() || self.container.is_some();
        is_known && [namespace, pod, container, image].iter().all(|name| name.is_none()) && labels.is_none()
    }

    /// Returns the text by which the calls of the container are counted.
    pub(super) fn counter_key(&self) -> String {
        let [namespace, pod, container, image] = self.names();
        counter_key([namespace, pod, container], self.object_id().or(image))
    }
}

/// Returns a text that is the same for all calls of a container, also after its restart: namespace,
/// pod and container, or `other` if they are unknown.
pub(super) fn counter_key(names: [Option<&str>; 3], other: Option<&str>) -> String {
    match names {
        [Some(namespace), Some(pod), Some(container)] => format!("{namespace}/{pod}/{container}"),
        [Some(namespace), Some(pod), None] => format!("{namespace}/{pod}"),
        _ => other.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::cri::{framed_message, v1};

    fn names(method: &str, message: &impl prost::Message) -> Target {
        let frame = framed_message(&message.encode_to_vec());
        Target::new(RequestNames::read(Method::from_name(method).unwrap(), &frame))
    }

    fn pod() -> v1::PodSandboxConfig {
        let metadata =
            v1::PodSandboxMetadata { name: "web-1".into(), namespace: "shop".into(), ..Default::default() };
        let labels = [("app".to_owned(), "web".to_owned())].into();
        v1::PodSandboxConfig { metadata: Some(metadata), labels, ..Default::default() }
    }

    #[test]
    fn a_request_names_its_pod_container_image_and_command() {
        let image = v1::ImageSpec { image: "busybox:1.36".into(), ..Default::default() };
        let run = v1::RunPodSandboxRequest { config: Some(pod()), ..Default::default() };
        let run = names("RunPodSandbox", &run);
        assert_eq!(run.names(), [Some("shop"), Some("web-1"), None, None]);
        assert_eq!((run.label("app"), run.label("tier")), (Some("web"), None));
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(image.clone()),
            ..Default::default()
        };
        let create = v1::CreateContainerRequest {
            pod_sandbox_id: "5a".into(),
            config: Some(config),
            sandbox_config: Some(pod()),
        };
        let create = names("CreateContainer", &create);
        assert_eq!(create.names(), [Some("shop"), Some("web-1"), Some("main"), Some("busybox:1.36")]);
        assert_eq!((create.object_id(), &*create.counter_key()), (Some("5a"), "shop/web-1/main"));
        let pull =
            v1::PullImageRequest { image: Some(image), sandbox_config: Some(pod()), ..Default::default() };
        let pull = names("PullImage", &pull);
        assert_eq!(pull.names(), [Some("shop"), Some("web-1"), None, Some("busybox:1.36")]);
        let exec = v1::ExecSyncRequest {
            container_id: "c0".into(),
            cmd: ["pg_isready".to_owned(), "-U".to_owned()].into(),
            timeout: 5,
        };
        let exec = names("ExecSync", &exec);
        assert_eq!(exec.names(), [None; 4]);
        let command = ["pg_isready".to_owned(), "-U".to_owned()];
        assert_eq!((exec.object_id(), exec.exec()), (Some("c0"), Some((&command[..], 5))));
        assert!(matches!(exec.command_line(), CommandLine::Line(line) if line == "pg_isready -U"));
    }

    #[test]
    fn a_request_that_is_read_without_its_command_has_its_container() {
        let request =
            v1::ExecSyncRequest { container_id: "c0".into(), cmd: vec!["a".into(); 9000], timeout: 5 };
        let frame = framed_message(&request.encode_to_vec());
        let target = Target::new(RequestNames::read_without_command(&frame));
        assert_eq!((target.object_id(), target.names.timeout_seconds), (Some("c0"), 5));
        assert!(matches!(target.command_line(), CommandLine::TooLong));
    }

    #[test]
    fn a_request_that_cannot_be_read_names_nothing() {
        let method = Method::from_name("ExecSync").unwrap();
        for frame in [&b""[..], b"\0\0\0\0\x02\xff\xff", b"\x01\0\0\0\0"] {
            let target = Target::new(RequestNames::read(method, frame));
            assert_eq!((target.names(), target.object_id()), ([None; 4], None));
        }
    }
}
