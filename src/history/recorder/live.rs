//! The last results, for clients that follow them. They are kept only while a client asks for them.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::execsync::CallRecord;
use crate::history::timeline::{Minute, ProbeSeries};
use crate::prober::ProbeAttempt;

/// Maximum number of results that are kept.
const MAX_RESULTS: usize = 4_096;

/// Time for which results are kept after a client has requested them.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveResult {
    /// Number of the result.
    pub number: u64,
    /// The probe.
    pub series: ProbeSeries,
    /// A row with only this attempt.
    pub row: Minute,
    /// Time at which the attempt ended.
    pub ended: SystemTime,
    /// Id of the ExecSync; `None` for other handlers.
    pub call: Option<u64>,
}

/// Results since an earlier request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveResults {
    /// The results, the oldest first.
    pub results: Vec<LiveResult>,
    /// Number to be passed to the next request.
    pub next: u64,
    /// Whether results since the earlier request are no longer kept.
    pub has_missed: bool,
}

/// The last results. Each has a number, and the numbers increase by one.
#[derive(Debug, Default)]
pub(super) struct LiveRing {
    kept: VecDeque<LiveResult>,
    /// Number of the next result.
    next: u64,
    /// Time of the last request.
    requested: Option<Instant>,
}

impl LiveRing {
    /// Adds a result, if a client asks for results.
    pub(super) fn push(&mut self, now: Instant, result: impl FnOnce() -> Option<LiveResult>) {
        if self.requested.is_none_or(|requested| now.duration_since(requested) > IDLE_TIME) {
            // The number of a result that is not kept makes a late request miss it.
            self.kept.clear();
            self.next += 1;
            return;
        }
        let Some(result) = result() else { return };
        self.kept.push_back(LiveResult { number: self.next, ..result });
        self.next += 1;
        if self.kept.len() > MAX_RESULTS {
            self.kept.pop_front();
        }
    }

    /// Returns the results since an earlier request, or none for the first one.
    pub(super) fn after(&mut self, now: Instant, number: Option<u64>) -> LiveResults {
        self.requested = Some(now);
        let first = self.kept.front().map_or(self.next, |result| result.number);
        let wanted = number.unwrap_or(self.next);
        let skipped = usize::try_from(wanted.saturating_sub(first)).unwrap_or(usize::MAX);
        LiveResults {
            results: self.kept.iter().skip(skipped).cloned().collect(),
            next: self.next,
            // A number above the next one is of another run.
            has_missed: wanted < first || wanted > self.next,
        }
    }
}

impl LiveResult {
    /// Returns the result of an ExecSync of a probe.
    pub(super) fn of_call(record: &CallRecord) -> Option<Self> {
        let series = ProbeSeries::of_call(record)?;
        let ended = record.call.start + record.call.duration;
        let mut row = Minute { minute: Minute::number(ended), ..Minute::default() };
        row.add_call(record);
        Some(Self { number: 0, series, row, ended, call: Some(record.call.id) })
    }

    /// Returns the result without the arguments of its command.
    pub(crate) fn redacted(self) -> Self {
        Self { series: self.series.redacted(), ..self }
    }

    /// Returns the result of an attempt of the prober by HTTP, TCP or gRPC. An attempt by exec is
    /// an ExecSync.
    pub(super) fn of_attempt(attempt: &ProbeAttempt, redact: bool) -> Self {
        let ended = attempt.ended;
        let mut row = Minute { minute: Minute::number(ended), ..Minute::default() };
        row.add_attempt(attempt);
        Self { number: 0, series: ProbeSeries::of_attempt(attempt, redact), row, ended, call: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::timeline::Prober;

    fn result(call: u64) -> LiveResult {
        LiveResult {
            number: 0,
            series: series(),
            row: Minute::default(),
            ended: SystemTime::UNIX_EPOCH,
            call: Some(call),
        }
    }

    fn series() -> ProbeSeries {
        ProbeSeries {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            probe: "liveness".to_owned(),
            prober: Prober::Kubelet,
            handler: "true".to_owned(),
            command: vec!["true".to_owned()],
            timeout: None,
            period: None,
            failure_threshold: None,
        }
    }

    fn calls(results: &LiveResults) -> Vec<u64> {
        results.results.iter().filter_map(|result| result.call).collect()
    }

    #[test]
    fn a_client_gets_each_result_since_its_last_request_once() {
        let (mut ring, now) = (LiveRing::default(), Instant::now());
        let first = ring.after(now, None);
        (1..=3).for_each(|call| ring.push(now, || Some(result(call))));
        let second = ring.after(now, Some(first.next));
        assert_eq!((calls(&second), second.has_missed), (vec![1, 2, 3], false));
        ring.push(now, || Some(result(4)));
        assert_eq!(calls(&ring.after(now, Some(second.next))), [4]);
        assert_eq!(calls(&ring.after(now, Some(second.next + 1))), [0; 0]);
    }

    #[test]
    fn nothing_is_kept_unless_a_client_asks_and_a_late_client_learns_that_it_missed_results() {
        let (mut ring, start) = (LiveRing::default(), Instant::now());
        ring.push(start, || panic!("there was no request"));
        let first = ring.after(start, None);
        ring.push(start, || Some(result(1)));
        let late = start + 2 * IDLE_TIME;
        ring.push(late, || panic!("the last request is too old"));
        let second = ring.after(late, Some(first.next));
        assert!(second.has_missed && second.results.is_empty());
        assert!(!ring.after(late, Some(second.next)).has_missed);
    }

    #[test]
    fn a_client_that_falls_behind_learns_that_it_missed_results() {
        let (mut ring, now) = (LiveRing::default(), Instant::now());
        let first = ring.after(now, None);
        (0..=MAX_RESULTS as u64).for_each(|call| ring.push(now, || Some(result(call))));
        let second = ring.after(now, Some(first.next));
        assert!(second.has_missed);
        assert_eq!(second.results.len(), MAX_RESULTS);
        assert!(ring.after(now, Some(second.next + 1)).has_missed, "a number of another run");
    }
}
