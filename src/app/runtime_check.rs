//! Reports that `play` cannot reach its runtime, with the remedy, until it can.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::events::{Event, reason};
use crate::socket::SocketPath;

/// Interval between attempts to connect to a runtime that cannot be reached.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval between reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Connects to the runtime at the start, and whenever it may be gone. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct RuntimeCheck {
    unreachable: Arc<Mutex<Option<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl RuntimeCheck {
    /// Starts to check the runtime. `events` reports the loss of the runtime.
    pub(super) fn start(runtime: SocketPath, events: Receiver<Arc<Event>>) -> Self {
        let unreachable = Arc::<Mutex<Option<String>>>::default();
        let task = tokio::spawn(check(runtime, events, unreachable.clone()));
        Self { unreachable, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns the reason why the runtime cannot be reached; `None` if it can.
    pub(super) fn unreachable(&self) -> Option<String> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn check(runtime: SocketPath, mut events: Receiver<Arc<Event>>, state: Arc<Mutex<Option<String>>>) {
    let mut next_report = Instant::now();
    loop {
        let error = UnixStream::connect(runtime.as_path()).await.err();
        let reason = error.as_ref().map(|error| unreachable_message(&runtime, error));
        let was_unreachable =
            std::mem::replace(&mut *state.lock().unwrap_or_else(PoisonError::into_inner), reason.clone());
        if let Some(reason) = reason {
            if Instant::now() >= next_report {
                warn!("{reason}");
                next_report = Instant::now() + REPORT_INTERVAL;
            }
            sleep(RETRY_INTERVAL).await;
            continue;
        }
        if was_unreachable.is_some() {
            warn!("{runtime} can be reached again");
        }
        next_report = Instant::now();
        if !is_lost(&mut events).await {
            return;
        }
    }
}

/// Waits until the runtime may be gone. Returns `false` if there are no more events.
async fn is_lost(events: &mut Receiver<Arc<Event>>) -> bool {
    loop {
        match events.recv().await {
            Ok(event) if event.reason == reason::RUNTIME_UNAVAILABLE => return true,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}

/// Returns a sentence with the error and the remedy.
fn unreachable_message(runtime: &SocketPath, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run as root, or start a runtime without root: probeshim play --runtime procrun"
        }
        _ => {
            "start the runtime, name its socket with --upstream, or use the built-in one: probeshim play --runtime procrun"
        }
    };
    format!("cannot reach {runtime}: {}; {remedy}", error_text(error))
}

/// Returns the text of an error without its number.
fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_runtime_is_reported_with_a_remedy() {
        let runtime = SocketPath::new("/run/containerd/containerd.sock".as_ref()).unwrap();
        let message = |errno| unreachable_message(&runtime, &io::Error::from_raw_os_error(errno));
        let denied = message(rustix::io::Errno::ACCESS.raw_os_error());
        let expected = "cannot reach unix:///run/containerd/containerd.sock: permission denied; run as root, or \
                        start a runtime without root: probeshim play --runtime procrun";
        assert_eq!(denied, expected);
        let absent = message(rustix::io::Errno::NOENT.raw_os_error());
        assert!(absent.contains(": no such file or directory; start the runtime"), "{absent}");
    }
}
