//! Where on this host a container runs: its first process, as the runtime tells it.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use crate::cri::MeteredRuntimeClient;
use crate::cri::v1::ContainerStatusRequest;

/// How long the runtime may take to tell.
const INIT_PID_TIMEOUT: Duration = Duration::from_secs(5);

/// What is read of `info` of a verbose status; the configuration beside it, env and all, is passed over.
#[derive(Deserialize)]
struct Info {
    pid: i32,
}

/// Asks for the first process of a container. containerd and CRI-O tell it.
pub(super) async fn container_init_pid(mut client: MeteredRuntimeClient, container: &str) -> Option<i32> {
    let request = ContainerStatusRequest { container_id: container.to_owned(), verbose: true };
    let answer = timeout(INIT_PID_TIMEOUT, client.container_status(request)).await.ok()?.ok()?.into_inner();
    let info: Info = serde_json::from_str(answer.info.get("info")?).ok()?;
    Some(info.pid).filter(|pid| *pid > 0)
}
