//! Records results: collects rows, and writes them once per minute.

mod clock_check;
mod directory;
mod event_log;
mod line_redactor;
mod live;
mod open_rows;
mod ring;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::warn;

use self::clock_check::ClockCheck;
pub use self::directory::{has_records, read_lines, read_period};
use self::event_log::EventLog;
pub use self::line_redactor::LineRedactor;
use self::live::LiveRing;
pub use self::live::{LiveResult, LiveResults};
use self::open_rows::OpenRows;
use self::ring::LineRing;
use crate::events::EventRecorder;
use crate::execsync::CallRecord;
use crate::history::Journal;
use crate::history::timeline::{
    Irregularity, LineEncoder, Minute, NodeFacts, Period, TimelineBatch, TimelineReader, unix_ms,
};
use crate::prober::{AttemptReporter, ProbeAttempt};
use crate::tap::TapMetrics;

/// Time after the end of a minute at which its rows are written. An ExecSync is recorded at the
/// latest a second after its end.
const WRITE_DELAY: Duration = Duration::from_secs(2);

/// Records the results of probes over time. Clones share the record. Only
/// [`recorded_lines`](Self::recorded_lines) blocks.
#[derive(Clone, Debug)]
pub struct Timeline(Arc<TimelineInner>);

/// Sources of what is recorded besides calls and attempts.
#[derive(Debug, Default)]
pub struct TimelineSources {
    /// Events.
    pub events: Arc<EventRecorder>,
    /// Counts observations that were dropped.
    pub tap: TapMetrics,
    /// Counts attempts of the prober that were dropped.
    pub attempts: AttemptReporter,
    /// Whether commands are reduced to their programs, and query strings are left out.
    pub redact: bool,
}

/// Place of the recorded lines.
#[derive(Debug)]
pub enum RecordedLines {
    /// This directory of records.
    Dir(PathBuf),
    /// These segments in memory, the oldest first.
    Memory(Vec<Arc<Vec<u8>>>),
}

#[derive(Debug)]
struct TimelineInner {
    sources: TimelineSources,
    journal: Option<Journal>,
    state: Mutex<TimelineState>,
}

#[derive(Debug)]
struct TimelineState {
    /// Number of this run. It is random, since processes may share a directory.
    run: u32,
    started: SystemTime,
    node: NodeFacts,
    is_node_written: bool,
    rows: OpenRows,
    events: EventLog,
    clock: ClockCheck,
    irregularities: Vec<Irregularity>,
    /// Number of dropped observations and attempts that are recorded.
    dropped: u64,
    /// Time of the last write.
    written: SystemTime,
    /// The minute that was open at the last check.
    open_minute: u64,
    batches: u64,
    /// A batch for which the queue of the journal had no room.
    unsent: Option<TimelineBatch>,
    /// The lines, if nothing is recorded on disk.
    ring: LineRing,
    live: LiveRing,
}

impl Timeline {
    /// Creates a record that begins now. It is written by the journal, or kept in memory without
    /// one.
    #[must_use]
    pub fn start(sources: TimelineSources, journal: Option<Journal>, node: NodeFacts) -> Self {
        Self::new(sources, journal, node, SystemTime::now(), Instant::now())
    }

    /// Creates a record that begins at a time. It is written by the journal, or kept in memory
    /// without one.
    #[must_use]
    pub fn new(
        sources: TimelineSources,
        journal: Option<Journal>,
        node: NodeFacts,
        now: SystemTime,
        monotonic: Instant,
    ) -> Self {
        let state = TimelineState {
            run: fastrand::u32(..),
            started: now,
            node,
            is_node_written: false,
            rows: OpenRows::default(),
            events: EventLog::default(),
            clock: ClockCheck::new(now, monotonic),
            irregularities: Vec::new(),
            dropped: 0,
            written: now,
            open_minute: open_minute(now),
            batches: 0,
            unsent: None,
            ring: LineRing::default(),
            live: LiveRing::default(),
        };
        let timeline = Self(Arc::new(TimelineInner { sources, journal, state: Mutex::new(state) }));
        // The start is recorded, so that a gap before it ends there.
        timeline.0.write(&mut timeline.0.lock(), now, monotonic, false);
        timeline
    }

