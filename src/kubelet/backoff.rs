//! Back-offs: delays before a failed container is restarted or a failed image pull is repeated
//! (client-go: `flowcontrol.Backoff`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Initial and maximum delay.
const FIRST: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Time since the last failure after which the delay is reset, even if the delay has not passed
/// (client-go: `flowcontrol.Backoff`: `GC`, which the kubelet's housekeeping calls).
const RESET_AFTER: Duration = Duration::from_secs(600);

/// Back-offs by keys.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    entries: Mutex<HashMap<String, BackoffEntry>>,
    /// Table of the state store in which the entries are kept, if any.
    state: Option<(StateStore, StateTable)>,
}

/// The current delay of a failing object.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct BackoffEntry {
    delay: Duration,
    /// Time at which the delay was set.
    noted: SystemTime,
}

impl BackoffEntry {
    fn is_forgotten(&self, now: SystemTime) -> bool {
        since(self.noted, now) > RESET_AFTER
    }

    /// Fails if the delay since a failure has not passed. A time of failure in the future means
    /// that the clock was set back, and is ignored.
    fn wait(&self, failed: SystemTime, now: SystemTime) -> Result<(), BackoffError> {
        let until = failed + self.delay;
        if failed <= now && now < until { Err(BackoffError { delay: self.delay, until }) } else { Ok(()) }
    }
}

/// The back-off of an operation has not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BackoffError {
    /// The whole delay.
    pub(super) delay: Duration,
    /// Time at which the delay ends.
    pub(super) until: SystemTime,
}

impl Backoff {
    /// Restores the entries of a table, and stores changes in the same table.
    pub(super) fn restore(
        snapshot: &Snapshot,
        state: &StateStore,
        table: StateTable,
    ) -> Result<Self, StateError> {
        let entries = snapshot.entries(table)?.into_iter().collect();
        Ok(Self { entries: Mutex::new(entries), state: Some((state.clone(), table)) })
    }

    /// Permits the retry of an operation that failed at `failed`, and doubles the next delay. Fails
    /// if the delay has not passed.
    pub(super) fn check_and_record(
        &self,
        key: &str,
        failed: SystemTime,
        now: SystemTime,
    ) -> Result<(), BackoffError> {
        let known = self.lock().get(key).filter(|entry| !entry.is_forgotten(now)).copied();
        // A failure after `now` means that the clock was set back, or that the runtime's clock is
        // ahead. The delay then counts from the time at which it was set.
        let expects_wrong = failed > now;
        let wait =
            known.map_or(Ok(()), |entry| entry.wait(if expects_wrong { entry.noted } else { failed }, now));
        if wait.is_ok() {
            self.note(key, now);
        }
        wait
    }

    /// Returns whether an operation has failed lately.
    pub(super) fn has(&self, key: &str) -> bool {
        self.lock().contains_key(key)
    }

    /// Fails if the delay since the last recorded failure has not passed.
    pub(super) fn check(&self, key: &str, now: SystemTime) -> Result<(), BackoffError> {
        let known = self.lock().get(key).copied();
        known.map_or(Ok(()), |entry| entry.wait(entry.noted, now))
    }

    /// Records a failure at `now`. Returns the delay before the retry.
    pub(super) fn record_failure(&self, key: &str, now: SystemTime) -> Duration {
        self.note(key, now)
    }

