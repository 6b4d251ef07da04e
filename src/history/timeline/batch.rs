//! Results since the last write, and their lines.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use super::line::{Irregularity, Line, unix_ms};
use super::minute::Minute;
use super::node_facts::NodeFacts;
use super::row::ResultRow;
use super::series::ProbeSeries;
use crate::events::Event;
use crate::execsync::CallRecord;
use crate::history::json;
use crate::terminal::format::harmless_json;

/// Maximum number of rows in a line, so that a line is never too long to be read.
const MAX_ROWS: usize = 256;

/// Number of bytes of series above which they are numbered from zero again. It limits the memory if
/// clients execute a different command in each call.
const MAX_BYTES: usize = 8 << 20;

/// Maximum number of calls, and of events, that are taken over from a batch that cannot be written.
const MAX_KEPT: usize = 1024;

/// Number of lines with rows for which the number of a batch has room.
const LINES_PER_BATCH: u64 = 1 << 16;

/// A row with its series.
pub type SeriesMinute = (Arc<ProbeSeries>, Minute);

/// Results since the last write.
#[derive(Debug)]
pub struct TimelineBatch {
    /// Number of the run: of the process that makes the batch.
    pub run: u32,
    /// Number of the batch in its run.
    pub number: u64,
    /// Start of the process, and the node, if they are not written yet.
    pub start: Option<(SystemTime, NodeFacts)>,
    /// Beginning of the time of the batch.
    pub from: SystemTime,
    /// Time until which the batch is complete.
    pub to: SystemTime,
    /// The rows, with their minutes, in any order.
    pub rows: Vec<SeriesMinute>,
    /// Calls that are kept completely.
    pub calls: Vec<Arc<CallRecord>>,
    /// Events that are new, or have occurred again.
    pub events: Vec<Arc<Event>>,
    /// Dropped observations and clock steps.
    pub irregularities: Vec<Irregularity>,
    /// Whether the run ends.
    pub is_last: bool,
}

/// Makes lines of batches. Numbers series, and defines each in a segment before its first row.
#[derive(Debug, Default)]
pub struct LineEncoder {
    segment: Option<u64>,
    /// Start of the process, and the node. Each segment has them, because older ones are removed.
    start: Option<(SystemTime, NodeFacts)>,
    numbers: HashMap<Arc<ProbeSeries>, u32>,
    /// Number of bytes of the series.
    bytes: usize,
}

impl TimelineBatch {
    /// Returns the number of attempts in the rows.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.rows.iter().map(|(_, minute)| u64::from(minute.attempts())).sum()
    }

    /// Takes the place of an earlier batch that cannot be written. Its results become dropped
    /// observations; its calls and events are kept, up to a limit.
    pub fn replace(&mut self, mut earlier: Self) {
        let room = MAX_KEPT.saturating_sub(self.calls.len());
        self.calls.splice(..0, earlier.calls.drain(..).take(room));
        let room = MAX_KEPT.saturating_sub(self.events.len());
        self.events.splice(..0, earlier.events.drain(..).take(room));
        let attempts = earlier.attempts();
        let (from, to) = (unix_ms(earlier.from), unix_ms(earlier.to));
        if attempts > 0 {
            earlier.irregularities.push(Irregularity::Dropped(from, to, attempts));
        }
        earlier.irregularities.append(&mut self.irregularities);
        self.irregularities = earlier.irregularities;
        self.start = self.start.take().or(earlier.start);
        self.from = earlier.from;
    }
}

impl LineEncoder {
    /// Returns the lines of a batch in the segment with this number. The encoder expects that they
    /// are written, unless it is reset.
    pub fn encode(&mut self, batch: &TimelineBatch, segment: u64) -> io::Result<Vec<u8>> {
        if self.segment != Some(segment) || self.bytes > MAX_BYTES {
            self.reset();
        }
        let is_new_segment = self.segment.replace(segment).is_none();
        if batch.start.is_some() {
            self.start.clone_from(&batch.start);
        }
        let (run, mut lines) = (batch.run, Vec::new());
        if let Some((started, node)) = self.start.as_ref().filter(|_| is_new_segment || batch.start.is_some())
        {
            write(&mut lines, &Line::Run(unix_ms(*started), run, node.clone()))?;
        }
        let mut by_minute: HashMap<u64, Vec<ResultRow>> = HashMap::new();
        for (series, minute) in &batch.rows {
            let number = self.number(series, run, &mut lines)?;
            let row = ResultRow { series: number, minute: Minute { minute: 0, ..minute.clone() } };
            by_minute.entry(minute.minute).or_default().push(row);
        }
        let mut minutes: Vec<(u64, Vec<ResultRow>)> = by_minute.into_iter().collect();
        minutes.sort_unstable_by_key(|(minute, _)| *minute);
        let mut number = batch.number.saturating_mul(LINES_PER_BATCH);
        for (minute, rows) in minutes {
            for rows in rows.chunks(MAX_ROWS) {
                write(&mut lines, &Line::Rows(minute, run, number, rows.to_vec()))?;
                number += 1;
            }
        }
        for record in &batch.calls {
            let end = record.call.start + record.call.duration;
            write(&mut lines, &Line::Call(unix_ms(end), run, Box::new(json::Call::from(&**record))))?;
        }
        for event in &batch.events {
            write(&mut lines, &Line::Event(unix_ms(event.time), run, Box::new((&**event).into())))?;
        }
        let to = unix_ms(batch.to);
        write(&mut lines, &Line::Tick(to, run, batch.irregularities.clone()))?;
        if batch.is_last {
            write(&mut lines, &Line::End(to, run))?;
        }
        Ok(lines)
    }

    /// Forgets which series are defined, because lines may not have been written.
    pub fn reset(&mut self) {
        *self = Self { start: self.start.take(), ..Self::default() };
    }

    /// Returns the number of a series, and defines it if it is new.
    fn number(&mut self, series: &Arc<ProbeSeries>, run: u32, lines: &mut Vec<u8>) -> io::Result<u32> {
        if let Some(number) = self.numbers.get(series) {
            return Ok(*number);
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        write(lines, &Line::Series(run, number, (&**series).into()))?;
        self.numbers.insert(series.clone(), number);
        self.bytes += series.size();
        Ok(number)
    }
}

fn write(lines: &mut Vec<u8>, line: &Line) -> io::Result<()> {
    let line = serde_json::to_string(line)?;
    lines.extend_from_slice(harmless_json(&line).as_bytes());
    lines.push(b'\n');
    Ok(())
}
