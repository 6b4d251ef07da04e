//! Methods whose messages are decoded: the limits of captures, and the functions that decode.

use prost::DecodeError;

use super::messages::{MessageContext, exec, lifecycle, lists};
use crate::cri::MethodName;

/// Maximum number of bytes that are captured of a request. A longer request is counted, and not
/// decoded.
const REQUEST_LIMIT: usize = 1 << 20;

/// Maximum number of bytes that are captured of a request with the configuration of a pod or
/// container.
const CONFIG_LIMIT: usize = 4 << 20;

/// Maximum number of bytes that are captured of a response.
pub(super) const RESPONSE_LIMIT: usize = 1 << 20;

/// Methods about an image, and not about a pod. `PullImage` may be about the pod that needs it.
const IMAGE_CALLS: [&str; 2] = ["ImageStatus", "RemoveImage"];

/// Method by which clients subscribe to the events of containerd.
const CONTAINERD_EVENTS: &str = "/containerd.services.events.v1.Events/Subscribe";

/// Methods that only read the state, and whose response is not a stream.
const READ_ONLY: [&str; 16] = [
    "Version",
    "Status",
    "RuntimeConfig",
    "PodSandboxStatus",
    "ContainerStatus",
    "ListPodSandbox",
    "ListContainers",
    "PodSandboxStats",
    "ContainerStats",
    "ListPodSandboxStats",
    "ListContainerStats",
    "ListMetricDescriptors",
    "ListPodSandboxMetrics",
    "ListImages",
    "ImageStatus",
    "ImageFsInfo",
];

/// Decodes a message into the context of its call.
pub(super) type ReadMessage = fn(&mut MessageContext, &[u8]) -> Result<(), DecodeError>;

/// Decoding of a method's messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct MethodSpec {
    pub(super) request_limit: usize,
    /// Decodes the request, if it has relevant fields.
    pub(super) request: Option<ReadMessage>,
    /// Decodes the response, if it has relevant fields that the request does not have.
    pub(super) response: Option<ResponseKind>,
    /// Whether a call is reported as soon as its request has been sent.
    pub(super) is_announced: bool,
    /// The list that the method returns, if its rate of decoding is limited.
    pub(super) list: Option<ListKind>,
}

/// A list of all objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Sandboxes,
    Containers,
}

/// Decoding of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseKind {
    /// Decodes the only message, if the call succeeded.
    Unary(ReadMessage),
    /// Decodes each message when it arrives.
    Stream(ReadMessage),
}

/// Returns whether calls to a method are about one pod or container, and return neither a list nor
/// a stream.
#[must_use]
pub fn is_object_call(method: &MethodName) -> bool {
    spec_for(method).is_some_and(|watched| {
        watched.list.is_none()
            && !IMAGE_CALLS.contains(&method.label())
            && !matches!(watched.response, Some(ResponseKind::Stream(_)))
    })
}

/// Returns whether a method returns a stream, which ends when its client wants no more.
#[must_use]
pub fn is_stream(method: &MethodName) -> bool {
    spec_for(method).is_some_and(|watched| matches!(watched.response, Some(ResponseKind::Stream(_))))
}

/// Returns whether a method is a subscription: a stream without an end of its own, which its client
/// ends.
#[must_use]
pub fn is_subscription(method: &MethodName) -> bool {
    is_stream(method) || matches!(method, MethodName::Unknown(path) if **path == *CONTAINERD_EVENTS)
}

/// Returns whether a method only reads the state, so that its observations are not changes made by
/// the call.
#[must_use]
pub fn is_read_only(method: &MethodName) -> bool {
    READ_ONLY.contains(&method.label())
}

/// Returns whether calls to a method create a sandbox or container.
pub(super) fn creates_object(method: &MethodName) -> bool {
    ["RunPodSandbox", "CreateContainer"].contains(&method.label())
}

/// Returns whether calls to a method remove a sandbox or container.
pub(super) fn removes(method: &MethodName) -> bool {
    ["RemovePodSandbox", "RemoveContainer"].contains(&method.label())
}

