//! The calls that were seen last, within a bound, and those that come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::broadcast;

use crate::cri::MethodName;
use crate::relay::Peer;
use crate::tap::{Call, Container, Exec, Pod};

/// Calls that a slow follower may lag behind.
const LAG: usize = 1024;

/// What an allocation costs beside what is in it, about, in bytes.
const ALLOCATION: usize = 16;

/// The calls that were seen last. Cheap to read: a reader takes references.
#[derive(Debug)]
pub struct Calls {
    kept: Mutex<Kept>,
    follow: broadcast::Sender<Arc<Call>>,
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

/// Which calls to show.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those to this method.
    pub method: Option<MethodName>,
    /// Those that ended at this time or later.
    pub since: Option<SystemTime>,
}

/// How many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// All, as they ended.
    #[default]
    All,
    /// The last of them, as they ended.
    Last(usize),
    /// Those that took longest, the slowest first.
    Slowest(usize),
}

/// How many calls there were and are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Seen since the start.
    pub seen: u64,
    /// Of those, kept.
    pub kept: usize,
}

#[derive(Debug, Default)]
struct Kept {
    calls: VecDeque<Entry>,
    bytes: usize,
    seen: u64,
}

/// A call, and the memory that it is taken to hold.
#[derive(Debug)]
struct Entry {
    call: Arc<Call>,
    weight: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 10_000, bytes: 2 << 20 }
    }
}

impl Calls {
    /// An empty record.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { kept: Mutex::default(), follow: broadcast::Sender::new(LAG), limits }
    }

    /// Keeps a call, and shows it to those who follow.
    pub fn push(&self, call: Call) {
        let call = Arc::new(call);
        let mut kept = self.lock();
        kept.seen += 1;
        let weight = weight(&call) + kept.weight_of_peer(&call);
        kept.bytes += weight;
        kept.calls.push_back(Entry { call: call.clone(), weight });
        while kept.calls.len() > self.limits.calls || kept.bytes > self.limits.bytes {
            let Some(oldest) = kept.calls.pop_front() else { break };
            kept.bytes -= oldest.weight;
        }
        // Under the lock: a reader who begins to follow misses no call and sees none twice. Fails where nobody follows.
        let _ = self.follow.send(call);
    }

    /// The calls that a filter lets through.
    #[must_use]
    pub fn select(&self, filter: &Filter, selection: Selection) -> Vec<Arc<Call>> {
        selection.of(self.lock().matching(filter))
    }

    /// The same, and a receiver of all later calls, unfiltered.
    #[must_use]
    pub fn follow(
        &self,
        filter: &Filter,
        selection: Selection,
    ) -> (Vec<Arc<Call>>, broadcast::Receiver<Arc<Call>>) {
        let kept = self.lock();
        let (matching, coming) = (kept.matching(filter), self.follow.subscribe());
        drop(kept);
        (selection.of(matching), coming)
    }

    /// Whether everyone who follows has taken everything.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.follow.is_empty()
    }

    /// Whether a call to this method is kept.
    #[must_use]
    pub fn has(&self, method: &MethodName) -> bool {
        self.lock().calls.iter().any(|entry| entry.call.method == *method)
    }

    /// How many calls there were and are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let kept = self.lock();
        Counts { seen: kept.seen, kept: kept.calls.len() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // What panicked while it held the lock left a record that is whole enough to read.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// What the peer of a new call takes: nothing where the call before it came from the same connection, with which it shares it.
    fn weight_of_peer(&self, call: &Call) -> usize {
        let Some(peer) = &call.peer else { return 0 };
        let last = self.calls.back().and_then(|entry| entry.call.peer.as_ref());
        if last.is_some_and(|last| Arc::ptr_eq(last, peer)) {
            return 0;
        }
        size_of::<Peer>() + ALLOCATION + peer.program.as_deref().map_or(0, block)
    }

    fn matching(&self, filter: &Filter) -> Vec<Arc<Call>> {
        let calls = self.calls.iter().map(|entry| &entry.call);
        calls.filter(|call| filter.lets_through(call)).cloned().collect()
    }
}

