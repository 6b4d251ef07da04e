//! How long it is waited before a container that fails is started again, or an image that is not to be had is pulled again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// What is waited at first, and at most.
const FIRST: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// After so long, what was waited before counts no more (the kubelet's housekeeping), though it be waited for at that time.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// Who waits for how long, by keys.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    entries: Mutex<HashMap<String, BackoffEntry>>,
    /// Where that outlives us.
    state: Option<(StateStore, StateTable)>,
}

/// What is remembered of something that fails.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct BackoffEntry {
    delay: Duration,
    /// When that was noted.
    noted: SystemTime,
}

impl BackoffEntry {
    fn is_forgotten(&self, now: SystemTime) -> bool {
        since(self.noted, now) > RESET_AFTER
    }

    /// Whether it is time again after a failure. One that is still to come was noted before the clock was set back: it is not waited for until
    /// then.
    fn wait(&self, failed: SystemTime, now: SystemTime) -> Result<(), BackoffError> {
        let until = failed + self.delay;
        if failed <= now && now < until { Err(BackoffError { delay: self.delay, until }) } else { Ok(()) }
    }
}

/// It is not time yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BackoffError {
    /// What is waited in all.
    pub(super) delay: Duration,
    /// Until when.
    pub(super) until: SystemTime,
}

impl Backoff {
    /// What was remembered before goes on, and is remembered there from now on.
    pub(super) fn restore(
        snapshot: &Snapshot,
        state: &StateStore,
        table: StateTable,
    ) -> Result<Self, StateError> {
        let entries = snapshot.entries(table)?.into_iter().collect();
        Ok(Self { entries: Mutex::new(entries), state: Some((state.clone(), table)) })
    }

    /// Tries something again that failed at a time; the next time it will be waited longer.
    pub(super) fn check_and_record(
        &self,
        key: &str,
        failed: SystemTime,
        now: SystemTime,
    ) -> Result<(), BackoffError> {
        let known = self.lock().get(key).filter(|entry| !entry.is_forgotten(now)).copied();
        // What seems to fail later than now has failed before the clock was set back, or by a clock that goes before ours.
        let expects_wrong = failed > now;
        let wait =
            known.map_or(Ok(()), |entry| entry.wait(if expects_wrong { entry.noted } else { failed }, now));
        if wait.is_ok() {
            self.note(key, now);
        }
        wait
    }

    /// Whether it is time for something that was noted to have failed before.
    pub(super) fn check(&self, key: &str, now: SystemTime) -> Result<(), BackoffError> {
        let known = self.lock().get(key).copied();
        known.map_or(Ok(()), |entry| entry.wait(entry.noted, now))
    }

    /// Something has failed now. Returns what is waited before it is tried again.
    pub(super) fn record_failure(&self, key: &str, now: SystemTime) -> Duration {
        self.note(key, now)
    }

    /// The next time it will be waited longer than the last time, unless that was long ago.
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

/// How long after one time another is; no time where it is before.
fn since(earlier: SystemTime, later: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    /// Table 9.9, `DoBackOff`.
    #[test]
    fn each_time_twice_as_long_up_to_five_minutes() {
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
    fn backoff_is_reset_after_ten_minutes() {
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

    /// Where the runtime's clock goes before ours, it is waited from the last start on.
    #[test]
    fn a_clock_that_goes_before_ours_does_not_do_away_with_it() {
        let backoff = Backoff::default();
        assert_eq!(backoff.check_and_record("main", at(5000), at(0)), Ok(()));
        let early = backoff.check_and_record("main", at(5001), at(9)).unwrap_err();
        assert_eq!(early, BackoffError { delay: Duration::from_secs(10), until: at(10) });
        assert_eq!(backoff.check_and_record("main", at(5001), at(10)), Ok(()));
        assert!(backoff.check_and_record("main", at(5012), at(29)).is_err());
    }

    /// An image that is not to be had is pulled again so long after the last pull has failed, however long that took.
    #[test]
    fn a_pull_is_waited_for_from_its_end_on() {
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
