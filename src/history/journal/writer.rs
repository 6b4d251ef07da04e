//! The journal's thread: writes records, and starts again when the disk fails or the files are
//! removed.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::segments::{self, CALLS, PROBES, Segments};
use super::{JournalConfig, QUEUE_CAPACITY, handover};
use crate::events::{Event, EventRecorder, reason};
use crate::execsync::CallRecord;
use crate::history::json;
use crate::history::timeline::{LineEncoder, TimelineBatch};
use crate::lockfile::{LockError, LockFile};

/// Pause before the first attempt to write again after a failure. The pause doubles with each
/// attempt, up to [`MAX_RETRY_INTERVAL`].
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Interval of attempts to lock a directory that another probeshim holds.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval of checks that the files still exist, while no record arrives.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of records that are flushed together, and that are written again after a failure.
const MAX_BATCH: usize = 256;

/// Maximum number of batches of results that wait while the disk accepts none: those of half an
/// hour.
const MAX_WAITING_BATCHES: usize = 30;

/// A message to the journal's thread.
pub(super) enum Message {
    /// A record to write.
    Record(Arc<CallRecord>),
    /// Results of probes to write.
    Timeline(Box<TimelineBatch>),
    /// Request to report when everything before it is written, or cannot be written at present.
    Flush(SyncSender<()>),
    /// A successor is about to start.
    HandOver(HandOver),
    /// No successor has started.
    Resume,
}

/// Request to leave the next id and the lock of the directory for a successor.
pub(super) struct HandOver {
    pub(super) next_id: u64,
    /// Receives the result once the directory is unlocked.
    pub(super) done: SyncSender<io::Result<()>>,
}

/// Writes records until all senders are gone.
pub(super) struct JournalWriter {
    settings: JournalConfig,
    events: Arc<EventRecorder>,
    dropped: Counter,
    /// The reason why no record can be written at present, if there is one.
    failure: watch::Sender<Option<String>>,
    /// Records that are not on disk yet, the oldest first.
    pending: VecDeque<Arc<CallRecord>>,
    /// Results that are not on disk yet, the oldest first.
    batches: VecDeque<Box<TimelineBatch>>,
    /// Makes lines of results.
    encoder: LineEncoder,
    /// Requests to report when everything is written.
    flushes: Vec<SyncSender<()>>,
    /// The id of the first call of this process.
    first_id: u64,
    /// Ids of this process under which another probeshim has recorded calls, because both held the
    /// directory in turn. They are not recorded again.
    taken_ids: HashSet<u64>,
    /// Whether a successor has the lock of the directory, or is about to.
    handed_over: bool,
    /// Whether the log says that another probeshim holds the directory.
    holder_logged: bool,
    /// Whether an event was recorded for the failure. There is none if another probeshim holds the
    /// directory, which may last as long as both run.
    failure_published: bool,
}

/// Reason why writing ended.
enum Stop {
    /// No sender is left, and all records are written.
    Finished,
    /// The directory is unlocked for a successor, for which the next id was left with this result.
    HandedOver(SyncSender<io::Result<()>>, io::Result<()>),
    /// No successor has started.
    Resumed,
    /// Another probeshim holds the directory.
    Held(LockError),
    /// The files were removed or replaced.
    Removed,
    /// An operation of the system failed.
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl JournalWriter {
    pub(super) fn new(
        settings: JournalConfig,
        first_id: u64,
        events: Arc<EventRecorder>,
        dropped: Counter,
        failure: watch::Sender<Option<String>>,
    ) -> Self {
        let (holder_logged, failure_published) = (false, false);
        Self {
            settings,
            events,
            dropped,
            failure,
            pending: VecDeque::new(),
            batches: VecDeque::new(),
            encoder: LineEncoder::default(),
            flushes: Vec::new(),
            first_id,
            taken_ids: HashSet::new(),
            handed_over: false,
            holder_logged,
            failure_published,
        }
    }

    /// Writes until all senders are gone. After a failure, writes again at growing intervals.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        let mut retry_interval = MIN_RETRY_INTERVAL;
        loop {
            let stop = self.write(messages);
            self.encoder.reset();
            self.answer_flushes();
            // Writing has succeeded since the last failure.
            if self.failure.borrow().is_none() {
                retry_interval = MIN_RETRY_INTERVAL;
            }
            let pause = match stop {
                Stop::Finished => return,
                Stop::HandedOver(done, result) => {
                    self.handed_over = true;
                    let _ = done.send(result);
                    continue;
                }
                Stop::Resumed => {
                    self.handed_over = false;
                    continue;
                }
                Stop::Held(held) => {
                    if !self.holder_logged {
                        self.holder_logged = true;
                        info!(%held, "calls are not recorded on disk until the directory is unlocked");
                    }
                    self.failure.send_replace(Some(held.to_string()));
                    LOCK_RETRY_INTERVAL
                }
                Stop::Removed => {
                    let dir = self.settings.dir.display();
                    let message = format!(
                        "Another process removed the records in {dir}; probeshim continues in new files"
                    );
                    self.events.log_and_record(Event::warning(reason::RECORD_REMOVED, message));
                    Duration::ZERO
                }
                Stop::Failed(error) => {
                    self.failed(&error);
                    let pause = retry_interval;
                    retry_interval = (2 * retry_interval).min(MAX_RETRY_INTERVAL);
                    pause
                }
            };
            if !self.wait(messages, pause) {
                // This is the last attempt. Records that it does not write are lost.
                let _ = self.write(messages);
                self.drop_pending();
                return;
            }
        }
    }

