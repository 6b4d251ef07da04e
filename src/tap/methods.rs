//! The methods whose messages matter: how much of them is captured, and what is read from that.

use prost::DecodeError;

use super::messages::{MessageContext, exec, lifecycle, lists};
use crate::cri::MethodName;

/// Bytes that are captured of a request. What is longer is counted, not decoded.
const REQUEST_LIMIT: usize = 1 << 20;

/// The same, for requests that hold the whole of a pod or container.
const CONFIG_LIMIT: usize = 4 << 20;

/// The same, for responses.
pub(super) const RESPONSE_LIMIT: usize = 1 << 20;

/// Reads a message into what is known of its call.
pub(super) type ReadMessage = fn(&mut MessageContext, &[u8]) -> Result<(), DecodeError>;

/// A method whose messages matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct MethodSpec {
    pub(super) request_limit: usize,
    /// What is read from the request, where it tells anything.
    pub(super) request: Option<ReadMessage>,
    /// What is read from the response, where it tells anything that the request did not.
    pub(super) response: Option<ResponseKind>,
    /// Whether such a call is told of as soon as it is asked.
    pub(super) is_announced: bool,
    /// Which list it asks for, if for one that is not looked at every time.
    pub(super) list: Option<ListKind>,
}

/// A list of everything of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Sandboxes,
    Containers,
}

/// What is read from a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseKind {
    /// Its one message, once the call went well.
    Unary(ReadMessage),
    /// Each message, as it comes.
    Stream(ReadMessage),
}

/// Whether calls to a method are told of one by one: what is about one pod or container, and not a list or a stream.
#[must_use]
pub fn is_object_call(method: &MethodName) -> bool {
    spec_for(method).is_some_and(|watched| {
        watched.list.is_none() && !matches!(watched.response, Some(ResponseKind::Stream(_)))
    })
}

/// Whether a call only asks how things are, and what it tells is no news of something that was done.
#[must_use]
pub fn is_read_only(method: &MethodName) -> bool {
    ["PodSandboxStatus", "ContainerStatus", "ListPodSandbox", "ListContainers"].contains(&method.label())
}

/// Whether something is made by a call to a method, as its request says.
pub(super) fn creates_object(method: &MethodName) -> bool {
    ["RunPodSandbox", "CreateContainer"].contains(&method.label())
}

/// Whether a call to a method removes something.
pub(super) fn removes(method: &MethodName) -> bool {
    ["RemovePodSandbox", "RemoveContainer"].contains(&method.label())
}

/// What is watched of a method, if anything.
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

/// A method of which only the request matters.
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
    /// Whether such a call stops or removes something.
    pub(super) fn is_stop(&self) -> bool {
        self.is_announced && self.response.is_none()
    }
}

/// The same of one that is told of as soon as it is asked.
fn notifies(read: ReadMessage) -> MethodSpec {
    MethodSpec { is_announced: true, ..request(read) }
}

fn unary(request_of: ReadMessage, response: ReadMessage) -> MethodSpec {
    MethodSpec { response: Some(ResponseKind::Unary(response)), ..request(request_of) }
}

/// A method of which only what it streams matters.
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
    fn fifteen_methods_of_the_interface_are_watched() {
        assert_eq!(all().len(), 15);
    }

    proptest! {
        #[test]
        fn whatever_comes_as_a_message_is_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
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
