//! Measures the time that each probe's attempts take from the prober's thread.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

/// Minimum time for which the use of the thread is remembered. The maximum is twice as long.
const WINDOW: Duration = Duration::from_secs(1);

/// A probe, as the label of its metrics.
#[derive(Clone, Debug)]
pub(crate) struct Series(pub(crate) Arc<Probed>);

/// Identity of a probe: its type, container and pod.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Probed {
    pub(crate) probe_type: &'static str,
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) namespace: String,
    pub(crate) pod_uid: String,
}

/// Counts the time that the attempts of one probe take from the prober's thread.
#[derive(Debug)]
pub(crate) struct AttemptMeter {
    /// Probe that is measured.
    pub(crate) series: Series,
    nanoseconds: AtomicU64,
    /// Whether the probe has ended.
    is_over: AtomicBool,
    thread: Weak<ThreadUse>,
}

/// Time that probes have recently taken from the prober's thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadUse(Mutex<UsageWindows>);

/// Time taken by each probe in the current window and in the previous one.
#[derive(Debug, Default)]
struct UsageWindows {
    since: Option<Instant>,
    current: UsageByProbe,
    previous: UsageByProbe,
    /// Probe that has taken the most time in both windows, with that time. It is updated with each
    /// addition, because thousands of late attempts may request it at the same time.
    busiest: Option<(Arc<AttemptMeter>, Duration)>,
}

/// Time taken by probes, by the address of the probe's meter.
type UsageByProbe = HashMap<usize, (Arc<AttemptMeter>, Duration)>;

impl AttemptMeter {
    pub(crate) fn new(series: Series, thread: &Arc<ThreadUse>) -> Arc<Self> {
        Arc::new(Self {
            series,
            nanoseconds: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            thread: Arc::downgrade(thread),
        })
    }

    /// Returns the time used so far.
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// Runs a part of an attempt, and adds the time that it takes.
    pub(crate) fn run<T>(self: &Arc<Self>, part: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = part();
        let end = Instant::now();
        self.add(end - begin, end);
        result
    }

    /// Adds time that an attempt took until `now`.
    pub(crate) fn add(self: &Arc<Self>, time: Duration, now: Instant) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if let Some(thread) = self.thread.upgrade() {
            thread.add(self, time, now);
        }
    }

    /// Returns the probe whose attempts have recently taken the most time, with that time.
    pub(crate) fn busiest(&self, now: Instant) -> Option<(Arc<Self>, Duration)> {
        self.thread.upgrade()?.busiest(now)
    }

    /// Marks the probe as ended.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns whether the probe has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl ThreadUse {
    fn add(&self, meter: &Arc<AttemptMeter>, time: Duration, now: Instant) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.turn(now);
        windows.add(meter, time);
    }

    fn busiest(&self, now: Instant) -> Option<(Arc<AttemptMeter>, Duration)> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.turn(now);
        windows.busiest.clone()
    }
}

impl UsageWindows {
    fn add(&mut self, meter: &Arc<AttemptMeter>, time: Duration) {
        let key = Arc::as_ptr(meter).addr();
        let (_, current) = self.current.entry(key).or_insert_with(|| (meter.clone(), Duration::ZERO));
        *current += time;
        let total = *current + self.previous.get(&key).map_or(Duration::ZERO, |(_, time)| *time);
        if self.busiest.as_ref().is_none_or(|(_, most)| total >= *most) {
            self.busiest = Some((meter.clone(), total));
        }
    }

    /// Starts another window if the current one is over.
    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(*self.since.get_or_insert(now));
        if age < WINDOW {
            return;
        }
        self.previous = std::mem::take(&mut self.current);
        if age >= 2 * WINDOW {
            self.previous.clear();
        }
        self.busiest = self.previous.values().max_by_key(|(_, time)| *time).cloned();
        self.since = Some(now);
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probed { probe_type, container, pod, namespace, .. } = &*self.0;
        write!(f, "{probe_type} probe of container {container} of pod {namespace}/{pod}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::time::advance;

    use super::*;

    /// Returns the labels of a liveness probe of a pod with one container.
    pub(crate) fn series(pod: &str) -> Series {
        Series(Arc::new(Probed {
            probe_type: "Liveness",
            container: "main".to_owned(),
            pod: pod.to_owned(),
            namespace: "it".to_owned(),
            pod_uid: pod.to_owned(),
        }))
    }

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn the_busiest_probe_is_determined_from_the_last_two_windows() {
        let thread = Arc::new(ThreadUse::default());
        let [a, b] = ["a", "b"].map(|pod| AttemptMeter::new(series(pod), &thread));
        let busiest = || a.busiest(Instant::now()).map(|(meter, time)| (meter.series.to_string(), time));
        let is = |meter: &Arc<AttemptMeter>, milliseconds: u32| {
            Some((meter.series.to_string(), milliseconds * MILLISECOND))
        };
        assert_eq!(busiest(), None);
        a.add(30 * MILLISECOND, Instant::now());
        b.add(20 * MILLISECOND, Instant::now());
        assert_eq!(busiest(), is(&a, 30));
        advance(WINDOW).await;
        b.add(20 * MILLISECOND, Instant::now());
        assert_eq!(busiest(), is(&b, 40), "the window before counts");
        advance(WINDOW).await;
        assert_eq!(busiest(), is(&b, 20), "one before that does not");
        advance(3 * WINDOW).await;
        assert_eq!((busiest(), a.used()), (None, 30 * MILLISECOND));
    }
}
