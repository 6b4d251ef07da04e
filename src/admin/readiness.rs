//! Readiness of the runtime.

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;

use super::api;
use crate::cri::MeteredChannel;
use crate::cri::v1::VersionRequest;
use crate::terminal::sanitize;

/// Time in which the runtime has to answer Version to be ready.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// Queries the runtime's version. Each query uses a new connection, as each client of the relay
/// does: a runtime may still answer on an old connection although clients can no longer connect.
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

/// Returns the error with its causes, down to the operating system's error. The text is sanitized,
/// since the runtime chooses it.
fn reason(status: &tonic::Status) -> String {
    let mut reason = format!("{:?}: {}", status.code(), status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Errors often include the text of their cause.
        if !reason.contains(&more) {
            reason = format!("{reason}: {more}");
        }
        cause = error.source();
    }
    sanitize(&reason)
}