    /// Writes records as they arrive. Returns the reason why that ended.
    fn write(&mut self, messages: &Receiver<Message>) -> Stop {
        let ended =
            if self.handed_over { self.write_unlocked(messages) } else { self.write_locked(messages) };
        match ended {
            Ok(never) => match never {},
            Err(stop) => stop,
        }
    }

    /// Locks and opens the directory, and writes records as they arrive.
    fn write_locked(&mut self, messages: &Receiver<Message>) -> Result<Infallible, Stop> {
        let dir = self.settings.dir.clone();
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let _lock = LockFile::acquire(&dir.join("calls")).map_err(|error| match error {
            LockError::Io { source, .. } => Stop::Failed(source),
            held @ LockError::Held { .. } => Stop::Held(held),
            not_a_lock @ LockError::NotALock { .. } => Stop::Failed(io::Error::other(not_a_lock)),
        })?;
        handover::remove(&dir);
        let limit = self.settings.limit;
        let mut segments = Segments::open(CALLS, &dir, limit)?;
        let mut results = Segments::open(PROBES, &dir, limit / 2)?;
        if self.holder_logged {
            self.taken_ids.extend(handover::ids_from(&dir, self.first_id));
        }
        self.holder_logged = false;
        if !self.failure_published {
            self.failure.send_replace(None);
        }
        loop {
            let mut request = None;
            if self.pending.is_empty() && self.batches.is_empty() {
                self.answer_flushes();
                match messages.recv_timeout(REMOVAL_CHECK_INTERVAL) {
                    Ok(message) => request = self.accept(message),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(Stop::Finished),
                }
            }
            while request.is_none() && self.pending.len() < MAX_BATCH {
                let Ok(message) = messages.try_recv() else { break };
                request = self.accept(message);
            }
            if segments.is_removed() || results.is_removed() {
                return Err(Stop::Removed);
            }
            let has_results = self.write_results(&mut results)?;
            segments.set_limit(limit.saturating_sub(results.size()))?;
            self.drop_taken();
            let batch = self.pending.len().min(MAX_BATCH);
            for record in self.pending.iter().take(batch) {
                segments.append(&line(record)?)?;
            }
            segments.flush()?;
            self.pending.drain(..batch);
            // A full disk fails only when something is written.
            if batch > 0 || has_results {
                self.recovered();
            }
            if let Some(HandOver { next_id, done }) = request {
                // Before the directory is unlocked, so that a successor finds one of them.
                let left = handover::write(&dir, next_id);
                return Err(Stop::HandedOver(done, left));
            }
        }
    }

    /// Writes the results that wait. Returns whether there were any.
    fn write_results(&mut self, segments: &mut Segments) -> io::Result<bool> {
        let has_results = !self.batches.is_empty();
        while let Some(batch) = self.batches.front() {
            let segment = segments.rotate_if_full()?;
            segments.write(&self.encoder.encode(batch, segment)?)?;
            segments.flush()?;
            self.batches.pop_front();
        }
        Ok(has_results)
    }

    /// Appends the results that wait to the last segment, which a successor may have open.
    fn append_results(&mut self) -> io::Result<()> {
        let dir = &self.settings.dir;
        while let Some(batch) = self.batches.front() {
            let segment = PROBES.last_number(dir)?;
            let lines = self.encoder.encode(batch, segment)?;
            segments::append_unlocked(PROBES, dir, segment, &lines)?;
            self.batches.pop_front();
        }
        Ok(())
    }

    /// Reports that everything is written, or that it cannot be written at present.
    fn answer_flushes(&mut self) {
        for flush in self.flushes.drain(..) {
            let _ = flush.send(());
        }
    }