    /// Adds an ExecSync. Other calls are ignored.
    pub fn add_call(&self, record: &Arc<CallRecord>, failure_threshold: Option<u32>) {
        if record.analysis.is_some() {
            let mut state = self.0.lock();
            state.rows.add_call(record, failure_threshold);
            if !record.is_amended {
                state.live.push(Instant::now(), || LiveResult::of_call(record));
            }
        }
    }

    /// Adds an attempt of the prober.
    pub fn add_attempt(&self, attempt: &ProbeAttempt) {
        let mut state = self.0.lock();
        state.rows.add_attempt(attempt, self.0.sources.redact);
        state.live.push(Instant::now(), || Some(LiveResult::of_attempt(attempt, self.0.sources.redact)));
    }

    /// Returns the results that were added since an earlier call of this function, with the number
    /// to be passed to the next call. The first call passes `None`, and returns no results.
    #[must_use]
    pub fn results_after(&self, number: Option<u64>) -> LiveResults {
        self.0.lock().live.after(Instant::now(), number)
    }

    /// Returns the number of this run. It is random.
    #[must_use]
    pub fn run(&self) -> u32 {
        self.0.lock().run
    }

    /// Records the name and version of the runtime.
    pub fn set_runtime(&self, runtime: String) {
        let mut state = self.0.lock();
        if state.node.runtime.as_ref() != Some(&runtime) {
            state.node.runtime = Some(runtime);
            state.is_node_written = false;
        }
    }

    /// Checks the clock, and writes the rows of minutes that have ended. To be called every second.
    pub fn tick(&self, now: SystemTime, monotonic: Instant) {
        let mut state = self.0.lock();
        let step = state.clock.check(now, monotonic);
        state.irregularities.extend(step);
        if let (Some(journal), Some(batch)) = (&self.0.journal, state.unsent.take()) {
            state.unsent = journal.write_timeline(batch);
        }
        let open = open_minute(now);
        if open != state.open_minute {
            state.open_minute = open;
            self.0.write(&mut state, now, monotonic, false);
        }
    }

    /// Writes everything, also the rows of minutes that have not ended.
    pub fn flush(&self, now: SystemTime, monotonic: Instant) {
        self.0.write_all(now, monotonic, false);
    }

    /// Writes everything, and records the end of the run.
    pub fn end(&self, now: SystemTime, monotonic: Instant) {
        self.0.write_all(now, monotonic, true);
    }

    /// Returns what redacts recorded lines, which may be of a run without redaction; `None` if this
    /// run does not redact.
    #[must_use]
    pub fn redactor(&self) -> Option<LineRedactor> {
        self.0.sources.redact.then(|| LineRedactor::new(self.0.lock().run))
    }

    /// Returns the results of a period, also those that are not written yet. Writes nothing, so
    /// that a reader that comes often does not make the record longer. Blocks until the lines are
    /// read.
    pub fn read_period(
        &self,
        from: SystemTime,
        to: SystemTime,
        now: SystemTime,
        monotonic: Instant,
    ) -> io::Result<Period> {
        let (open, lines) = {
            let state = self.0.lock();
            let open = LineEncoder::default().encode(&self.0.open_batch(&state, now, monotonic), 0)?;
            let lines = match &self.0.journal {
                Some(journal) => RecordedLines::Dir(journal.dir().to_owned()),
                None => RecordedLines::Memory(state.ring.segments()),
            };
            (open, lines)
        };
        if let Some(journal) = &self.0.journal {
            journal.flush();
        }
        let mut reader = TimelineReader::new(from, to);
        let mut add = |line: &[u8]| {
            reader.add_line(line);
            Ok(())
        };
        lines.for_each(&mut add)?;
        RecordedLines::Memory(vec![Arc::new(open)]).for_each(&mut add)?;
        Ok(reader.finish())
    }

