//! Limits of the ExecSyncs that run at the same time, on the node and in each container.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;

use super::exec_queue::ExecQueue;
use super::metrics::{ExecMetrics, Waiting};
use crate::relay::MarkSet;

/// Name of the policy in the marks of calls.
const LIMIT: &str = "limit";

/// Limits of concurrent ExecSyncs. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecLimits {
    /// Maximum number of ExecSyncs on the node.
    pub node: Option<NonZeroU32>,
    /// Maximum number of ExecSyncs in a container.
    pub container: Option<NonZeroU32>,
    /// Treatment of a call that exceeds a limit.
    pub overflow: Overflow,
}

/// Treatment of a call that exceeds a limit. `--help` prints the comments of the variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub enum Overflow {
    /// The call waits for its turn, until its client gives up
    #[default]
    Wait,
    /// The call fails with RESOURCE_EXHAUSTED, which the kubelet does not count as a failure of a
    /// probe. A call without a timeout, such as a hook, waits nevertheless
    Fail,
}

/// Permits as many ExecSyncs at the same time as the limits allow. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct ExecLimiter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there is a limit. Without one, calls take no lock.
    is_limited: AtomicBool,
    state: Mutex<LimiterState>,
    metrics: ExecMetrics,
}

#[derive(Debug, Default)]
struct LimiterState {
    limits: ExecLimits,
    queue: ExecQueue<Waiter>,
    next_id: u64,
}

/// A call that waits for its permit.
#[derive(Debug)]
struct Waiter {
    id: u64,
    admitted: oneshot::Sender<()>,
}

/// The permission of a call to run. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct ExecPermit {
    limiter: ExecLimiter,
    container: Arc<str>,
}

/// The place of a call in the queue, which it leaves when it is dropped.
#[derive(Debug)]
struct QueuePlace<'a> {
    limiter: &'a ExecLimiter,
    container: &'a Arc<str>,
    id: u64,
    /// Whether the permit was handed on.
    is_taken: bool,
    since: Instant,
    _waiting: Waiting,
}

impl ExecLimits {
    /// Returns whether there is a limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.node.is_some() || self.container.is_some()
    }
}

impl ExecLimiter {
    pub(super) fn new(metrics: ExecMetrics) -> Self {
        Self(Arc::new(Shared { metrics, ..Shared::default() }))
    }

    /// Changes the limits. Calls that wait are admitted if there is room now.
    pub(super) fn set(&self, limits: ExecLimits) {
        let mut state = self.lock();
        state.limits = limits;
        state.queue.set_limits(limits.node, limits.container);
        self.0.is_limited.store(limits.is_limited(), Ordering::Relaxed);
        Self::admit(&mut state);
    }

    /// Returns the limits.
    pub(super) fn limits(&self) -> ExecLimits {
        self.lock().limits
    }

