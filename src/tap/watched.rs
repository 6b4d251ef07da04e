//! The methods whose messages matter: how much of them is copied, and what is read from the copy.

use prost::DecodeError;

use super::call::Call;
use super::decode;

/// Bytes that are copied of a message. What is longer is counted, not decoded.
const LIMIT: usize = 1 << 20;

/// The same, for requests that hold the whole of a pod or container.
const CONFIG_LIMIT: usize = 4 << 20;

/// Reads a message into what is known of its call.
pub(super) type Read = fn(&mut Call, &[u8]) -> Result<(), DecodeError>;

/// A method whose messages matter.
#[derive(Debug)]
pub(super) struct Watched {
    path: &'static str,
    limit: usize,
    /// What is read from the request.
    pub(super) request: Read,
    /// What is read from the response, if it tells anything that the request did not.
    pub(super) response: Option<Read>,
}

static WATCHED: [Watched; 10] = [
    watched("/runtime.v1.RuntimeService/ExecSync", LIMIT, decode::exec, Some(decode::exec_result)),
    watched("/runtime.v1.RuntimeService/ContainerStatus", LIMIT, decode::container_status, None),
    watched("/runtime.v1.RuntimeService/PodSandboxStatus", LIMIT, decode::pod_status, None),
    watched("/runtime.v1.RuntimeService/RunPodSandbox", CONFIG_LIMIT, decode::pod, Some(decode::pod_id)),
    watched("/runtime.v1.RuntimeService/StopPodSandbox", LIMIT, decode::stop_pod, None),
    watched("/runtime.v1.RuntimeService/RemovePodSandbox", LIMIT, decode::remove_pod, None),
    watched(
        "/runtime.v1.RuntimeService/CreateContainer",
        CONFIG_LIMIT,
        decode::container,
        Some(decode::container_id),
    ),
    watched("/runtime.v1.RuntimeService/StartContainer", LIMIT, decode::start_container, None),
    watched("/runtime.v1.RuntimeService/StopContainer", LIMIT, decode::stop_container, None),
    watched("/runtime.v1.RuntimeService/RemoveContainer", LIMIT, decode::remove_container, None),
];

const fn watched(path: &'static str, limit: usize, request: Read, response: Option<Read>) -> Watched {
    Watched { path, limit, request, response }
}

/// The watched method at this path.
pub(super) fn at(path: &str) -> Option<&'static Watched> {
    WATCHED.iter().find(|watched| watched.path == path)
}

impl Watched {
    /// Bytes to copy of the request and of the response.
    pub(super) fn limits(&self) -> [Option<usize>; 2] {
        [Some(self.limit), self.response.map(|_| LIMIT)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::Method;

    #[test]
    fn every_watched_path_is_a_method_of_the_interface() {
        for watched in &WATCHED {
            assert!(Method::at(watched.path).is_some(), "{}", watched.path);
        }
    }
}