    /// Appends records as they arrive, while a successor has the lock of the directory.
    fn write_unlocked(&mut self, messages: &Receiver<Message>) -> Result<Infallible, Stop> {
        loop {
            if self.pending.is_empty() && self.batches.is_empty() {
                self.answer_flushes();
                match messages.recv() {
                    Ok(Message::Resume) => return Err(Stop::Resumed),
                    Ok(message) => self.accept_handed_over(message),
                    Err(_) => return Err(Stop::Finished),
                }
            }
            self.append_results()?;
            let lines: Result<Vec<Vec<u8>>, io::Error> =
                self.pending.iter().map(|record| line(record)).collect();
            let (dir, lines) = (&self.settings.dir, lines?.concat());
            if !lines.is_empty() {
                segments::append_unlocked(CALLS, dir, CALLS.last_number(dir)?, &lines)?;
            }
            self.pending.clear();
        }
    }

    /// Accepts a message. Returns a request to hand over.
    fn accept(&mut self, message: Message) -> Option<HandOver> {
        match message {
            Message::Record(record) => self.pending.push_back(record),
            Message::Timeline(batch) => self.push_batch(batch),
            Message::Flush(done) => self.flushes.push(done),
            Message::HandOver(request) => return Some(request),
            Message::Resume => {}
        }
        None
    }

    /// Keeps results until they are written. The oldest become dropped observations of the next if
    /// there are too many.
    fn push_batch(&mut self, batch: Box<TimelineBatch>) {
        self.batches.push_back(batch);
        if self.batches.len() > MAX_WAITING_BATCHES
            && let Some(oldest) = self.batches.pop_front()
            && let Some(next) = self.batches.front_mut()
        {
            next.replace(*oldest);
        }
    }

    /// Accepts a message while a successor has the lock.
    fn accept_handed_over(&mut self, message: Message) {
        if let Some(HandOver { done, .. }) = self.accept(message) {
            let _ = done.send(Ok(()));
        }
    }

    /// Accepts messages during a pause. Returns whether a sender is left.
    fn wait(&mut self, messages: &Receiver<Message>, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            match messages.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Message::Record(record)) if self.pending.len() < QUEUE_CAPACITY => {
                    self.pending.push_back(record);
                }
                Ok(Message::Record(_)) => drop(self.dropped.inc()),
                Ok(Message::Timeline(batch)) => self.push_batch(batch),
                Ok(Message::Flush(done)) => drop(done.send(())),
                Ok(Message::HandOver(HandOver { next_id, done })) => {
                    // While another probeshim holds the directory, the file is that of the other.
                    let left = if self.holder_logged {
                        Ok(())
                    } else {
                        handover::write(&self.settings.dir, next_id)
                    };
                    self.handed_over = true;
                    let _ = done.send(left);
                    return true;
                }
                Ok(Message::Resume) => {
                    self.handed_over = false;
                    return true;
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Drops pending records with ids that another probeshim has recorded.
    fn drop_taken(&mut self) {
        if !self.taken_ids.is_empty() {
            let before = self.pending.len();
            self.pending.retain(|record| !self.taken_ids.contains(&record.call.id));
            self.dropped.inc_by((before - self.pending.len()) as u64);
        }
    }

    fn drop_pending(&mut self) {
        if !self.pending.is_empty() {
            self.dropped.inc_by(self.pending.len() as u64);
            warn!(calls = self.pending.len(), "calls were not recorded on disk");
        }
    }

    fn failed(&mut self, error: &io::Error) {
        let reason = error.to_string();
        // The event is recorded before the failure is published, so that a reader of the failure
        // finds the event.
        if !self.failure_published {
            self.failure_published = true;
            let dir = self.settings.dir.display();
            let message = format!(
                "Calls are not recorded in {dir}: {reason}; probeshim retries, and calls are forwarded as before"
            );
            self.events.log_and_record(Event::warning(reason::RECORD_WRITE_FAILED, message));
        }
        self.failure.send_replace(Some(reason));
    }

    fn recovered(&mut self) {
        if self.failure_published {
            self.failure_published = false;
            let message = format!("Calls are recorded in {} again", self.settings.dir.display());
            self.events.log_and_record(Event::normal(reason::RECORD_WRITE_RECOVERED, message));
            self.failure.send_replace(None);
        }
    }
}

pub(super) fn line(record: &CallRecord) -> io::Result<Vec<u8>> {
    let line = serde_json::to_string(&json::Call::from(record))?;
    let mut line = crate::terminal::format::harmless_json(&line).into_bytes();
    line.push(b'\n');
    Ok(line)
}
