//! Work on large messages, away from the threads of the relay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, mpsc};
use std::thread;

use rustix::process::setpriority_process;
use tokio::sync::oneshot;

/// Niceness of the thread: the relay goes first where both want the same core.
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// The thread, which does one piece of work after the other: a flood of large messages delays only
/// calls with large messages. `None` if the system has no thread left.
static WORKER: LazyLock<Option<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, accepted) = mpsc::channel::<Job>();
    let work = move || {
        // On Linux, this is the niceness of one thread. Without the right, it stays as it is.
        let _ = setpriority_process(None, NICE);
        for job in accepted {
            // The caller learns of a panic by the missing result.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    };
    let started = thread::Builder::new().name("large-messages".to_owned()).spawn(work);
    started.ok().map(|_| jobs)
});

/// Does work on a thread that relays nothing, in turn with the work of other calls.
pub(super) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let Some(worker) = &*WORKER else { return work() };
    let (done, result) = oneshot::channel();
    let job = move || {
        // A caller that has ended wants no result.
        if !done.is_closed() {
            let _ = done.send(work());
        }
    };
    worker.send(Box::new(job)).expect("the thread never ends");
    result.await.expect("the work does not panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_on_a_thread_of_its_own_also_after_a_panic() {
        let name = || thread::current().name().map(str::to_owned);
        assert_eq!(offload(name).await.as_deref(), Some("large-messages"));
        let panicked = tokio::spawn(offload(|| panic!("a bug"))).await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(offload(name).await.as_deref(), Some("large-messages"));
    }
}
