//! Collects what is known about a period, in any order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::minute::Minute;
use super::node_facts::NodeFacts;
use super::period::{Gap, GapCause, Period, ProbeHistory};
use super::series::ProbeSeries;
use crate::execsync::{Assessment, CallRecord, ProbeMatch};
use crate::history::json;

/// Collects what is known about a period, in any order.
#[derive(Debug)]
pub struct PeriodBuilder {
    from: SystemTime,
    to: SystemTime,
    resolution: u64,
    node: Option<NodeFacts>,
    index: HashMap<Arc<ProbeSeries>, usize>,
    rows: Vec<HashMap<u64, Minute>>,
    /// The inferred series of learned commands, by the index of their rows.
    inferred: HashMap<usize, ProbeSeries>,
    calls: HashMap<u64, Arc<CallRecord>>,
    events: Vec<json::Event>,
    gaps: Vec<Gap>,
}

/// Default number of rows of a probe in a period.
const COLUMNS: u64 = 288;

impl PeriodBuilder {
    /// Returns the number of minutes that are merged into each row of a period, so that a probe has
    /// about 288 rows at most.
    #[must_use]
    pub fn resolution(from: SystemTime, to: SystemTime) -> u64 {
        let minutes = to.duration_since(from).unwrap_or_default().as_secs() / 60;
        minutes.div_ceil(COLUMNS).max(1)
    }