    /// Writes everything, and returns the place of the lines. Blocks until they are on disk, or the
    /// disk fails.
    #[must_use]
    pub fn recorded_lines(&self, now: SystemTime, monotonic: Instant) -> RecordedLines {
        self.flush(now, monotonic);
        match &self.0.journal {
            Some(journal) => {
                journal.flush();
                RecordedLines::Dir(journal.dir().to_owned())
            }
            None => RecordedLines::Memory(self.0.lock().ring.segments()),
        }
    }
}

impl RecordedLines {
    /// Passes each line to `found`, in the order in which they were written. Blocks. Ends at the
    /// first error of `found`.
    pub fn for_each(&self, mut found: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Dir(dir) => read_lines(dir, found),
            Self::Memory(segments) => {
                let lines = segments.iter().flat_map(|segment| segment.split(|byte| *byte == b'\n'));
                lines.filter(|line| !line.is_empty()).try_for_each(&mut found)
            }
        }
    }
}

impl TimelineInner {
    fn lock(&self) -> MutexGuard<'_, TimelineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, now: SystemTime, monotonic: Instant, is_last: bool) {
        let mut state = self.lock();
        let step = state.clock.check(now, monotonic);
        state.irregularities.extend(step);
        let (rows, calls) = state.rows.take(|_| true);
        let batch = TimelineBatch { rows, calls, is_last, ..self.batch(&mut state, now, monotonic, true) };
        self.send(&mut state, batch);
    }

    /// Writes the rows of minutes that have ended.
    fn write(&self, state: &mut TimelineState, now: SystemTime, monotonic: Instant, all: bool) {
        let open = state.open_minute;
        let (rows, calls) = state.rows.take(|minute| minute != open && minute != open + 1);
        let batch = TimelineBatch { rows, calls, ..self.batch(state, now, monotonic, all) };
        self.send(state, batch);
    }

    /// Returns a batch without rows.
    fn batch(
        &self,
        state: &mut TimelineState,
        now: SystemTime,
        monotonic: Instant,
        all_events: bool,
    ) -> TimelineBatch {
        let TimelineSources { events, tap, attempts, redact: _ } = &self.sources;
        let dropped = tap.observations_dropped() + tap.internal_execs_dropped() + attempts.dropped();
        let newly_dropped = dropped.saturating_sub(state.dropped) + state.rows.take_overflow();
        state.dropped = dropped;
        if newly_dropped > 0 {
            let (from, to) = (unix_ms(state.written), unix_ms(now));
            state.irregularities.push(Irregularity::Dropped(from.min(to), to, newly_dropped));
        }
        let start = (!state.is_node_written).then(|| (state.started, state.node.clone()));
        state.is_node_written = true;
        state.batches += 1;
        TimelineBatch {
            run: state.run,
            number: state.batches,
            start,
            from: std::mem::replace(&mut state.written, now),
            to: now,
            rows: Vec::new(),
            calls: Vec::new(),
            events: state.events.take(events, monotonic, all_events),
            irregularities: std::mem::take(&mut state.irregularities),
            is_last: false,
        }
    }

    /// Returns what is not written yet as a batch, which becomes the next one if nothing is added.
    fn open_batch(&self, state: &TimelineState, now: SystemTime, monotonic: Instant) -> TimelineBatch {
        let (rows, calls) = state.rows.clone().take(|_| true);
        TimelineBatch {
            run: state.run,
            number: state.batches + 1,
            start: Some((state.started, state.node.clone())),
            from: state.written,
            to: now,
            rows,
            calls,
            events: state.events.clone().take(&self.sources.events, monotonic, true),
            irregularities: state.irregularities.clone(),
            is_last: false,
        }
    }

    fn send(&self, state: &mut TimelineState, mut batch: TimelineBatch) {
        if let Some(earlier) = state.unsent.take() {
            batch.replace(earlier);
        }
        match &self.journal {
            Some(journal) => state.unsent = journal.write_timeline(batch),
            None => {
                if let Err(error) = state.ring.push(&batch) {
                    warn!(%error, "the results of probes cannot be kept");
                }
            }
        }
    }
}

/// Returns the minute of which rows are not written yet at a time.
fn open_minute(now: SystemTime) -> u64 {
    Minute::number(now.checked_sub(WRITE_DELAY).unwrap_or(now))
}

#[cfg(test)]
mod tests;
