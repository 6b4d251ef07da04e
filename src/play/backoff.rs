//! How long it is waited before a container that fails is started again, or an image that is not to be had is pulled again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What is waited at first, and at most.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// After so long, what was waited before counts no more.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Who waits for how long, by keys.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<HashMap<String, Entry>>);

/// What is remembered of something that fails.
#[derive(Clone, Copy, Debug)]
struct Entry {
    delay: Duration,
    /// When it was tried last.
    tried: SystemTime,
}

/// It is not time yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooEarly {
    /// What is waited in all.
    pub(super) delay: Duration,
    /// Until when.
    pub(super) until: SystemTime,
}

impl Backoff {
    /// Tries something again that failed at a time; the next time it will be waited longer.
    pub(super) fn try_again(&self, key: &str, failed: SystemTime, now: SystemTime) -> Result<(), TooEarly> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| since(entry.tried, now) <= FORGOTTEN);
        let known = entries.get(key).filter(|entry| since(entry.tried, failed) <= FORGOTTEN).copied();
        if let Some(Entry { delay, .. }) = known.filter(|entry| since(failed, now) < entry.delay) {
            return Err(TooEarly { delay, until: failed + delay });
        }
        let delay = known.map_or(FIRST, |entry| (entry.delay * 2).min(LONGEST));
        entries.insert(key.to_owned(), Entry { delay, tried: now });
        Ok(())
    }

    /// When something was tried last.
    pub(super) fn tried(&self, key: &str) -> Option<SystemTime> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).map(|entry| entry.tried)
    }

    /// What is waited before it is tried again.
    pub(super) fn delay(&self, key: &str) -> Option<Duration> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).map(|entry| entry.delay)
    }

    /// It went well.
    pub(super) fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
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

    /// Table 9.9, `DoBackOff`, and the sequence of section 5.10 for a container that ends by itself at once.
    #[test]
    fn each_time_twice_as_long_up_to_five_minutes() {
        let (backoff, mut now, mut waited) = (Backoff::default(), 0, Vec::new());
        for _ in 0..8 {
            let failed = now;
            let wait = match backoff.try_again("main", at(failed), at(now)) {
                Ok(()) => 0,
                Err(TooEarly { delay, until }) => {
                    assert_eq!(until, at(failed) + delay);
                    now = failed + delay.as_secs();
                    assert_eq!(backoff.try_again("main", at(failed), at(now)), Ok(()));
                    delay.as_secs()
                }
            };
            waited.push(wait);
        }
        assert_eq!(waited, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    /// Section 5.10, the second row: who is killed for a probe is looked at by the end of the instance before, so that a container that
    /// lives longer than it would have to wait does not wait.
    #[test]
    fn of_those_that_a_probe_kills_the_end_before_counts() {
        for (lives, expected) in
            [(35, [0, 0, 0, 0, 40, 80]), (3, [0, 0, 10, 20, 40, 80]), (400, [0, 0, 0, 0, 0, 0])]
        {
            let (backoff, mut now, mut before, mut waited) = (Backoff::default(), 0, None, Vec::new());
            for _ in 0..6 {
                now += lives;
                let killed = now;
                let at_once =
                    before.is_none_or(|before| backoff.try_again("main", at(before), at(now)).is_ok());
                // Once it waits, it is its own end that counts.
                let wait = if at_once {
                    0
                } else {
                    backoff.try_again("main", at(now), at(now)).unwrap_err().delay.as_secs()
                };
                now += wait;
                if !at_once {
                    assert_eq!(backoff.try_again("main", at(killed), at(now)), Ok(()));
                }
                before = Some(killed);
                waited.push(wait);
            }
            assert_eq!(waited, expected, "it lives for {lives}s");
        }
    }

    #[test]
    fn after_ten_minutes_it_begins_anew() {
        let backoff = Backoff::default();
        for seconds in [0, 10, 30] {
            assert_eq!(backoff.try_again("main", at(seconds), at(seconds + 40)), Ok(()), "{seconds}");
        }
        assert_eq!(
            backoff.try_again("main", at(671), at(671)),
            Ok(()),
            "it failed ten minutes after its start"
        );
        assert!(backoff.try_again("main", at(672), at(681)).is_err());
        assert_eq!(backoff.try_again("other", at(672), at(672)), Ok(()));
        backoff.forget("main");
        assert_eq!(backoff.try_again("main", at(672), at(681)), Ok(()));
    }
}
