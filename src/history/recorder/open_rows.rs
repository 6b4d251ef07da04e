//! Rows of minutes that have not ended, and the calls of them that are kept.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use crate::execsync::{Assessment, CallRecord, ExecVerdict, ProbeMatch};
use crate::history::timeline::{Minute, ProbeSeries, SeriesMinute};
use crate::prober::ProbeAttempt;

/// Maximum number of bytes of the series with open rows. There is less room for ExecSyncs that
/// belong to no probe, so that clients that execute a different command in each call leave room for
/// probes.
const MAX_PROBE_BYTES: usize = 8 << 20;
const MAX_OTHER_BYTES: usize = 1 << 20;

/// Maximum number of calls that are kept each time, so that a failing node leaves room for results.
const MAX_KEPT: usize = 16;

/// Maximum number of calls among which the kept ones are selected.
const MAX_NOTABLE: usize = 512;

/// Number of kept calls that can still be amended.
const MAX_AMENDABLE: usize = 256;

/// Number of minutes for which it is remembered that a call of a series was kept.
const REMEMBERED_MINUTES: u64 = 60;

/// Maximum number of probes of containers of which a success is remembered.
const MAX_SUCCEEDED: usize = 20_000;

/// Rows of minutes that have not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRows {
    rows: HashMap<Arc<ProbeSeries>, BTreeMap<u64, OpenRow>>,
    /// Number of notable calls in the rows.
    notable: usize,
    /// Number of bytes of the series of probes, and of other ExecSyncs.
    probe_bytes: usize,
    other_bytes: usize,
    /// Ids of the calls that were kept last, which a late exit may amend.
    amendable: VecDeque<u64>,
    /// Amended records of calls that were kept before.
    amended: Vec<Arc<CallRecord>>,
    /// Last minute in which a call of a series was kept.
    kept_at: HashMap<Arc<ProbeSeries>, u64>,
    /// Probes that have succeeded, by the container and a hash of the probe.
    succeeded: HashSet<(Box<str>, u64)>,
    /// Number of attempts without a row, because there are too many series.
    overflow: u64,
}

/// A row that is not complete, with its notable calls.
#[derive(Clone, Debug, Default)]
struct OpenRow {
    minute: Minute,
    first_failed: Option<Arc<CallRecord>>,
    slowest: Option<Arc<CallRecord>>,
}

impl OpenRows {
    /// Adds an ExecSync to the row of the minute in which it ended. An amended record changes no
    /// row, because its results are counted already. It replaces the record that is kept.
    pub(super) fn add_call(&mut self, record: &Arc<CallRecord>, failure_threshold: Option<u32>) {
        if record.is_amended {
            self.amend(record);
            return;
        }
        let Some(series) = ProbeSeries::of_call(record) else { return };
        let series = ProbeSeries { failure_threshold, ..series };
        let number = Minute::number(record.call.start + record.call.duration);
        let has_room = self.notable < MAX_NOTABLE;
        let container = record.call.container.as_ref().and_then(|container| container.id.as_deref());
        let is_discarded = record.call.exec.as_ref().is_some_and(|exec| exec.is_discarded);
        let verdict = ExecVerdict::from_record(record).filter(|_| !is_discarded);
        let is_after_success = self.is_failure_after_success(&series, container, verdict);
        let Some(row) = self.row(&series, number) else { return };
        row.minute.add_call(record);
        row.minute.failures_after_success += u32::from(is_after_success);
        let before = row.notable();
        row.add_notable(record, has_room);
        let added = row.notable() - before;
        self.notable += added;
    }

    /// Adds an attempt of the prober by HTTP, TCP or gRPC. An attempt by exec is added as an
    /// ExecSync.
    pub(super) fn add_attempt(&mut self, attempt: &ProbeAttempt, redact: bool) {
        let number = Minute::number(attempt.ended);
        let series = ProbeSeries::of_attempt(attempt, redact);
        let verdict = (!attempt.is_discarded).then(|| attempt.verdict.into());
        let is_after_success =
            self.is_failure_after_success(&series, attempt.container.id.as_deref(), verdict);
        let Some(row) = self.row(&series, number) else { return };
        row.minute.add_attempt(attempt);
        row.minute.failures_after_success += u32::from(is_after_success);
    }