    /// Returns whether there is a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.0.is_limited.load(Ordering::Relaxed)
    }

    /// Returns a permit for a call in a container, and waits for it if necessary. `marks` receives
    /// the policy if the call has to wait or is refused. A call that must not be refused waits
    /// however the limits are configured.
    pub(super) async fn acquire(
        &self,
        container: &Arc<str>,
        may_be_refused: bool,
        marks: &MarkSet,
    ) -> Result<ExecPermit, Status> {
        let (place, admitted) = {
            let mut state = self.lock();
            if state.queue.try_admit(container) {
                return Ok(self.permit(container));
            }
            marks.add_policy(LIMIT);
            if state.limits.overflow == Overflow::Fail && may_be_refused {
                self.0.metrics.rejected.inc();
                return Err(Status::resource_exhausted(refusal(&state.limits)));
            }
            let (sender, admitted) = oneshot::channel();
            state.next_id += 1;
            let id = state.next_id;
            state.queue.push(container, Waiter { id, admitted: sender });
            let waiting = self.0.metrics.wait_for_limit();
            let since = Instant::now();
            (QueuePlace { limiter: self, container, id, is_taken: false, since, _waiting: waiting }, admitted)
        };
        // A waiter is removed from the queue by its place only.
        admitted.await.map_err(|_| Status::internal("probeshim lost the place of the call in the queue"))?;
        Ok(place.into_permit())
    }

    fn permit(&self, container: &Arc<str>) -> ExecPermit {
        ExecPermit { limiter: self.clone(), container: container.clone() }
    }

    /// Ends the permit of a call, and admits the next ones.
    fn release(&self, container: &Arc<str>) {
        let mut state = self.lock();
        state.queue.release(container);
        Self::admit(&mut state);
    }

    /// Admits waiting calls while there is room.
    fn admit(state: &mut LimiterState) {
        while let Some(waiter) = state.queue.admit_next() {
            // A call that gives up at this moment returns its permit.
            let _ = waiter.admitted.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuePlace<'_> {
    fn into_permit(mut self) -> ExecPermit {
        self.is_taken = true;
        self.limiter.permit(self.container)
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.limiter.0.metrics.queue_duration.observe(self.since.elapsed().as_secs_f64());
        if self.is_taken {
            return;
        }
        let mut state = self.limiter.lock();
        if !state.queue.remove(self.container, |waiter| waiter.id == self.id) {
            // The call was admitted when it gave up.
            drop(state);
            self.limiter.release(self.container);
        }
    }
}

impl Drop for ExecPermit {
    fn drop(&mut self) {
        self.limiter.release(&self.container);
    }
}

/// Returns the status message of a call that is refused.
fn refusal(limits: &ExecLimits) -> String {
    let limit = |limit: Option<NonZeroU32>, place| limit.map(|limit| format!("{limit} {place}"));
    let limits = [limit(limits.node, "on the node"), limit(limits.container, "in the container")];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    format!("probeshim runs no more ExecSyncs at the same time: the limits are {}", limits.join(" and "))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::time::{sleep, timeout};

    use super::*;

    fn limiter(node: u32, container: u32, overflow: Overflow) -> ExecLimiter {
        let limiter = ExecLimiter::default();
        limiter.set(ExecLimits {
            node: NonZeroU32::new(node),
            container: NonZeroU32::new(container),
            overflow,
        });
        limiter
    }

    #[tokio::test]
    async fn a_call_beyond_the_limit_is_refused_or_waits_for_its_turn() {
        let limiter = limiter(2, 1, Overflow::Fail);
        let (a, b, marks) = (Arc::from("a"), Arc::from("b"), MarkSet::default());
        let first = limiter.acquire(&a, true, &marks).await.unwrap();
        assert!(marks.get().is_empty());
        let status = limiter.acquire(&a, true, &marks).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert!(status.message().ends_with("are 2 on the node and 1 in the container"), "{status}");
        let hook = limiter.acquire(&a, false, &MarkSet::default()).now_or_never();
        assert!(hook.is_none(), "a hook waits");
        assert_eq!(marks.get().policies, [LIMIT.into()]);
        limiter.set(ExecLimits { overflow: Overflow::Wait, ..limiter.limits() });
        let second = limiter.acquire(&b, true, &MarkSet::default()).await.unwrap();
        let waiting = MarkSet::default();
        {
            let mut third = pin!(limiter.acquire(&a, true, &waiting));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(third.as_mut().poll(&mut cx).is_pending());
            assert_eq!(limiter.0.metrics.waiting(), [1, 0]);
            drop(second);
            assert!(third.as_mut().poll(&mut cx).is_pending(), "the container is full");
            drop(first);
            drop(third.await.unwrap());
        }
        assert_eq!((waiting.get().policies.len(), limiter.0.metrics.waiting()), (1, [0, 0]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_gives_up_leaves_the_queue_and_returns_its_permit() {
        let limiter = limiter(1, 0, Overflow::Wait);
        let (a, second) = (Arc::from("a"), Duration::from_secs(1));
        let first = limiter.acquire(&a, true, &MarkSet::default()).await.unwrap();
        let marks = MarkSet::default();
        timeout(second, limiter.acquire(&a, true, &marks)).await.unwrap_err();
        assert_eq!((marks.get().policies.len(), limiter.0.metrics.waiting()), (1, [0, 0]));
        // A call that gives up between its admission and its next poll.
        let marks = MarkSet::default();
        {
            let mut admitted = pin!(limiter.acquire(&a, true, &marks));
            assert!(admitted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(first);
        }
        let last = timeout(second, limiter.acquire(&a, true, &MarkSet::default())).await;
        drop(last.expect("the permit was returned"));
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_is_exceeded_while_calls_of_many_containers_wait() {
        let limiter = limiter(4, 2, Overflow::Wait);
        let running = Arc::new(Mutex::new(std::collections::HashMap::<usize, usize>::new()));
        let calls = (0..60_usize).map(|call| {
            let (limiter, running) = (limiter.clone(), running.clone());
            tokio::spawn(async move {
                let container = call % 5;
                let name = container.to_string().into();
                let _permit = limiter.acquire(&name, true, &MarkSet::default()).await.unwrap();
                *running.lock().unwrap().entry(container).or_default() += 1;
                let (here, all) = {
                    let running = running.lock().unwrap();
                    (running[&container], running.values().sum::<usize>())
                };
                assert!(here <= 2 && all <= 4, "{here} in the container, {all} on the node");
                sleep(Duration::from_millis(7 + call as u64 % 11)).await;
                *running.lock().unwrap().entry(container).or_default() -= 1;
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        limiter.set(ExecLimits::default());
        assert!(!limiter.is_limited());
    }
}
