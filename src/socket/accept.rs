//! Accepting clients, also while the system cannot have more of them.

use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep_until};
use tracing::error;

/// How long to wait after accept failed, so that a lack of descriptors is not made worse by a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a failure is not told again.
const TOLD_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts the clients of a listener.
#[derive(Debug)]
pub struct Acceptor {
    listener: UnixListener,
    /// Set after a failure: when to try again.
    resume_at: Option<Instant>,
    /// When a failure was told.
    told_at: Option<Instant>,
    /// Failures that have not been told.
    untold: u64,
}

impl Acceptor {
    /// Accepts from this listener.
    #[must_use]
    pub fn new(listener: UnixListener) -> Self {
        Self { listener, resume_at: None, told_at: None, untold: 0 }
    }

    /// Returns the next client. A failure is told, at most every ten seconds, and tried again after a pause. May be dropped and
    /// called again without losing a client or the pause.
    pub async fn accept(&mut self) -> UnixStream {
        loop {
            if let Some(resume_at) = self.resume_at {
                sleep_until(resume_at).await;
            }
            self.resume_at = None;
            match self.listener.accept().await {
                Ok((client, _)) => return client,
                Err(error) => self.failed(&error),
            }
        }
    }

    fn failed(&mut self, error: &std::io::Error) {
        let now = Instant::now();
        self.resume_at = Some(now + PAUSE);
        self.untold += 1;
        if self.told_at.is_none_or(|told_at| now >= told_at + TOLD_INTERVAL) {
            let failures = std::mem::take(&mut self.untold);
            self.told_at = Some(now);
            error!(%error, failures, "cannot accept a connection");
        }
    }
}