    /// Doubles the delay, or sets the initial delay if the last failure was long ago.
    fn note(&self, key: &str, now: SystemTime) -> Duration {
        let mut entries = self.lock();
        entries.retain(|key, entry| {
            let is_forgotten = entry.is_forgotten(now);
            if let Some((state, table)) = self.state.as_ref().filter(|_| is_forgotten) {
                state.remove(*table, key);
            }
            !is_forgotten
        });
        let delay = entries.get(key).map_or(FIRST, |entry| (entry.delay * 2).min(MAX_BACKOFF));
        let entry = BackoffEntry { delay, noted: now };
        entries.insert(key.to_owned(), entry);
        if let Some((state, table)) = &self.state {
            state.upsert(*table, key, &entry);
        }
        delay
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BackoffEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time from `earlier` to `later`; zero if `later` is before `earlier`.
fn since(earlier: SystemTime, later: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    /// Upstream: `kuberuntime_manager_test.go`: `TestDoBackOff`.
    #[test]
    fn the_back_off_doubles_up_to_five_minutes() {
        let (backoff, mut now, mut waited) = (Backoff::default(), 0, Vec::new());
        for _ in 0..8 {
            let failed = now;
            let wait = match backoff.check_and_record("main", at(failed), at(now)) {
                Ok(()) => 0,
                Err(BackoffError { delay, until }) => {
                    assert_eq!(until, at(failed) + delay);
                    now = failed + delay.as_secs();
                    assert_eq!(backoff.check_and_record("main", at(failed), at(now)), Ok(()));
                    delay.as_secs()
                }
            };
            waited.push(wait);
        }
        assert_eq!(waited, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn the_back_off_is_reset_after_ten_minutes() {
        let backoff = Backoff::default();
        for seconds in [0, 10, 30] {
            assert_eq!(backoff.check_and_record("main", at(seconds), at(seconds + 40)), Ok(()), "{seconds}");
        }
        assert_eq!(
            backoff.check_and_record("main", at(671), at(671)),
            Ok(()),
            "it failed ten minutes after its start"
        );
        assert!(backoff.check_and_record("main", at(672), at(681)).is_err());
        assert_eq!(backoff.check_and_record("other", at(672), at(672)), Ok(()));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_no_restart() {
        let backoff = Backoff::default();
        assert_eq!(backoff.check_and_record("main", at(5000), at(5000)), Ok(()));
        assert!(backoff.check_and_record("main", at(5001), at(5002)).is_err());
        assert_eq!(backoff.check_and_record("main", at(5001), at(1000)), Ok(()));
        let early = backoff.check_and_record("main", at(1001), at(1002)).unwrap_err();
        assert_eq!(early.delay, Duration::from_secs(20), "it is remembered");
        backoff.record_failure("image", at(5000));
        assert!(backoff.check("image", at(5001)).is_err());
        assert_eq!(backoff.check("image", at(1000)), Ok(()));
    }

    /// If the runtime's clock is ahead, the delay counts from the last start.
    #[test]
    fn a_runtime_clock_that_is_ahead_does_not_skip_the_back_off() {
        let backoff = Backoff::default();
        assert_eq!(backoff.check_and_record("main", at(5000), at(0)), Ok(()));
        let early = backoff.check_and_record("main", at(5001), at(9)).unwrap_err();
        assert_eq!(early, BackoffError { delay: Duration::from_secs(10), until: at(10) });
        assert_eq!(backoff.check_and_record("main", at(5001), at(10)), Ok(()));
        assert!(backoff.check_and_record("main", at(5012), at(29)).is_err());
    }

    /// The delay of an image pull counts from the end of the failed pull, regardless of the
    /// duration of the pull.
    #[test]
    fn the_back_off_of_an_image_pull_counts_from_the_end_of_the_pull() {
        let backoff = Backoff::default();
        assert_eq!(backoff.check("image", at(0)), Ok(()));
        for (failed, delay) in [(30, 10), (70, 20), (120, 40)] {
            assert_eq!(backoff.record_failure("image", at(failed)), Duration::from_secs(delay));
            let early = backoff.check("image", at(failed + delay - 1)).unwrap_err();
            assert_eq!((early.delay, early.until), (Duration::from_secs(delay), at(failed + delay)));
            assert_eq!(backoff.check("image", at(failed + delay)), Ok(()));
        }
        assert_eq!(backoff.record_failure("image", at(721)), Duration::from_secs(10), "it was long ago");
    }
}
