//! Work on large messages, away from the threads of the relay.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use crate::niceness::give_way;

/// Least niceness of the thread: the relay goes first where both want the same core.
const NICE: i32 = 5;

type Job = Box<dyn FnOnce() + Send>;

/// The work that waits.
static QUEUE: LazyLock<Queue> = LazyLock::new(Queue::default);

/// Whether the thread runs. It is started by the first work.
static HAS_WORKER: LazyLock<bool> = LazyLock::new(|| {
    let started = thread::Builder::new().name("large-messages".to_owned()).spawn(|| {
        give_way(NICE);
        loop {
            // The caller learns of a panic by the missing result.
            let _ = catch_unwind(AssertUnwindSafe(QUEUE.next()));
        }
    });
    started.is_ok()
});

/// Queues by key. The keys have turns, so that a flood of one delays others by one piece of work.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    added: Condvar,
}

#[derive(Default)]
struct Waiting {
    by_key: HashMap<String, VecDeque<Job>>,
    /// The keys with work, in the order of their turns.
    turns: VecDeque<String>,
}

impl Queue {
    fn add(&self, key: &str, job: Job) {
        self.waiting().add(key, job);
        self.added.notify_one();
    }

    /// Waits for work, and takes the next one.
    fn next(&self) -> Job {
        let mut waiting = self.waiting();
        loop {
            if let Some(job) = waiting.take() {
                return job;
            }
            waiting = self.added.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // The queues stay valid whatever panicked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, key: &str, job: Job) {
        let queue = self.by_key.entry(key.to_owned()).or_default();
        if queue.is_empty() {
            self.turns.push_back(key.to_owned());
        }
        queue.push_back(job);
    }

    fn take(&mut self) -> Option<Job> {
        let key = self.turns.pop_front()?;
        let queue = self.by_key.get_mut(&key)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            self.by_key.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        job
    }
}

/// Does work on a thread that relays nothing. Work with the same key is done in its order, in turn
/// with that of other keys.
pub(super) async fn offload<T: Send + 'static>(
    key: Option<&str>,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if !*HAS_WORKER {
        return work();
    }
    let (done, result) = oneshot::channel();
    let job = move || {
        // A caller that has ended wants no result.
        if !done.is_closed() {
            let _ = done.send(work());
        }
    };
    QUEUE.add(key.unwrap_or_default(), Box::new(job));
    result.await.expect("the work does not panic")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn work_is_done_on_a_thread_of_its_own_also_after_a_panic() {
        let name = || thread::current().name().map(str::to_owned);
        assert_eq!(offload(None, name).await.as_deref(), Some("large-messages"));
        let panicked = tokio::spawn(offload(None, || panic!("a bug"))).await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(offload(Some("c0"), name).await.as_deref(), Some("large-messages"));
    }

    #[test]
    fn work_of_different_keys_takes_turns() {
        let (mut waiting, done) = (Waiting::default(), Arc::<Mutex<Vec<&str>>>::default());
        for (key, name) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")] {
            let done = done.clone();
            waiting.add(key, Box::new(move || done.lock().unwrap().push(name)));
        }
        while let Some(job) = waiting.take() {
            job();
        }
        assert_eq!(*done.lock().unwrap(), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert!(waiting.by_key.is_empty() && waiting.turns.is_empty());
    }
}
