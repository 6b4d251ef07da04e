//! Whether the runtime answers.

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;

use super::api;
use crate::cri::MeteredChannel;
use crate::cri::v1::VersionRequest;
use crate::terminal::sanitize;

/// How long the runtime may take to answer Version and be called ready.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the runtime for its version. Each time on a new connection, as every client of the relay has one: an old one may still
/// be answered by a runtime that nobody can reach any more.
pub(super) async fn check_upstream(runtime: &MeteredChannel) -> api::UpstreamStatus {
    let mut client = runtime.connect_new();
    let answer = timeout(UPSTREAM_TIMEOUT, client.version(VersionRequest { version: "v1".to_owned() })).await;
    let (version, error) = match answer {
        Ok(Ok(answer)) => (Some(answer.into_inner()), None),
        Ok(Err(status)) => (None, Some(reason(&status))),
        Err(_) => (None, Some(format!("no answer to Version within {UPSTREAM_TIMEOUT:?}"))),
    };
    let (name, version) = version.map(|version| (version.runtime_name, version.runtime_version)).unzip();
    api::UpstreamStatus {
        socket: runtime.socket().to_string(),
        ready: error.is_none(),
        runtime: name,
        version,
        error,
    }
}

/// What went wrong, down to the system's word for it. The runtime may have said anything.
fn reason(status: &tonic::Status) -> String {
    let mut reason = format!("{:?}: {}", status.code(), status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // An error often tells its cause itself.
        if !reason.contains(&more) {
            reason = format!("{reason}: {more}");
        }
        cause = error.source();
    }
    sanitize(&reason)
}
