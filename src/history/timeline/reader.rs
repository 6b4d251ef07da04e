//! Reads lines, from disk or from a running probeshim, and makes a period of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;

use super::line::{Line, time_at};
use super::minute::Minute;
use super::node_facts::NodeFacts;
use super::period::Period;
use super::period_builder::PeriodBuilder;
use super::runs::Runs;
use super::series::ProbeSeries;
use crate::events::{message_key, reason};
use crate::execsync::CallRecord;
use crate::history::json;

/// Makes a period of lines in the order in which they were written. Lines that are not in the
/// period are not parsed.
#[derive(Debug)]
pub struct TimelineReader {
    from: SystemTime,
    to: SystemTime,
    period: PeriodBuilder,
    /// Series by run and number. A number is assigned again in each segment.
    series: HashMap<(u32, u32), Definition>,
    /// Runs and numbers of lines with rows. A line that a failure of the disk repeats counts once.
    rows_read: HashSet<(u32, u64)>,
    /// The versions of each event, by the number of its occurrences.
    events: HashMap<EventKey, BTreeMap<u64, json::Event>>,
    runs: Runs,
    /// The node, with the time at which its probeshim started.
    node: Option<(SystemTime, NodeFacts)>,
    has_lines: bool,
}

/// A series, and its index in the period once it has a row there.
#[derive(Debug)]
struct Definition {
    series: ProbeSeries,
    index: Option<usize>,
}

/// Everything that the occurrences of an event have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct EventKey {
    r#type: String,
    reason: String,
    /// Namespace, pod and container.
    subject: [Option<String>; 3],
    first_time: Option<String>,
    /// The message without ids and pids.
    message: String,
}

impl TimelineReader {
    /// Creates a reader of a period, in which a probe has about 288 rows at most.
    #[must_use]
    pub fn new(from: SystemTime, to: SystemTime) -> Self {
        Self {
            from,
            to,
            period: PeriodBuilder::new(from, to, PeriodBuilder::resolution(from, to)),
            series: HashMap::new(),
            rows_read: HashSet::new(),
            events: HashMap::new(),
            runs: Runs::default(),
            node: None,
            has_lines: false,
        }
    }

    /// Adds a line. A line that cannot be read is skipped, such as one that a crash tore.
    pub fn add_line(&mut self, line: &[u8]) {
        if Line::is_needed(line, self.from, self.to)
            && let Ok(line) = serde_json::from_slice(line)
        {
            self.has_lines = true;
            self.add(line);
        }
    }

    /// Returns whether a line was read.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.has_lines
    }

    /// Returns the period.
    #[must_use]
    pub fn finish(self) -> Period {
        let Self { from, to, mut period, events, runs, node, .. } = self;
        for event in events.into_values().flat_map(|versions| occurrences(versions, from)) {
            period.add_event(event);
        }
        for gap in runs.gaps(from, to) {
            period.add_gap(gap);
        }
        if let Some((_, node)) = node {
            period.set_node(node);
        }
        period.build()
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Run(started, _, node) => {
                // Each segment repeats the line, also if the first segments were removed. The ticks
                // say since when the run is observed.
                let started = time_at(started);
                // Facts of a probeshim that started after the period do not apply to it.
                let is_later = self.node.as_ref().is_none_or(|(known, _)| *known <= started);
                if started <= self.to && is_later {
                    self.node = Some((started, node));
                }
            }
            Line::Series(run, number, series) => {
                self.series.insert((run, number), Definition { series: series.into(), index: None });
            }
            Line::Rows(minute, run, number, rows) => {
                if !self.rows_read.insert((run, number)) {
                    return;
                }
                for row in rows {
                    let Some(definition) = self.series.get_mut(&(run, row.series)) else { continue };
                    let index = *definition
                        .index
                        .get_or_insert_with(|| self.period.index_of(definition.series.clone()));
                    self.period.add_row(index, &Minute { minute, ..row.minute });
                }
            }
            Line::Call(_, _, call) => {
                if let Ok(record) = CallRecord::try_from(*call) {
                    self.period.keep_call(Arc::new(record));
                }
            }
            Line::Event(_, _, event) => {
                self.events.entry(EventKey::new(&event)).or_default().insert(event.count, *event);
            }
            Line::Tick(time, run, irregularities) => {
                self.runs.add(run, time_at(time));
                self.runs.add_irregularities(irregularities);
            }
            Line::End(time, run) => self.runs.end(run, time_at(time)),
        }
    }
}

impl EventKey {
    fn new(event: &json::Event) -> Self {
        let message = message_key(&event.message).into_owned();
        let json::Event { r#type, reason, namespace, pod, container, first_time, .. } = event.clone();
        Self { r#type, reason, subject: [namespace, pod, container], first_time, message }
    }
}

/// Returns the occurrences of an event in a period that begins at `from`. Each version that was
/// written has the number of occurrences since the one before. Of a version that is the first, and
/// that occurred before the period too, only its last occurrence is certain to be in the period.
fn occurrences(versions: BTreeMap<u64, json::Event>, from: SystemTime) -> Vec<json::Event> {
    let mut before = None;
    let mut found: Vec<json::Event> = Vec::new();
    for (total, mut event) in versions {
        let first = event.first_time.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
        match before {
            None if first.is_some_and(|first| SystemTime::from(first) < from) => event.count = 1,
            None => {}
            Some(before) => event.count = total.saturating_sub(before),
        }
        if event.count == 1 {
            event.first_time = Some(event.time.clone());
        } else if let Some(last) = found.last() {
            event.first_time = Some(last.time.clone());
        }
        before = Some(total);
        found.push(event);
    }
    if found.last().is_some_and(|event| reason::LIFECYCLE.contains(&event.reason.as_str())) {
        return found;
    }
    // Of other events, the numbers matter, and not each time.
    let count = found.iter().map(|event| event.count).fold(0, u64::saturating_add);
    let first_time = found.first().and_then(|event| event.first_time.clone());
    found.pop().map(|last| json::Event { count, first_time, ..last }).into_iter().collect()
}
