//! Logs clients that are refused because the runtime cannot be reached, with a few lines for
//! thousands of clients.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::socket::SocketPath;

/// Interval in which further refusals for the same reason are only counted.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Refusals of a relay. The first refusal for a reason is logged immediately, and those of the next
/// ten seconds in one line.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    no_descriptors: Mutex<RefusalCount>,
    unavailable: Mutex<RefusalCount>,
}

#[derive(Debug, Default)]
struct RefusalCount {
    /// Time until which refusals are only counted.
    until: Option<Instant>,
    refused: u64,
}

/// Way in which a refusal is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogAction {
    /// The refusal is logged immediately.
    Now,
    /// The refusal is counted. Its task logs the count at the given time.
    Later(Instant),
    /// The refusal is only counted.
    Counted,
}

impl Refusals {
    /// Logs a refused client, immediately or later together with others. Returns early when the
    /// relay drains.
    pub(super) async fn log(
        &self,
        connection: u64,
        peer: &str,
        upstream: &SocketPath,
        error: &io::Error,
        drain: &CancellationToken,
    ) {
        let is_shortage = is_shortage(error);
        let counted = if is_shortage { &self.no_descriptors } else { &self.unavailable };
        let action = lock(counted).refuse(Instant::now());
        match action {
            LogAction::Counted => {}
            LogAction::Now if is_shortage => {
                warn!(connection, %peer, %error, "no file descriptor is left to connect to upstream: client refused");
            }
            LogAction::Now => {
                warn!(connection, %peer, %upstream, %error, "upstream cannot be reached: client refused");
            }
            LogAction::Later(until) => {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = drain.cancelled() => {}
                }
                let clients = lock(counted).take(Instant::now());
                let reason =
                    if is_shortage { "no file descriptor is left" } else { "upstream cannot be reached" };
                warn!(clients, reason, %error, "more clients were refused");
            }
        }
    }
}

impl RefusalCount {
    fn refuse(&mut self, now: Instant) -> LogAction {
        let Some(until) = self.until.filter(|until| now < *until || self.refused > 0) else {
            self.until = Some(now + LOG_INTERVAL);
            return LogAction::Now;
        };
        self.refused += 1;
        if self.refused == 1 { LogAction::Later(until) } else { LogAction::Counted }
    }

    /// Returns the number of counted refusals, and resets it.
    fn take(&mut self, now: Instant) -> u64 {
        self.until = Some(now + LOG_INTERVAL);
        std::mem::take(&mut self.refused)
    }
}

/// Returns whether this process or the system has no file descriptor left. Upstream may well be
/// available then.
fn is_shortage(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .map(Errno::from_raw_os_error)
        .is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

fn lock(counted: &Mutex<RefusalCount>) -> std::sync::MutexGuard<'_, RefusalCount> {
    counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_logged_immediately_and_the_next_thousand_in_one_line() {
        let (mut counted, start) = (RefusalCount::default(), Instant::now());
        assert_eq!(counted.refuse(start), LogAction::Now);
        let end = start + LOG_INTERVAL;
        assert_eq!(counted.refuse(start), LogAction::Later(end));
        for _ in 0..998 {
            assert_eq!(counted.refuse(start), LogAction::Counted);
        }
        assert_eq!(counted.take(end), 999);
        assert_eq!(counted.refuse(end), LogAction::Later(end + LOG_INTERVAL));
        assert_eq!(counted.take(end + LOG_INTERVAL), 1);
        assert_eq!(counted.refuse(end + 3 * LOG_INTERVAL), LogAction::Now);
    }

    #[test]
    fn a_lack_of_descriptors_is_distinguished_from_an_upstream_that_cannot_be_reached() {
        assert!(is_shortage(&Errno::MFILE.into()));
        assert!(is_shortage(&Errno::NFILE.into()));
        assert!(!is_shortage(&Errno::NOENT.into()));
        assert!(!is_shortage(&io::Error::other("handshake")));
    }
}
