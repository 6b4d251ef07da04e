//! The calls that were seen last, within a bound, and those that come.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use super::filter::{Filter, Selection};
use super::journal;
use super::mem_size::MemoryAccounting;
use crate::cri::MethodName;
use crate::execsync::CallRecord;

/// Calls that a slow follower may lag behind.
const FOLLOW_BUFFER: usize = 1024;

/// The calls that were seen last. Cheap to read: a reader takes references.
#[derive(Debug)]
pub struct CallHistory {
    ring: Mutex<CallRing>,
    follow: broadcast::Sender<Arc<CallRecord>>,
    limits: Limits,
}

/// How much is kept; when one of the two is reached, the oldest calls go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls.
    pub calls: usize,
    /// Bytes of memory, about.
    pub bytes: usize,
}

/// How many calls there were and are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Seen since the start.
    pub seen: u64,
    /// Of those, kept.
    pub retained: usize,
}

#[derive(Debug, Default)]
struct CallRing {
    calls: VecDeque<Arc<CallRecord>>,
    weights: MemoryAccounting,
    total: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 10_000, bytes: 4 << 20 }
    }
}

impl CallHistory {
    /// An empty record.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { ring: Mutex::default(), follow: broadcast::Sender::new(FOLLOW_BUFFER), limits }
    }

    /// Keeps what was recorded on disk before, each call as it was recorded last, and returns the number from which new calls are counted:
    /// a thousand later at least, because the probeshim before this one may still be recording its last. `redact`: what is shown of
    /// commands is the program alone.
    pub fn load(&self, dir: &Path, redact: bool) -> u64 {
        let (mut ring, mut last) = (self.lock(), None);
        let mut known = HashSet::new();
        journal::read_last(dir, |record| {
            let record = Arc::new(if redact { record.redacted() } else { record });
            let id = record.call.id;
            last = last.max(Some(id));
            if known.insert(id) { ring.keep(record, self.limits) } else { ring.replace(&record) }
        });
        last.map_or(1, next_number)
    }

    /// Keeps a call, and shows it to those who follow. One that takes the place of another is kept where that was.
    pub fn push(&self, record: CallRecord) -> Arc<CallRecord> {
        let record = Arc::new(record);
        let mut ring = self.lock();
        if record.is_amended {
            ring.replace(&record);
            return record;
        }
        ring.total += 1;
        ring.keep(record.clone(), self.limits);
        // Under the lock: a reader who begins to follow misses no call and sees none twice. Fails where nobody follows.
        let _ = self.follow.send(record.clone());
        record
    }

    /// The call of this number, if it is kept.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Arc<CallRecord>> {
        self.lock().calls.iter().rev().find(|record| record.call.id == id).cloned()
    }

    /// The calls that a filter lets through.
    #[must_use]
    pub fn select(&self, filter: &Filter, selection: Selection) -> Vec<Arc<CallRecord>> {
        selection.select(self.lock().matching(filter))
    }

    /// The same, and a receiver of all later calls, unfiltered.
    #[must_use]
    pub fn follow(
        &self,
        filter: &Filter,
        selection: Selection,
    ) -> (Vec<Arc<CallRecord>>, broadcast::Receiver<Arc<CallRecord>>) {
        let ring = self.lock();
        let (matching, coming) = (ring.matching(filter), self.follow.subscribe());
        drop(ring);
        (selection.select(matching), coming)
    }

    /// Whether everyone who follows has taken everything.
    #[must_use]
    pub fn followers_caught_up(&self) -> bool {
        self.follow.is_empty()
    }

    /// Whether a call to this method is kept.
    #[must_use]
    pub fn has(&self, method: &MethodName) -> bool {
        self.lock().calls.iter().any(|record| record.call.method == *method)
    }

    /// How many calls there were and are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let ring = self.lock();
        Counts { seen: ring.total, retained: ring.calls.len() }
    }

    fn lock(&self) -> MutexGuard<'_, CallRing> {
        // What panicked while it held the lock left a record that is whole enough to read.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number from which calls are counted after those of an earlier probeshim, of which the last recorded has this one: a thousand are
/// left for those that it still records.
fn next_number(last: u64) -> u64 {
    (last + 1000).next_multiple_of(1000) + 1
}

impl CallRing {
    /// Puts a call behind those that ended before it: some are explained sooner than others.
    fn insert(&mut self, record: Arc<CallRecord>) {
        // Those of an earlier probeshim ended before all of this one's.
        let later = self.calls.iter().rev().take_while(|known| known.ended > record.ended).count();
        self.calls.insert(self.calls.len() - later, record);
    }