    /// Removes the rows whose minutes `is_closed` selects, and the calls to be kept.
    pub(super) fn take(
        &mut self,
        is_closed: impl Fn(u64) -> bool,
    ) -> (Vec<SeriesMinute>, Vec<Arc<CallRecord>>) {
        let (mut rows, mut notable, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        self.rows.retain(|series, minutes| {
            let (closed, open): (BTreeMap<_, _>, BTreeMap<_, _>) =
                std::mem::take(minutes).into_iter().partition(|(number, _)| is_closed(*number));
            *minutes = open;
            for (number, row) in closed {
                self.notable -= row.notable();
                let OpenRow { minute, first_failed, slowest } = row;
                let calls = first_failed.into_iter().chain(slowest);
                notable.extend(calls.map(|record| (series.clone(), number, record)));
                rows.push((series.clone(), minute));
            }
            if minutes.is_empty() {
                ended.push(series.clone());
            }
            !minutes.is_empty()
        });
        for series in ended {
            *self.bytes_like(&series).0 -= series.size();
        }
        (rows, self.select_kept(notable))
    }

    /// Returns the number of attempts since the last time that had no row.
    pub(super) fn take_overflow(&mut self) -> u64 {
        std::mem::take(&mut self.overflow)
    }

    /// Selects calls to be kept: those of series of which none was kept for the longest time,
    /// failed ones first, and the slowest ones.
    fn select_kept(
        &mut self,
        mut notable: Vec<(Arc<ProbeSeries>, u64, Arc<CallRecord>)>,
    ) -> Vec<Arc<CallRecord>> {
        notable.sort_by_cached_key(|(series, _, record)| {
            let last = self.kept_at.get(series).copied();
            (last, !record.is_failed(), Reverse(record.call.duration), record.call.id)
        });
        let mut kept: Vec<Arc<CallRecord>> = std::mem::take(&mut self.amended);
        kept.truncate(MAX_KEPT);
        for (series, minute, record) in notable.into_iter().take(MAX_KEPT) {
            self.kept_at.insert(series, minute);
            self.amendable.push_back(record.call.id);
            kept.push(record);
        }
        let superfluous = self.amendable.len().saturating_sub(MAX_AMENDABLE);
        self.amendable.drain(..superfluous);
        let newest = self.kept_at.values().copied().max().unwrap_or_default();
        self.kept_at.retain(|_, minute| newest - *minute <= REMEMBERED_MINUTES);
        kept
    }

    fn amend(&mut self, record: &Arc<CallRecord>) {
        let id = record.call.id;
        let open = self.rows.values_mut().flat_map(BTreeMap::values_mut);
        let mut kept = open.flat_map(|row| row.first_failed.iter_mut().chain(row.slowest.as_mut()));
        if let Some(kept) = kept.find(|kept| kept.call.id == id) {
            *kept = record.clone();
        } else if self.amendable.contains(&id) && self.amended.len() < MAX_KEPT {
            self.amended.push(record.clone());
        }
    }

    /// Returns the number of bytes of the series of the same kind, and its limit.
    fn bytes_like(&mut self, series: &ProbeSeries) -> (&mut usize, usize) {
        if series.probe == ProbeMatch::UNKNOWN {
            (&mut self.other_bytes, MAX_OTHER_BYTES)
        } else {
            (&mut self.probe_bytes, MAX_PROBE_BYTES)
        }
    }

    /// Returns whether a result is a failure of a probe that has succeeded in the same container.
    fn is_failure_after_success(
        &mut self,
        series: &ProbeSeries,
        container: Option<&str>,
        verdict: Option<ExecVerdict>,
    ) -> bool {
        let Some(container) = container.filter(|_| series.probe != ProbeMatch::UNKNOWN) else { return false };
        let mut hasher = DefaultHasher::new();
        (&series.handler, series.timeout, &series.prober).hash(&mut hasher);
        let key = (container.into(), hasher.finish());
        match verdict {
            Some(ExecVerdict::Failure | ExecVerdict::TimedOut) => self.succeeded.contains(&key),
            Some(ExecVerdict::Success) => {
                if self.succeeded.len() >= MAX_SUCCEEDED {
                    self.succeeded.clear();
                }
                self.succeeded.insert(key);
                false
            }
            _ => false,
        }
    }

    fn row(&mut self, series: &ProbeSeries, number: u64) -> Option<&mut OpenRow> {
        if !self.rows.contains_key(series) {
            let size = series.size();
            let (bytes, limit) = self.bytes_like(series);
            if *bytes + size > limit {
                self.overflow += 1;
                return None;
            }
            *bytes += size;
            self.rows.insert(Arc::new(series.clone()), BTreeMap::new());
        }
        let row = self.rows.get_mut(series)?.entry(number).or_default();
        row.minute.minute = number;
        Some(row)
    }
}

impl OpenRow {
    /// Returns the number of notable calls.
    fn notable(&self) -> usize {
        usize::from(self.first_failed.is_some()) + usize::from(self.slowest.is_some())
    }

    /// Remembers a call if it is notable, which one that the prober discarded is not. Without room
    /// it can only take the place of another call.
    fn add_notable(&mut self, record: &Arc<CallRecord>, has_room: bool) {
        if record.call.exec.as_ref().is_some_and(|exec| exec.is_discarded) {
            return;
        }
        let assessment = record.analysis.as_ref().map(|analysis| analysis.assessment);
        if assessment == Some(Assessment::Failed) && self.first_failed.is_none() && has_room {
            self.first_failed = Some(record.clone());
            return;
        }
        let is_slower = |known: &Arc<CallRecord>| known.call.duration < record.call.duration;
        if !matches!(assessment, None | Some(Assessment::Fine))
            && self.slowest.as_ref().map_or(has_room, is_slower)
        {
            self.slowest = Some(record.clone());
        }
    }
}
