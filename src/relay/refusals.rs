//! Telling of clients that are refused because the runtime cannot be dialled, without a line for each of thousands.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::socket::SocketPath;

/// How long refusals for the same reason are counted before they are told again.
const TOLD_INTERVAL: Duration = Duration::from_secs(10);

/// The refusals of a relay. The first one for a reason is told at once, those of the next ten seconds in one line.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    no_descriptors: Mutex<Counted>,
    not_there: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Until when refusals are only counted.
    until: Option<Instant>,
    refused: u64,
}

/// How one refusal is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// It is told.
    Now,
    /// It is the first one that is not told: those after it are told with it then.
    Later(Instant),
    /// It is told with others.
    WithOthers,
}

impl Refusals {
    /// Tells of a client that is refused, or of it and others later: the wait ends early with the token.
    pub(super) async fn tell(
        &self,
        connection: u64,
        peer: &str,
        upstream: &SocketPath,
        error: &io::Error,
        drain: &CancellationToken,
    ) {
        let is_shortage = is_shortage(error);
        let counted = if is_shortage { &self.no_descriptors } else { &self.not_there };
        let telling = lock(counted).refuse(Instant::now());
        match telling {
            Telling::WithOthers => {}
            Telling::Now if is_shortage => {
                warn!(connection, %peer, %error, "no file descriptor is left to connect to upstream: client refused");
            }
            Telling::Now => {
                warn!(connection, %peer, %upstream, %error, "upstream is not there: client refused");
            }
            Telling::Later(until) => {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = drain.cancelled() => {}
                }
                let clients = lock(counted).take(Instant::now());
                let reason = if is_shortage { "no file descriptor is left" } else { "upstream is not there" };
                warn!(clients, reason, %error, "more clients were refused");
            }
        }
    }
}

impl Counted {
    fn refuse(&mut self, now: Instant) -> Telling {
        let Some(until) = self.until.filter(|until| now < *until || self.refused > 0) else {
            self.until = Some(now + TOLD_INTERVAL);
            return Telling::Now;
        };
        self.refused += 1;
        if self.refused == 1 { Telling::Later(until) } else { Telling::WithOthers }
    }

    /// Returns how many have been counted, and counts anew.
    fn take(&mut self, now: Instant) -> u64 {
        self.until = Some(now + TOLD_INTERVAL);
        std::mem::take(&mut self.refused)
    }
}

/// Returns whether we have, or the system has, no descriptor left. Upstream may well be there.
fn is_shortage(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .map(Errno::from_raw_os_error)
        .is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

fn lock(counted: &Mutex<Counted>) -> std::sync::MutexGuard<'_, Counted> {
    counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_told_at_once_and_the_next_thousand_in_one_line() {
        let (mut counted, start) = (Counted::default(), Instant::now());
        assert_eq!(counted.refuse(start), Telling::Now);
        let end = start + TOLD_INTERVAL;
        assert_eq!(counted.refuse(start), Telling::Later(end));
        for _ in 0..998 {
            assert_eq!(counted.refuse(start), Telling::WithOthers);
        }
        assert_eq!(counted.take(end), 999);
        assert_eq!(counted.refuse(end), Telling::Later(end + TOLD_INTERVAL));
        assert_eq!(counted.take(end + TOLD_INTERVAL), 1);
        assert_eq!(counted.refuse(end + 3 * TOLD_INTERVAL), Telling::Now);
    }

    #[test]
    fn a_lack_of_descriptors_is_told_from_an_upstream_that_is_not_there() {
        assert!(is_shortage(&Errno::MFILE.into()));
        assert!(is_shortage(&Errno::NFILE.into()));
        assert!(!is_shortage(&Errno::NOENT.into()));
        assert!(!is_shortage(&io::Error::other("handshake")));
    }
}