/// Returns the decoding of a method's messages, if they are decoded.
pub(super) fn spec_for(method: &MethodName) -> Option<MethodSpec> {
    let MethodName::Known(method) = method else { return None };
    let watched = match method.name() {
        "ExecSync" => MethodSpec { is_announced: true, ..unary(exec::request, exec::response) },
        "RunPodSandbox" => MethodSpec {
            request_limit: CONFIG_LIMIT,
            ..unary(lifecycle::run_pod_sandbox_request, lifecycle::run_pod_sandbox_response)
        },
        "StopPodSandbox" => notifies(lifecycle::stop_pod_sandbox_request),
        "RemovePodSandbox" => notifies(lifecycle::remove_pod_sandbox_request),
        "PodSandboxStatus" => {
            unary(lifecycle::pod_sandbox_status_request, lifecycle::pod_sandbox_status_response)
        }
        "CreateContainer" => MethodSpec {
            request_limit: CONFIG_LIMIT,
            ..unary(lifecycle::create_container_request, lifecycle::create_container_response)
        },
        "PullImage" => MethodSpec { request_limit: CONFIG_LIMIT, ..request(lifecycle::pull_image_request) },
        "ImageStatus" => request(lifecycle::image_status_request),
        "RemoveImage" => request(lifecycle::remove_image_request),
        "StartContainer" => request(lifecycle::start_container_request),
        "StopContainer" => notifies(lifecycle::stop_container_request),
        "RemoveContainer" => notifies(lifecycle::remove_container_request),
        "ContainerStatus" => unary(lifecycle::container_status_request, lifecycle::container_status_response),
        "ListPodSandbox" => {
            MethodSpec { list: Some(ListKind::Sandboxes), ..unary(lists::request, lists::sandboxes) }
        }
        "ListContainers" => {
            MethodSpec { list: Some(ListKind::Containers), ..unary(lists::request, lists::containers) }
        }
        "StreamPodSandboxes" => stream(lists::some_sandboxes),
        "StreamContainers" => stream(lists::some_containers),
        "GetContainerEvents" => stream(lists::event),
        _ => return None,
    };
    Some(watched)
}

/// Decodes only the request.
fn request(read: ReadMessage) -> MethodSpec {
    MethodSpec {
        request_limit: REQUEST_LIMIT,
        request: Some(read),
        response: None,
        is_announced: false,
        list: None,
    }
}

impl MethodSpec {
    /// Returns whether the method stops or removes a sandbox or container.
    pub(super) fn is_stop(&self) -> bool {
        self.is_announced && self.response.is_none()
    }
}

/// Decodes only the request, and reports the call as soon as the request has been sent.
fn notifies(read: ReadMessage) -> MethodSpec {
    MethodSpec { is_announced: true, ..request(read) }
}

fn unary(request_of: ReadMessage, response: ReadMessage) -> MethodSpec {
    MethodSpec { response: Some(ResponseKind::Unary(response)), ..request(request_of) }
}

/// Decodes only the messages of the response stream.
fn stream(message: ReadMessage) -> MethodSpec {
    MethodSpec {
        request_limit: 0,
        request: None,
        response: Some(ResponseKind::Stream(message)),
        is_announced: false,
        list: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::cri::Method;
    use crate::tap::Call;

    fn all() -> Vec<MethodSpec> {
        Method::all().filter_map(|method| spec_for(&MethodName::Known(method))).collect()
    }

    #[test]
    fn the_tap_observes_eighteen_methods_of_the_cri() {
        assert_eq!(all().len(), 18);
    }

    #[test]
    fn each_read_only_method_is_a_method_of_the_cri_without_a_stream() {
        for name in READ_ONLY {
            let method = Method::from_name(name).unwrap();
            assert!(!method.is_streaming() && is_read_only(&MethodName::Known(method)), "{name}");
        }
        assert!(!is_read_only(&MethodName::of_path("/a.B/ContainerStatus")));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_as_a_message_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let mut read =
                MessageContext::new(Call::sample(1, "/a.B/C", SystemTime::UNIX_EPOCH, Duration::ZERO));
            for watched in all() {
                if let Some(request) = watched.request {
                    let _ = request(&mut read, &bytes);
                }
                if let Some(ResponseKind::Unary(response) | ResponseKind::Stream(response)) = watched.response {
                    let _ = response(&mut read, &bytes);
                }
            }
            let length = read.call.exec.map_or(0, |exec| exec.command.iter().map(String::len).sum());
            prop_assert!(length <= 4096);
        }
    }
}
