//! The journal's thread: it writes records, and begins again where the disk fails or the files are removed.

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::segments::Segments;
use super::{JournalConfig, QUEUE_CAPACITY};
use crate::events::{Event, EventRecorder, reason};
use crate::execsync::CallRecord;
use crate::history::json;
use crate::lockfile::{LockError, LockFile};

/// Pause before the first attempt to write again after a failure; it doubles with each attempt up to
/// [`MAX_RETRY_INTERVAL`].
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Interval of attempts to lock a directory that another probeshim holds.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval of checks that the files still exist, while no record arrives.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Records that are written to the disk's cache at once, and again after a failure.
const MAX_BATCH: usize = 256;

/// Writes records for as long as there is somebody to send them.
pub(super) struct JournalWriter {
    settings: JournalConfig,
    events: Arc<EventRecorder>,
    dropped: Counter,
    /// Why nothing is written, while that is so.
    failure: watch::Sender<Option<String>>,
    /// Records that are not on disk yet, the oldest first.
    pending: VecDeque<Arc<CallRecord>>,
    /// Whether it was logged that another probeshim holds the folder.
    holder_logged: bool,
    /// Whether an event was published for the failure. There is none where another probeshim holds the
    /// folder, which may last as long as both are wanted.
    failure_published: bool,
}

/// Why writing ended.
enum Stop {
    /// No sender is left, and all records are written.
    Finished,
    /// Another probeshim holds the folder.
    Held(LockError),
    /// The files were removed or replaced.
    Removed,
    /// The system refused something.
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
        events: Arc<EventRecorder>,
        dropped: Counter,
        failure: watch::Sender<Option<String>>,
    ) -> Self {
        let (holder_logged, failure_published) = (false, false);
        let pending = VecDeque::new();
        Self { settings, events, dropped, failure, pending, holder_logged, failure_published }
    }

    /// Writes until nobody is left to send anything. After a failure it tries again, less and less often.
    pub(super) fn run(mut self, records: &Receiver<Arc<CallRecord>>) {
        let mut retry_interval = MIN_RETRY_INTERVAL;
        loop {
            let stop = match self.write(records) {
                Ok(never) => match never {},
                Err(stop) => stop,
            };
            // Something was written since the last failure.
            if self.failure.borrow().is_none() {
                retry_interval = MIN_RETRY_INTERVAL;
            }
            let pause = match stop {
                Stop::Finished => return,
                Stop::Held(held) => {
                    if !self.holder_logged {
                        self.holder_logged = true;
                        info!(%held, "calls are recorded on disk once it is free");
                    }
                    self.failure.send_replace(Some(held.to_string()));
                    LOCK_RETRY_INTERVAL
                }
                Stop::Removed => {
                    let dir = self.settings.dir.display();
                    let message =
                        format!("Another process removed the records in {dir}; recording starts again there");
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
            if !self.wait(records, pause) {
                // The last attempt; what it does not write is lost.
                let _ = self.write(records);
                self.drop_pending();
                return;
            }
        }
    }

    /// Opens the folder and writes what comes.
    fn write(&mut self, records: &Receiver<Arc<CallRecord>>) -> Result<std::convert::Infallible, Stop> {
        let dir = &self.settings.dir;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let _lock = LockFile::acquire(&dir.join("calls")).map_err(|error| match error {
            LockError::Io { source, .. } => Stop::Failed(source),
            held @ LockError::Held { .. } => Stop::Held(held),
            not_a_lock @ LockError::NotALock { .. } => Stop::Failed(io::Error::other(not_a_lock)),
        })?;
        let mut segments = Segments::open(dir, self.settings.limit)?;
        self.holder_logged = false;
        if !self.failure_published {
            self.failure.send_replace(None);
        }
        loop {
            if self.pending.is_empty() {
                match records.recv_timeout(REMOVAL_CHECK_INTERVAL) {
                    Ok(record) => self.pending.push_back(record),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(Stop::Finished),
                }
            }
            let room = MAX_BATCH.saturating_sub(self.pending.len());
            self.pending.extend(records.try_iter().take(room));
            if segments.is_removed() {
                return Err(Stop::Removed);
            }
            let batch = self.pending.len().min(MAX_BATCH);
            for record in self.pending.iter().take(batch) {
                segments.append(&line(record)?)?;
            }
            segments.flush()?;
            self.pending.drain(..batch);
            // A full disk is seen only when something is written.
            if batch > 0 {
                self.recovered();
            }
        }
    }

    /// Takes records for as long as a pause lasts. Tells whether there is still somebody to send them.
    fn wait(&mut self, records: &Receiver<Arc<CallRecord>>, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            match records.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(record) if self.pending.len() < QUEUE_CAPACITY => self.pending.push_back(record),
                Ok(_) => drop(self.dropped.inc()),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
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
        // Whoever sees the failure finds the event.
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

fn line(record: &CallRecord) -> io::Result<Vec<u8>> {
    let line = serde_json::to_string(&json::Call::from(record))?;
    let mut line = crate::terminal::format::harmless_json(&line).into_bytes();
    line.push(b'\n');
    Ok(line)
}