impl Filter {
    /// Whether a call is one of those to show.
    #[must_use]
    pub fn lets_through(&self, call: &Call) -> bool {
        self.method.as_ref().is_none_or(|method| call.method == *method)
            && self.since.is_none_or(|since| call.start + call.duration >= since)
    }
}

impl Selection {
    fn of(self, mut calls: Vec<Arc<Call>>) -> Vec<Arc<Call>> {
        match self {
            Self::All => {}
            Self::Last(count) => drop(calls.drain(..calls.len().saturating_sub(count))),
            Self::Slowest(count) => {
                calls.sort_by_key(|call| std::cmp::Reverse(call.duration));
                calls.truncate(count);
            }
        }
        calls
    }
}

/// The memory that a call takes, about, in bytes.
fn weight(call: &Call) -> usize {
    let text = |text: &Option<String>| text.as_deref().map_or(0, block);
    let path = match &call.method {
        MethodName::Known(_) => 0,
        MethodName::Other(path) => block(path),
    };
    let pod = call.pod.as_ref().map_or(0, |pod| {
        let texts = [&pod.id, &pod.namespace, &pod.name, &pod.uid].map(text);
        size_of::<Pod>() + ALLOCATION + texts.iter().sum::<usize>()
    });
    let container = call.container.as_ref().map_or(0, |container| {
        size_of::<Container>() + ALLOCATION + text(&container.id) + text(&container.name)
    });
    let exec = call.exec.as_ref().map_or(0, |exec| {
        let words: usize = exec.command.iter().map(|word| size_of::<String>() + block(word)).sum();
        size_of::<Exec>() + 2 * ALLOCATION + words
    });
    size_of::<Call>() + 2 * ALLOCATION + path + pod + container + exec
}

/// A text on the heap.
fn block(text: &str) -> usize {
    text.len() + ALLOCATION
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn call(id: u64, path: &str, millis: u64) -> Call {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(id);
        Call::sample(id, path, start, Duration::from_millis(millis))
    }

    fn ids(calls: &[Arc<Call>]) -> Vec<u64> {
        calls.iter().map(|call| call.id).collect()
    }

    #[test]
    fn filters_and_orders() {
        let calls = Calls::new(Limits::default());
        for (id, path, millis) in [(1, "/a/B", 5), (2, "/a/C", 3000), (3, "/a/B", 7), (4, "/a/B", 6)] {
            calls.push(call(id, path, millis));
        }
        let all = Filter::default();
        assert_eq!(ids(&calls.select(&all, Selection::All)), [1, 2, 3, 4]);
        assert_eq!(ids(&calls.select(&all, Selection::Last(2))), [3, 4]);
        assert_eq!(ids(&calls.select(&all, Selection::Slowest(3))), [2, 3, 4]);
        let to_b = Filter { method: Some(MethodName::of_path("/a/B")), since: None };
        assert_eq!(ids(&calls.select(&to_b, Selection::Slowest(2))), [3, 4]);
        let since = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(4500));
        let late = Filter { method: None, since };
        assert_eq!(ids(&calls.select(&late, Selection::All)), [2], "it began before and ended after");
        assert!(calls.has(&MethodName::of_path("/a/C")) && !calls.has(&MethodName::of_path("/a/D")));
    }

    #[test]
    fn the_oldest_go_when_either_limit_is_reached() {
        let few = Calls::new(Limits { calls: 2, bytes: usize::MAX });
        let light = Calls::new(Limits { calls: usize::MAX, bytes: 2 * weight(&call(0, "/a/B", 0)) });
        for calls in [few, light] {
            for id in 1..=5 {
                calls.push(call(id, "/a/B", 0));
            }
            assert_eq!(ids(&calls.select(&Filter::default(), Selection::All)), [4, 5]);
            assert_eq!(calls.counts(), Counts { seen: 5, kept: 2 });
        }
    }

    #[test]
    fn who_follows_misses_none_and_sees_none_twice() {
        let calls = Calls::new(Limits::default());
        calls.push(call(1, "/a/B", 0));
        let (before, mut coming) = calls.follow(&Filter::default(), Selection::All);
        calls.push(call(2, "/a/B", 0));
        assert_eq!(ids(&before), [1]);
        assert_eq!(coming.try_recv().unwrap().id, 2);
        assert!(coming.try_recv().is_err());
    }
}
