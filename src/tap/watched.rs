//! The methods whose messages matter: how much of them is captured, and what is read from that.

use prost::DecodeError;

use super::call::Call;
use super::messages;
use crate::cri::MethodName;

/// Bytes that are captured of a request. What is longer is counted, not decoded.
const REQUEST_LIMIT: usize = 1 << 20;

/// The same, for requests that hold the whole of a pod or container.
const CONFIG_LIMIT: usize = 4 << 20;

/// The same, for responses.
pub(super) const RESPONSE_LIMIT: usize = 1 << 20;

/// Reads a message into what is known of its call.
pub(super) type ReadMessage = fn(&mut Call, &[u8]) -> Result<(), DecodeError>;

/// A method whose messages matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) request_limit: usize,
    /// What is read from the request.
    pub(super) request: ReadMessage,
    /// What is read from the response, if it tells anything that the request did not.
    pub(super) response: Option<ReadMessage>,
}

/// What is watched of a method, if anything.
pub(super) fn of(method: &MethodName) -> Option<Watched> {
    let MethodName::Known(method) = method else { return None };
    let watched = match method.name() {
        "ExecSync" => {
            Watched { response: Some(messages::exec_sync_response), ..request(messages::exec_sync_request) }
        }
        "ContainerStatus" => request(messages::container_status_request),
        "PodSandboxStatus" => request(messages::pod_sandbox_status_request),
        "RunPodSandbox" => Watched {
            request_limit: CONFIG_LIMIT,
            request: messages::run_pod_sandbox_request,
            response: Some(messages::run_pod_sandbox_response),
        },
        "StopPodSandbox" => request(messages::stop_pod_sandbox_request),
        "RemovePodSandbox" => request(messages::remove_pod_sandbox_request),
        "CreateContainer" => Watched {
            request_limit: CONFIG_LIMIT,
            request: messages::create_container_request,
            response: Some(messages::create_container_response),
        },
        "StartContainer" => request(messages::start_container_request),
        "StopContainer" => request(messages::stop_container_request),
        "RemoveContainer" => request(messages::remove_container_request),
        _ => return None,
    };
    Some(watched)
}

/// A method of which only the request matters.
fn request(read: ReadMessage) -> Watched {
    Watched { request_limit: REQUEST_LIMIT, request: read, response: None }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::cri::Method;

    fn all() -> Vec<Watched> {
        Method::all().filter_map(|method| of(&MethodName::Known(method))).collect()
    }

    #[test]
    fn ten_methods_of_the_interface_are_watched() {
        assert_eq!(all().len(), 10);
    }

    proptest! {
        #[test]
        fn whatever_comes_as_a_message_is_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let mut call = Call::sample(1, "/a.B/C", SystemTime::UNIX_EPOCH, Duration::ZERO);
            for watched in all() {
                let _ = (watched.request)(&mut call, &bytes);
                if let Some(response) = watched.response {
                    let _ = response(&mut call, &bytes);
                }
            }
            let words = call.exec.map_or(0, |exec| exec.command.iter().map(String::len).sum());
            prop_assert!(words <= 4096);
        }
    }
}
