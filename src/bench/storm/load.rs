//! Offers calls at a fixed rate.

use std::future::Future;
use std::panic;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tonic::{Response, Status};

use super::calls::{StormCall, StormCalls};
use crate::cri::v1::ExecSyncResponse;
use crate::cri::with_timeout;

/// An open-loop load: a call is offered at its time, whether or not earlier calls have ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct StormLoad {
    /// Calls per second.
    pub(super) rate: u32,
    /// Time for which calls are offered.
    pub(super) duration: Duration,
    /// Maximum number of calls in flight. A call that would exceed it is not sent.
    pub(super) concurrency: usize,
    /// Time after which a call is given up.
    pub(super) deadline: Duration,
}

impl StormLoad {
    /// Offers all calls, and returns when all have ended. `call` makes the call of a number from 0.
    pub(super) async fn offer<C>(self, mut call: impl FnMut(usize) -> C) -> StormCalls
    where
        C: Future<Output = Result<Response<ExecSyncResponse>, Status>> + Send + 'static,
    {
        let (mut calls, mut running, began) = (StormCalls::default(), JoinSet::new(), Instant::now());
        for (number, offset) in self.offsets().enumerate() {
            let due = began + offset;
            // Ended calls are recorded first, so that they no longer count as in flight.
            loop {
                tokio::select! {
                    biased;
                    Some(ended) = running.join_next() => calls.record(&joined(ended), self.deadline),
                    () = sleep_until(due) => break,
                }
            }
            if running.len() >= self.concurrency {
                calls.record_not_sent();
                continue;
            }
            let call = with_timeout(self.deadline, call(number));
            running.spawn(async move {
                let result = call.await.map(|response| response.exit_code);
                // The latency includes the time from the offer to the sending. Otherwise a runtime
                // that delays this process would seem to be faster than it is.
                StormCall { latency: due.elapsed(), result }
            });
        }
        while let Some(ended) = running.join_next().await {
            calls.record(&joined(ended), self.deadline);
        }
        calls
    }

    /// Returns the times of the offers, from the begin of the step.
    fn offsets(self) -> impl Iterator<Item = Duration> {
        let offset = move |number: u32| Duration::from_secs(1) * number / self.rate;
        (0..).map(offset).take_while(move |offset| *offset < self.duration)
    }
}

/// Returns the result of a task. A panic of the task continues in the caller.
fn joined(ended: Result<StormCall, JoinError>) -> StormCall {
    ended.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::sleep;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A runtime that answers each call after the same time.
    #[derive(Clone, Debug)]
    struct FixedLatencyRuntime {
        latency: Duration,
        began: Instant,
        /// Number of each call, and the time of its arrival since the begin.
        arrivals: Arc<Mutex<Vec<(usize, Duration)>>>,
    }

    impl FixedLatencyRuntime {
        fn new(latency: Duration) -> Self {
            Self { latency, began: Instant::now(), arrivals: Arc::default() }
        }

        /// Answers a call. Every tenth command fails.
        async fn exec_sync(self, number: usize) -> Result<Response<ExecSyncResponse>, Status> {
            self.arrivals.lock().unwrap().push((number, self.began.elapsed()));
            sleep(self.latency).await;
            let exit_code = i32::from(number % 10 == 9);
            Ok(Response::new(ExecSyncResponse { exit_code, ..ExecSyncResponse::default() }))
        }

        async fn offered(&self, load: StormLoad) -> StormCalls {
            load.offer(|number| self.clone().exec_sync(number)).await
        }
    }

    fn load(rate: u32, concurrency: usize) -> StormLoad {
        StormLoad { rate, duration: Duration::from_secs(2), concurrency, deadline: Duration::from_secs(60) }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_storm_are_offered_at_their_times_while_earlier_calls_run() {
        let runtime = FixedLatencyRuntime::new(700 * MS);
        let calls = runtime.offered(load(10, 200)).await;
        let expected: Vec<_> = (0..20_u32).map(|number| (number as usize, 100 * MS * number)).collect();
        assert_eq!(*runtime.arrivals.lock().unwrap(), expected);
        assert_eq!(calls.latencies, [700 * MS; 20]);
        assert_eq!((calls.nonzero_exits, calls.failures.len()), (2, 0));
        assert_eq!(runtime.began.elapsed(), 2600 * MS, "the step lasts until its last call has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_a_storm_is_not_sent_while_the_maximum_number_is_in_flight() {
        let runtime = FixedLatencyRuntime::new(250 * MS);
        let calls = runtime.offered(load(10, 2)).await;
        // Calls 0 and 1 run until 250 ms and 350 ms, so that call 2 is not sent at 200 ms.
        let numbers: Vec<usize> =
            runtime.arrivals.lock().unwrap().iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19]);
        assert_eq!(calls.latencies, [250 * MS; 14]);
        assert_eq!(calls.failures, [("not-sent".to_owned(), 6)].into());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_a_storm_is_given_up_at_its_deadline() {
        let runtime = FixedLatencyRuntime::new(Duration::MAX);
        let calls = runtime.offered(load(5, 200)).await;
        assert_eq!(calls.failures, [("timeout".to_owned(), 10)].into());
        assert_eq!(calls.latencies.len(), 0);
        assert_eq!(runtime.began.elapsed(), 61_800 * MS);
    }

    #[test]
    fn a_storm_offers_as_many_calls_as_its_rate_and_duration_result_in() {
        let count = |rate, duration| StormLoad { duration, ..load(rate, 1) }.offsets().count();
        assert_eq!(count(1, Duration::from_secs(10)), 10);
        assert_eq!(count(3, Duration::from_secs(10)), 30);
        assert_eq!(count(200, Duration::from_secs(10)), 2000);
        assert_eq!(count(1, 1500 * MS), 2);
    }
}