    /// Puts a call where it belongs, and lets the oldest go where there are too many.
    fn keep(&mut self, record: Arc<CallRecord>, limits: Limits) {
        self.weights.add(&record);
        self.insert(record);
        while self.calls.len() > limits.calls || self.weights.bytes() > limits.bytes {
            let Some(oldest) = self.calls.pop_front() else { break };
            self.weights.remove(&oldest);
        }
    }

    fn replace(&mut self, record: &Arc<CallRecord>) {
        if let Some(known) = self.calls.iter_mut().rev().find(|known| known.call.id == record.call.id) {
            self.weights.remove(known);
            self.weights.add(record);
            *known = record.clone();
        }
    }

    fn matching(&self, filter: &Filter) -> Vec<Arc<CallRecord>> {
        self.calls.iter().filter(|record| filter.matches(record)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::time::{Duration, SystemTime};

    use tokio::time::Instant;

    use super::*;
    use crate::tap::Call;

    fn call(id: u64, path: &str, millis: u64) -> CallRecord {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(id);
        let call = Call::sample(id, path, start, Duration::from_millis(millis));
        let ended = *NOW + Duration::from_secs(id) + call.duration;
        CallRecord::unanalyzed(call, None, Some(ended))
    }

    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn ids(calls: &[Arc<CallRecord>]) -> Vec<u64> {
        calls.iter().map(|record| record.call.id).collect()
    }

    #[test]
    fn filters_and_orders() {
        let calls = CallHistory::new(Limits::default());
        for (id, path, millis) in [(1, "/a/B", 5), (2, "/a/C", 3000), (3, "/a/B", 7), (4, "/a/B", 6)] {
            calls.push(call(id, path, millis));
        }
        let all = Filter::default();
        assert_eq!(ids(&calls.select(&all, Selection::All)), [1, 3, 4, 2], "as they ended");
        assert_eq!(ids(&calls.select(&all, Selection::Last(2))), [4, 2]);
        assert_eq!(ids(&calls.select(&all, Selection::Slowest(3))), [2, 3, 4]);
        let to_b = Filter { method: Some(MethodName::of_path("/a/B")), ..Filter::default() };
        assert_eq!(ids(&calls.select(&to_b, Selection::Slowest(2))), [3, 4]);
        let since = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(4500));
        let late = Filter { since, ..Filter::default() };
        assert_eq!(ids(&calls.select(&late, Selection::All)), [2], "it began before and ended after");
        assert!(calls.has(&MethodName::of_path("/a/C")) && !calls.has(&MethodName::of_path("/a/D")));
    }

    #[test]
    fn the_oldest_go_when_either_limit_is_reached() {
        let few = CallHistory::new(Limits { calls: 2, bytes: usize::MAX });
        let mut weights = MemoryAccounting::default();
        weights.add(&call(0, "/a/B", 0));
        let light = CallHistory::new(Limits { calls: usize::MAX, bytes: 2 * weights.bytes() });
        for calls in [few, light] {
            for id in 1..=5 {
                calls.push(call(id, "/a/B", 0));
            }
            assert_eq!(ids(&calls.select(&Filter::default(), Selection::All)), [4, 5]);
            assert_eq!(calls.counts(), Counts { seen: 5, retained: 2 });
        }
    }

    #[test]
    fn who_follows_misses_none_and_sees_none_twice() {
        let calls = CallHistory::new(Limits::default());
        calls.push(call(1, "/a/B", 0));
        let (before, mut coming) = calls.follow(&Filter::default(), Selection::All);
        calls.push(call(2, "/a/B", 0));
        assert_eq!(ids(&before), [1]);
        assert_eq!(coming.try_recv().unwrap().call.id, 2);
        assert!(coming.try_recv().is_err());
    }

    #[test]
    fn numbers_go_on_a_thousand_later() {
        for (last, next) in [(1, 2001), (999, 2001), (1000, 2001), (1001, 3001), (1999, 3001)] {
            assert_eq!(next_number(last), next, "{last}");
        }
    }

    #[test]
    fn what_is_amended_takes_the_place_of_what_was_there() {
        let calls = CallHistory::new(Limits::default());
        for id in 1..=3 {
            calls.push(call(id, "/a/B", 0));
        }
        let before = calls.lock().weights.bytes();
        calls.push(CallRecord { is_amended: true, ..call(2, "/a/B", 7) });
        assert_eq!(ids(&calls.select(&Filter::default(), Selection::All)), [1, 2, 3]);
        assert_eq!(calls.get(2).unwrap().call.duration, Duration::from_millis(7));
        assert_eq!(calls.lock().weights.bytes(), before);
        assert_eq!(calls.counts().seen, 3);
        assert!(calls.get(4).is_none());
    }
}