    /// Creates a builder of a period, whose rows have as many minutes as `resolution` says, at
    /// least one.
    #[must_use]
    pub fn new(from: SystemTime, to: SystemTime, resolution: u64) -> Self {
        Self {
            from,
            to,
            resolution: resolution.max(1),
            node: None,
            index: HashMap::new(),
            rows: Vec::new(),
            inferred: HashMap::new(),
            calls: HashMap::new(),
            events: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// Adds a call that is not in any row, and keeps it if it was slow or failed.
    pub fn add_call(&mut self, record: &Arc<CallRecord>) {
        let end = record.call.start.checked_add(record.call.duration).unwrap_or(record.call.start);
        let Some(series) = ProbeSeries::of_call(record).filter(|_| self.has(end)) else { return };
        let mut minute = Minute { minute: Minute::number(end), ..Minute::default() };
        minute.add_call(record);
        self.add_minute(series, &minute);
        let is_fine = |record: &CallRecord| {
            record.analysis.as_ref().is_none_or(|analysis| analysis.assessment == Assessment::Fine)
        };
        if !is_fine(record) {
            self.keep_call(record.clone());
        }
    }

    /// Adds a row.
    pub fn add_minute(&mut self, series: ProbeSeries, minute: &Minute) {
        let last = minute.start().checked_add(Duration::from_secs(59));
        if self.has(minute.start()) || last.is_some_and(|last| self.has(last)) {
            let index = self.index_of(series);
            self.add_row(index, minute);
        }
    }

    /// Returns the index of a series, to which rows can be added. A command that belongs to no
    /// known probe has one index, whether its period is inferred yet or not.
    pub(super) fn index_of(&mut self, series: ProbeSeries) -> usize {
        let inferred = (series.probe == ProbeMatch::INFERRED).then(|| series.clone());
        let series = match series.learned() {
            Some(_) => ProbeSeries { probe: ProbeMatch::UNKNOWN.to_owned(), period: None, ..series },
            None => series,
        };
        let index = match self.index.entry(Arc::new(series)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.rows.push(HashMap::new());
                *new.insert(self.rows.len() - 1)
            }
        };
        if let Some(inferred) = inferred {
            self.inferred.insert(index, inferred);
        }
        index
    }

    /// Adds a row of the period to the series with an index.
    pub(super) fn add_row(&mut self, index: usize, minute: &Minute) {
        let number = minute.minute - minute.minute % self.resolution;
        let row =
            self.rows[index].entry(number).or_insert_with(|| Minute { minute: number, ..Minute::default() });
        row.merge(minute);
    }

    /// Keeps a call that is in a row. A later version of a call replaces an earlier one.
    pub fn keep_call(&mut self, record: Arc<CallRecord>) {
        self.calls.insert(record.call.id, record);
    }

    /// Adds an event.
    pub fn add_event(&mut self, event: json::Event) {
        self.events.push(event);
    }

    /// Sets the facts about the node, in place of earlier ones.
    pub fn set_node(&mut self, node: NodeFacts) {
        self.node = Some(node);
    }

    /// Adds a gap.
    pub fn add_gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    /// Returns the period. It begins where the records begin, if they begin later.
    #[must_use]
    pub fn build(self) -> Period {
        let Self { mut from, to, resolution, node, index, rows, mut inferred, calls, mut events, mut gaps } =
            self;
        let mut rows: Vec<Option<HashMap<u64, Minute>>> = rows.into_iter().map(Some).collect();
        let mut probes: Vec<ProbeHistory> = index
            .into_iter()
            .map(|(series, index)| {
                let mut minutes: Vec<Minute> = rows[index].take().unwrap_or_default().into_values().collect();
                minutes.sort_unstable_by_key(|minute| minute.minute);
                let series = inferred.remove(&index).unwrap_or_else(|| Arc::unwrap_or_clone(series));
                ProbeHistory { series, minutes }
            })
            .collect();
        probes.sort_by(|one, other| sort_key(&one.series).cmp(&sort_key(&other.series)));
        let mut calls: Vec<Arc<CallRecord>> = calls.into_values().collect();
        calls.sort_unstable_by_key(|record| (record.call.start, record.call.id));
        events.sort_by(|one, other| one.time.cmp(&other.time));
        gaps.sort_by_key(|gap| gap.from);
        let is_before_records =
            |gap: &Gap| gap.cause == GapCause::NotRecorded && gap.from <= from && gap.to < to;
        if gaps.first().is_some_and(is_before_records) {
            from = gaps.remove(0).to;
        }
        Period { from, to, resolution, node, probes, calls, events, gaps }
    }

    fn has(&self, time: SystemTime) -> bool {
        self.from <= time && time <= self.to
    }
}

fn sort_key(series: &ProbeSeries) -> [&str; 6] {
    let ProbeSeries { namespace, pod, container, probe, handler, prober, .. } = series;
    [namespace, pod, container, probe, handler, prober.name()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_where_the_records_begin() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let period = |gaps: &[(u64, u64, GapCause)]| {
            let mut builder = PeriodBuilder::new(at(100), at(200), 1);
            for (from, to, cause) in gaps {
                builder.add_gap(Gap { from: at(*from), to: at(*to), cause: cause.clone() });
            }
            let period = builder.build();
            (period.from, period.gaps.len())
        };
        let (before, stopped) = (GapCause::NotRecorded, GapCause::NotRunning);
        assert_eq!(period(&[(150, 160, stopped.clone()), (100, 130, before.clone())]), (at(130), 1));
        assert_eq!(period(&[(100, 130, stopped)]), (at(100), 1), "probeshim was stopped");
        assert_eq!(period(&[(180, 200, before.clone())]), (at(100), 1), "the records end");
        assert_eq!(period(&[(100, 200, before)]), (at(100), 1), "nothing is recorded");
    }

    #[test]
    fn a_command_is_one_history_whether_a_period_was_inferred_from_its_calls_or_not() {
        let series = |probe: &str, handler: &str, period: Option<u64>| ProbeSeries {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            probe: probe.to_owned(),
            prober: crate::history::timeline::Prober::Kubelet,
            handler: handler.to_owned(),
            command: vec![handler.to_owned()],
            timeout: Some(Duration::from_secs(1)),
            period: period.map(Duration::from_secs),
            failure_threshold: None,
        };
        let from = SystemTime::UNIX_EPOCH + Duration::from_secs(3600);
        let mut builder = PeriodBuilder::new(from, from + Duration::from_secs(3600), 1);
        let minute = |number: u64| Minute { minute: 60 + number, successes: 1, ..Minute::default() };
        builder.add_minute(series("unknown", "cat", None), &minute(0));
        builder.add_minute(series("probe", "cat", Some(5)), &minute(1));
        builder.add_minute(series("unknown", "cat", None), &minute(2));
        builder.add_minute(series("unknown", "true", None), &minute(2));
        builder.add_minute(series("liveness", "cat", Some(5)), &minute(2));
        let probes = builder.build().probes;
        let found: Vec<(&str, &str, usize)> = probes
            .iter()
            .map(|probe| (probe.series.probe.as_str(), probe.series.handler.as_str(), probe.minutes.len()))
            .collect();
        assert_eq!(found.len(), 3, "{found:?}");
        for expected in [("probe", "cat", 3), ("unknown", "true", 1), ("liveness", "cat", 1)] {
            assert!(found.contains(&expected), "{found:?}");
        }
        let cat = probes.iter().find(|probe| probe.series.probe == "probe").unwrap();
        assert_eq!(cat.series.period, Some(Duration::from_secs(5)));
    }
}
