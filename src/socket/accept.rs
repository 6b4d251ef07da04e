//! Accepts clients, and retries while the system cannot accept more of them.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep_until};
use tracing::error;

/// Pause after a failed accept, so that a busy loop does not aggravate a lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Interval in which further failures are only counted.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts the clients of a listener.
#[derive(Debug)]
pub struct Acceptor {
    listener: UnixListener,
    /// Time of the next retry, set after a failure.
    resume_at: Option<Instant>,
    failures: FailureLog,
}

/// Logs failures: the first one immediately, and those of the next ten seconds in one line after
/// that time.
#[derive(Debug, Default)]
struct FailureLog {
    /// Time of the last log line.
    logged_at: Option<Instant>,
    /// Number of failures that were not logged.
    unlogged: u64,
    /// The last failure that was not logged.
    last: Option<io::Error>,
}

impl Acceptor {
    /// Creates an acceptor for the clients of a listener.
    #[must_use]
    pub fn new(listener: UnixListener) -> Self {
        Self { listener, resume_at: None, failures: FailureLog::default() }
    }

    /// Returns the next client. If accept fails, retries after a pause, and logs failures at most
    /// every ten seconds. The future may be dropped, and the function called again, without the
    /// loss of a client or of the pause.
    pub async fn accept(&mut self) -> UnixStream {
        loop {
            if let Some(resume_at) = self.resume_at {
                sleep_until(resume_at).await;
            }
            self.resume_at = None;
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((client, _)) => return client,
                    Err(error) => {
                        self.resume_at = Some(Instant::now() + ACCEPT_BACKOFF);
                        self.failures.add(error);
                    }
                },
                () = self.failures.due() => self.failures.log(),
            }
        }
    }
}

impl FailureLog {
    fn add(&mut self, error: io::Error) {
        self.unlogged += 1;
        self.last = Some(error);
        if self.logged_at.is_none_or(|logged_at| logged_at.elapsed() >= LOG_INTERVAL) {
            self.log();
        }
    }

    /// Waits until unlogged failures are to be logged. Never returns if there are none.
    async fn due(&self) {
        match self.logged_at.filter(|_| self.last.is_some()) {
            Some(logged_at) => sleep_until(logged_at + LOG_INTERVAL).await,
            None => pending().await,
        }
    }

    fn log(&mut self) {
        if let Some(error) = self.last.take() {
            let failures = std::mem::take(&mut self.unlogged);
            self.logged_at = Some(Instant::now());
            error!(%error, failures, "cannot accept a connection");
        }
    }
}

impl Drop for FailureLog {
    fn drop(&mut self) {
        self.log();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tokio::time::timeout;

    use super::*;

    /// Collects log lines.
    #[derive(Clone, Default)]
    struct Logged(Arc<Mutex<Vec<u8>>>);

    impl Write for Logged {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Logged {
        /// Returns the number of failures in each line.
        fn failures(&self) -> Vec<u64> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let number = |line: &str| line.split_once("failures=")?.1.split(' ').next()?.parse().ok();
            text.lines().map(|line| number(line).unwrap_or_else(|| panic!("{line}"))).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn accept_failures_are_counted_and_logged_at_most_every_ten_seconds() {
        let logged = Logged::default();
        let log = logged.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let mut failures = FailureLog::default();
        assert!(timeout(2 * LOG_INTERVAL, failures.due()).await.is_err(), "there is nothing to log");
        for _ in 0..3 {
            failures.add(io::Error::other("a lack"));
        }
        assert_eq!(logged.failures(), [1], "the first of three");
        let first = Instant::now();
        failures.due().await;
        assert_eq!(first.elapsed().as_secs(), LOG_INTERVAL.as_secs());
        failures.log();
        assert_eq!(logged.failures(), [1, 2]);
        for _ in 0..2 {
            failures.add(io::Error::other("a lack"));
        }
        drop(failures);
        assert_eq!(logged.failures(), [1, 2, 2], "the rest at the end");
    }
}
