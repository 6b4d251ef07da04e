//! Requests the pid of a container's first process from the runtime.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use crate::cri::MeteredRuntimeClient;
use crate::cri::v1::ContainerStatusRequest;

/// Timeout of the `ContainerStatus` request.
const INIT_PID_TIMEOUT: Duration = Duration::from_secs(5);

/// The part of `info` in a verbose `ContainerStatus` response that probeshim reads. It does not
/// read the container's configuration, which contains environment variables.
#[derive(Deserialize)]
struct Info {
    pid: i32,
}

/// Returns the pid of the first process of a container, or `None` if the runtime does not report it
/// in time. containerd and CRI-O report it.
pub(super) async fn container_init_pid(mut client: MeteredRuntimeClient, container: &str) -> Option<i32> {
    let request = ContainerStatusRequest { container_id: container.to_owned(), verbose: true };
    let answer = timeout(INIT_PID_TIMEOUT, client.container_status(request)).await.ok()?.ok()?.into_inner();
    let info: Info = serde_json::from_str(answer.info.get("info")?).ok()?;
    Some(info.pid).filter(|pid| *pid > 0)
}
