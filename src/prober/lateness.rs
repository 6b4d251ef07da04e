//! Lateness of the prober's thread: an attempt may have failed only because the thread was late for
//! it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::handler::meter::AttemptMeter;

/// Divisor of an attempt's timeout that gives the lateness that is tolerated.
const TOLERATED_PART: u32 = 10;

/// Divisor of an attempt's timeout that gives the interval at which the lateness is measured.
const TICK_PART: u32 = 20;

/// Divisor of the lateness that gives the time that the busiest probe must have used to be named as
/// the culprit.
const NAMED_PART: u32 = 10;

/// Lateness of the thread during an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Delay {
    /// Longest time by which the thread was late, without the time that the attempt itself used;
    /// zero if it is tolerated.
    pub(super) lateness: Duration,
    /// Probe whose attempts used most of the thread's time just before.
    pub(super) culprit: Option<Arc<AttemptMeter>>,
    /// Time that the attempt itself used on the thread.
    pub(super) own_time: Duration,
}

impl Delay {
    /// Returns whether an attempt with this delay and timeout is discarded. `in_a_row` is the
    /// number of preceding attempts of the probe that were discarded.
    ///
    /// An attempt that itself used the thread's time counts. An attempt after `failure_threshold`
    /// discarded ones counts as well, so that a prober that is always late still detects a failed
    /// container.
    pub(super) fn discards(&self, timeout: Duration, in_a_row: u32, failure_threshold: u32) -> bool {
        let tolerated = timeout / TOLERATED_PART;
        self.lateness > tolerated && self.own_time <= tolerated && in_a_row < failure_threshold
    }
}

/// Runs an attempt, and measures the lateness of the thread.
pub(super) async fn timed<T>(
    meter: &Arc<AttemptMeter>,
    timeout: Duration,
    attempt: impl Future<Output = T>,
) -> (T, Delay) {
    let (tick, used_before) = (timeout / TICK_PART, meter.used());
    let (mut attempt, mut timer) = (pin!(attempt), pin!(sleep(tick)));
    let (mut delay, mut used) = (Delay::default(), used_before);
    let result = poll_fn(|cx| {
        let now = Instant::now();
        if now >= timer.deadline() {
            let own_time = meter.used().saturating_sub(used);
            let lateness = (now - timer.deadline()).saturating_sub(own_time);
            if lateness > delay.lateness.max(timeout / TOLERATED_PART) {
                let busiest = meter.busiest(now).filter(|(_, time)| *time >= lateness / NAMED_PART);
                // The probe that makes other probes late is not late itself.
                if !busiest.as_ref().is_some_and(|(busiest, _)| Arc::ptr_eq(busiest, meter)) {
                    (delay.lateness, delay.culprit) = (lateness, busiest.map(|(busiest, _)| busiest));
                }
            }
            timer.as_mut().reset(now + tick);
            used = meter.used();
        }
        let polled = meter.run(|| attempt.as_mut().poll(cx));
        if polled.is_pending() && timer.as_mut().poll(cx).is_ready() {
            // The poll took longer than a tick, so the next tick is already over.
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await;
    delay.own_time = meter.used().saturating_sub(used_before);
    (result, delay)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;
    use crate::handler::meter::ThreadUse;
    use crate::handler::meter::tests::series;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns the meters of the probes of two pods, and the record of their time.
    fn meters() -> ([Arc<AttemptMeter>; 2], Arc<ThreadUse>) {
        let thread = Arc::new(ThreadUse::default());
        (["a", "b"].map(|pod| AttemptMeter::new(series(pod), &thread)), thread)
    }

    /// Runs an attempt of 200 ms, and `taken` during it. Returns the delay of the attempt.
    async fn during(meter: &Arc<AttemptMeter>, taken: impl AsyncFnOnce()) -> Delay {
        let timed = {
            let meter = meter.clone();
            tokio::spawn(async move { timed(&meter, TIMEOUT, sleep(milliseconds(200))).await.1 })
        };
        sleep(milliseconds(20)).await;
        taken().await;
        timed.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_attempt_measures_its_lateness_and_the_pod_that_caused_it() {
        let ([a, b], _thread) = meters();
        let delay = during(&a, async || {}).await;
        assert_eq!((delay.lateness, delay.own_time), (Duration::ZERO, Duration::ZERO));
        let delay = during(&a, async || {
            b.add(milliseconds(300), Instant::now());
            advance(milliseconds(300)).await;
        })
        .await;
        assert!(delay.lateness >= milliseconds(200) && delay.discards(TIMEOUT, 0, 1), "{delay:?}");
        assert!(Arc::ptr_eq(&delay.culprit.unwrap(), &b));
        let delay = during(&a, async || advance(milliseconds(120)).await).await;
        assert!(!delay.discards(TIMEOUT, 0, 1), "it is late by less than is tolerated: {delay:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_pod_is_blamed_for_lateness_of_a_slow_machine() {
        let ([a, b], _thread) = meters();
        b.add(milliseconds(1), Instant::now());
        let delay = during(&a, async || advance(milliseconds(300)).await).await;
        assert!(delay.discards(TIMEOUT, 0, 1) && delay.culprit.is_none(), "{delay:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_attempt_is_not_late_because_of_its_own_time() {
        let ([a, b], _thread) = meters();
        let delay = during(&a, async || {
            a.add(milliseconds(300), Instant::now());
            advance(milliseconds(300)).await;
        })
        .await;
        assert_eq!((delay.lateness, delay.own_time), (Duration::ZERO, milliseconds(300)));
        // If other probes use as much time, the attempt is late because of them, but it still
        // counts.
        let delay = during(&a, async || {
            a.add(milliseconds(300), Instant::now());
            b.add(milliseconds(900), Instant::now());
            advance(milliseconds(1_200)).await;
        })
        .await;
        assert!(delay.lateness > milliseconds(500) && !delay.discards(TIMEOUT, 0, 1), "{delay:?}");
    }

    proptest! {
        #[test]
        fn only_attempts_delayed_by_others_are_discarded_and_not_forever(
            attempts in vec((0_u64..3_000, 0_u64..500), 0..100),
            timeout in 1_u32..5,
            threshold in 1_u32..5,
        ) {
            let timeout = Duration::from_secs(timeout.into());
            let mut in_a_row = 0;
            for (late, own) in attempts {
                let delay = Delay { lateness: milliseconds(late), own_time: milliseconds(own), culprit: None };
                let is_delayed = delay.lateness * 10 > timeout && delay.own_time * 10 <= timeout;
                let is_discarded = delay.discards(timeout, in_a_row, threshold);
                prop_assert_eq!(is_discarded, is_delayed && in_a_row < threshold);
                in_a_row = if is_discarded { in_a_row + 1 } else { 0 };
                prop_assert!(in_a_row <= threshold);
            }
        }
    }
}
