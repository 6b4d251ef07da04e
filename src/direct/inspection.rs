//! Inspects a container: requests its specification from the runtime, and opens its init process.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use super::init_process::{InitError, InitProcess};
use super::spec::{ContainerSpec, Unsupported};
use crate::cri::MeteredRuntimeClient;
use crate::cri::v1::{ContainerStatusRequest, StatusRequest};
use crate::duration;

/// Timeout of the requests to the runtime.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A container that was inspected.
#[derive(Debug)]
pub(super) struct Inspected {
    /// Full id of the container. Clients may request a container by a prefix of it.
    pub(super) id: String,
    pub(super) spec: ContainerSpec,
    pub(super) init: InitProcess,
    /// Maximum time for which the runtime awaits the end of the output after the exit of a command.
    pub(super) drain_limit: Option<Duration>,
}

/// Reason for which a container was not inspected.
#[derive(Debug, thiserror::Error)]
pub(super) enum InspectError {
    /// The runtime does not answer, or the container has exited.
    #[error("the runtime does not answer, or the container has exited")]
    Unavailable,
    /// The container needs the runtime.
    #[error("{0}")]
    Unsupported(String),
}

/// Answers of the runtime about a container.
#[derive(Debug)]
struct VerboseStatus {
    /// Full id of the container.
    id: String,
    /// The `info` of the container, as JSON.
    info: String,
    /// Configuration of the runtime, as JSON.
    config: String,
}

/// The part of containerd's configuration in a verbose `Status` response that probeshim reads.
#[derive(Deserialize)]
struct RuntimeConfig {
    /// A duration as Go writes it; `0s` or an empty text for no limit.
    #[serde(default, rename = "drainExecSyncIOTimeout")]
    drain_limit: String,
}

/// Inspects a container.
pub(super) async fn inspect(
    client: &MeteredRuntimeClient,
    container_id: &str,
) -> Result<Inspected, InspectError> {
    let info = request_info(client, container_id).await;
    let VerboseStatus { id, info, config } = info.ok_or(InspectError::Unavailable)?;
    let drain_limit = drain_limit(&config).map_err(InspectError::Unsupported)?;
    let spec = ContainerSpec::read(&info).map_err(|reason| match reason {
        Unsupported::NotRunning => InspectError::Unavailable,
        reason => InspectError::Unsupported(reason.to_string()),
    })?;
    let init = InitProcess::open(spec.init, &id).map_err(|error| match error {
        InitError::Exited => InspectError::Unavailable,
        reason => InspectError::Unsupported(reason.to_string()),
    })?;
    Ok(Inspected { id, spec, init, drain_limit })
}

/// Requests the information of the runtime about a container, and its configuration. Returns `None`
/// if the runtime does not answer.
async fn request_info(client: &MeteredRuntimeClient, container_id: &str) -> Option<VerboseStatus> {
    let request = ContainerStatusRequest { container_id: container_id.to_owned(), verbose: true };
    let mut client = client.clone();
    let answers = async {
        let status = client.container_status(request).await.ok()?.into_inner();
        let runtime = client.status(StatusRequest { verbose: true }).await.ok()?.into_inner();
        let text = |info: &HashMap<String, String>, key| info.get(key).cloned().unwrap_or_default();
        let (info, config) = (text(&status.info, "info"), text(&runtime.info, "config"));
        Some(VerboseStatus { id: status.status?.id, info, config })
    };
    timeout(INSPECT_TIMEOUT, answers).await.ok()?
}

/// Returns the limit in containerd's configuration. A runtime without the field has no limit. The
/// error is the reason for which the limit is unknown.
fn drain_limit(config: &str) -> Result<Option<Duration>, String> {
    if config.is_empty() {
        return Ok(None);
    }
    let RuntimeConfig { drain_limit } = serde_json::from_str(config)
        .map_err(|error| format!("the configuration of the runtime cannot be read: {error}"))?;
    if drain_limit.is_empty() {
        return Ok(None);
    }
    let limit = duration::parse(&drain_limit)
        .ok_or_else(|| format!("drainExecSyncIOTimeout of the runtime is {drain_limit:?}, not a duration"))?;
    Ok(Some(limit).filter(|limit| !limit.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_drain_is_that_of_containerds_configuration() {
        let limit =
            |text: &str| drain_limit(&serde_json::json!({"drainExecSyncIOTimeout": text}).to_string());
        assert_eq!(limit("0s"), Ok(None));
        assert_eq!(limit(""), Ok(None));
        assert_eq!(limit("1m30s"), Ok(Some(Duration::from_secs(90))));
        assert!(limit("soon").unwrap_err().contains("\"soon\", not a duration"));
        assert_eq!(drain_limit(r#"{"other": 1}"#), Ok(None));
        assert_eq!(drain_limit(""), Ok(None));
        assert!(drain_limit("{").unwrap_err().contains("cannot be read"));
    }
}
