//! The most recent calls, within limits, and a broadcast of new calls.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use super::filter::{Filter, Selection};
use super::journal;
use super::mem_size::MemoryAccounting;
use crate::cri::MethodName;
use crate::execsync::CallRecord;

/// Number of calls by which a slow follower may lag behind.
const FOLLOW_BUFFER: usize = 1024;

/// The most recent calls. Reading is cheap: a reader takes references.
#[derive(Debug)]
pub struct CallHistory {
    ring: Mutex<CallRing>,
    follow: broadcast::Sender<Arc<CallRecord>>,
    limits: Limits,
}

/// Limits of the history. The oldest calls are removed when either limit is exceeded.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of calls.
    pub calls: usize,
    /// Approximate maximum number of bytes of memory.
    pub bytes: usize,
}

/// Numbers of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of calls since the start.
    pub seen: u64,
    /// Number of calls in the history, including those that were loaded from disk.
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
    /// Creates an empty history.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { ring: Mutex::default(), follow: broadcast::Sender::new(FOLLOW_BUFFER), limits }
    }

    /// Loads the calls that an earlier probeshim recorded on disk, each in its last version. With
    /// `redact`, commands are reduced to their programs.
    ///
    /// Returns the id of the first new call. It is the next one, unless another probeshim still
    /// records calls.
    pub fn load(&self, dir: &Path, redact: bool) -> u64 {
        let (mut ring, mut last) = (self.lock(), None);
        let mut known = HashSet::new();
        journal::read_last(dir, |record| {
            let record = Arc::new(if redact { record.redacted() } else { record });
            let id = record.call.id;
            last = last.max(Some(id));
            if known.insert(id) { ring.keep(record, self.limits) } else { ring.replace(&record) }
        });
        journal::first_id(dir, last)
    }

    /// Adds a call, and sends it to the followers. An amended record replaces the earlier record of
    /// its call, and is not sent.
    pub fn push(&self, record: CallRecord) -> Arc<CallRecord> {
        let record = Arc::new(record);
        let mut ring = self.lock();
        if record.is_amended {
            ring.replace(&record);
            return record;
        }
        ring.total += 1;
        ring.keep(record.clone(), self.limits);
        // Sent under the lock, so that a new follower misses no call and sees no call twice. Fails
        // if there is no follower.
        let _ = self.follow.send(record.clone());
        record
    }

    /// Returns the call with this number, if it is in the history.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Arc<CallRecord>> {
        self.lock().calls.iter().rev().find(|record| record.call.id == id).cloned()
    }

    /// Returns the oldest call in the history.
    #[must_use]
    pub fn oldest(&self) -> Option<Arc<CallRecord>> {
        self.lock().calls.front().cloned()
    }

    /// Returns the ids of all calls in the history.
    #[must_use]
    pub fn ids(&self) -> HashSet<u64> {
        self.lock().calls.iter().map(|record| record.call.id).collect()
    }

    /// Returns the selected calls that match a filter.
    #[must_use]
    pub fn select(&self, filter: &Filter, selection: Selection) -> Vec<Arc<CallRecord>> {
        selection.select(self.lock().matching(filter))
    }

    /// Returns the selected calls that match a filter, and a receiver of all later calls,
    /// unfiltered.
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

    /// Returns whether all followers have received all calls.
    #[must_use]
    pub fn followers_caught_up(&self) -> bool {
        self.follow.is_empty()
    }

    /// Returns whether a call to this method is in the history.
    #[must_use]
    pub fn has(&self, method: &MethodName) -> bool {
        self.lock().calls.iter().any(|record| record.call.method == *method)
    }

    /// Returns the paths of the methods outside the CRI to which calls are in the history.
    #[must_use]
    pub fn other_methods(&self) -> BTreeSet<Box<str>> {
        let path = |record: &Arc<CallRecord>| match &record.call.method {
            MethodName::Known(_) => None,
            MethodName::Unknown(path) => Some(path.clone()),
        };
        self.lock().calls.iter().filter_map(path).collect()
    }

    /// Returns the numbers of calls.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let ring = self.lock();
        Counts { seen: ring.total, retained: ring.calls.len() }
    }

    fn lock(&self) -> MutexGuard<'_, CallRing> {
        // A panic under the lock leaves a history that can still be read.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallRing {
    /// Inserts a call after those that ended before it. Calls are not analyzed in the order of
    /// their ends.
    fn insert(&mut self, record: Arc<CallRecord>) {
        // Calls of an earlier probeshim ended before all calls of this one.
        let later = self.calls.iter().rev().take_while(|known| known.ended > record.ended).count();
        self.calls.insert(self.calls.len() - later, record);
    }

    /// Inserts a call, and removes the oldest calls beyond the limits.
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
    fn calls_are_selected_by_filter_and_ordered_by_end_or_duration() {
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
    fn the_oldest_calls_are_dropped_at_the_limit_of_number_or_bytes() {
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
    fn a_follower_of_calls_receives_each_call_exactly_once() {
        let calls = CallHistory::new(Limits::default());
        calls.push(call(1, "/a/B", 0));
        let (before, mut coming) = calls.follow(&Filter::default(), Selection::All);
        calls.push(call(2, "/a/B", 0));
        assert_eq!(ids(&before), [1]);
        assert_eq!(coming.try_recv().unwrap().call.id, 2);
        assert!(coming.try_recv().is_err());
    }

    #[test]
    fn an_amended_call_record_replaces_the_original() {
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
        assert_eq!(calls.ids(), HashSet::from([1, 2, 3]));
    }
}
