//! Call records on disk: JSON lines in segments, the oldest of which are removed at the size limit.
//!
//! A separate thread writes the records. A record is dropped and counted if the queue is full.
//! Records that the disk does not accept are kept, and written again later.

mod handover;
mod read;
mod segments;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

pub(super) use self::handover::first_id;
pub(super) use self::read::{read_all, read_last};
pub(super) use self::segments::{CALLS, PROBES};
use self::writer::{HandOver, JournalWriter, Message};
use crate::events::EventRecorder;
use crate::execsync::CallRecord;
use crate::history::timeline::TimelineBatch;

/// Maximum number of records that wait to be written; as many again are kept while the disk accepts
/// none.
const QUEUE_CAPACITY: usize = 4_096;

/// Configuration of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Directory of the segments. It is created if it is missing, with mode 0700.
    pub dir: PathBuf,
    /// Maximum number of bytes of all segments together. Results of probes take at most half of it,
    /// and calls the rest.
    pub limit: u64,
}

/// Handle of the journal's thread. Clones share the thread.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
    messages: SyncSender<Message>,
    dropped: Counter,
    failure: watch::Receiver<Option<String>>,
}

impl Journal {
    /// Starts the thread. When all clones are dropped, the thread writes the remaining records and
    /// ends. Failures are recorded in `events`.
    ///
    /// `first_id` is the id of the first call of this process. Returns an error if the thread
    /// cannot be started.
    pub fn start(
        settings: JournalConfig,
        first_id: u64,
        events: Arc<EventRecorder>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (messages, received) = sync_channel(QUEUE_CAPACITY);
        let (failures, failure) = watch::channel(None);
        let (dir, dropped) = (settings.dir.clone(), Counter::default());
        let writer = JournalWriter::new(settings, first_id, events, dropped.clone(), failures);
        let thread =
            thread::Builder::new().name("journal".to_owned()).spawn(move || writer.run(&received))?;
        Ok((Self { dir, messages, dropped, failure }, thread))
    }

    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "records_dropped",
            "Calls that were not recorded on disk, because the queue was full or the disk accepted none",
            self.dropped.clone(),
        );
    }

    /// Queues a record to be written; drops and counts it if the queue is full.
    pub fn write(&self, record: Arc<CallRecord>) {
        if self.messages.try_send(Message::Record(record)).is_err() {
            self.dropped.inc();
        }
    }

    /// Queues results to be written. Returns them if the queue is full.
    #[must_use]
    pub fn write_timeline(&self, batch: TimelineBatch) -> Option<TimelineBatch> {
        match self.messages.try_send(Message::Timeline(Box::new(batch))) {
            Ok(()) => None,
            Err(TrySendError::Full(unsent) | TrySendError::Disconnected(unsent)) => match unsent {
                Message::Timeline(batch) => Some(*batch),
                _ => None,
            },
        }
    }

    /// Blocks until everything that was queued before is written, or the disk does not accept it.
    pub fn flush(&self) {
        let (done, result) = sync_channel(1);
        if self.messages.send(Message::Flush(done)).is_ok() {
            let _ = result.recv();
        }
    }

    /// Leaves the directory to a successor, with the next id of a call. Records of this process are
    /// appended from then on, while the successor has the lock of the directory. Blocks until the
    /// directory is unlocked. Returns an error if the id cannot be written.
    pub fn hand_over(&self, next_id: u64) -> io::Result<()> {
        let (done, result) = sync_channel(1);
        let ended = || io::Error::other("the directory of the calls cannot be written");
        self.messages.send(Message::HandOver(HandOver { next_id, done })).map_err(|_| ended())?;
        result.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Takes the directory back, because no successor has started. Blocks while the queue is full.
    pub fn resume(&self) {
        let _ = self.messages.send(Message::Resume);
    }

    /// Returns the directory of the segments.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the reason why no record can be written at present, if there is one.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    use std::time::{Duration, SystemTime};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::events::EventFilter;
    use crate::lockfile::LockFile;
    use crate::tap::Call;

    fn record(id: u64) -> CallRecord {
        CallRecord::unanalyzed(
            Call::sample(id, "/a/B", SystemTime::UNIX_EPOCH, Duration::from_millis(id)),
            None,
            None,
        )
    }

    fn written(dir: &Path, limit: u64, ids: std::ops::Range<u64>) {
        let settings = JournalConfig { dir: dir.to_owned(), limit };
        let (sender, records) = sync_channel(1000);
        for id in ids {
            sender.send(Message::Record(Arc::new(record(id)))).unwrap();
        }
        drop(sender);
        let writer =
            JournalWriter::new(settings, 0, Arc::default(), Counter::default(), watch::channel(None).0);
        writer.run(&records);
    }

    fn read(dir: &Path) -> Vec<u64> {
        let mut ids = Vec::new();
        read_last(dir, |record| ids.push(record.call.id));
        ids
    }

    #[test]
    fn journal_records_are_read_back_and_the_oldest_segments_are_removed() {
        let dir_guard = tempfile::tempdir().unwrap();
        let dir = dir_guard.path().join("state");
        written(&dir, 1 << 20, 1..4);
        handover::write(&dir, 9).unwrap();
        written(&dir, 1 << 20, 4..6);
        assert_eq!(read(&dir), [1, 2, 3, 4, 5]);
        assert!(!dir.join("next-id").exists(), "an id for a successor is used once");
        written(&dir, 8_000, 6..200);
        let sizes: Vec<u64> = segments::CALLS.list(&dir).unwrap().into_iter().map(|(_, size)| size).collect();
        assert!(sizes.iter().sum::<u64>() <= 8_000 && sizes.len() > 4, "{sizes:?}");
        let last = read(&dir);
        assert!(last.is_sorted() && last.len() > 10 && last.ends_with(&[198, 199]), "{last:?}");
    }

    #[test]
    fn a_truncated_journal_line_is_skipped_and_terminated() {
        let dir_guard = tempfile::tempdir().unwrap();
        written(dir_guard.path(), 1 << 20, 1..3);
        let path = segments::CALLS.path(dir_guard.path(), 1);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 10]).unwrap();
        assert_eq!(read(dir_guard.path()), [1]);
        written(dir_guard.path(), 1 << 20, 3..4);
        assert_eq!(read(dir_guard.path()), [1, 3]);
    }

    /// A journal, to which a test writes records until a condition is true.
    struct Recording {
        journal: Journal,
        thread: JoinHandle<()>,
        events: Arc<EventRecorder>,
        next: u64,
    }

    impl Recording {
        fn start(dir: PathBuf) -> Self {
            let events = Arc::new(EventRecorder::default());
            let settings = JournalConfig { dir, limit: 1 << 20 };
            let (journal, thread) = Journal::start(settings, 0, events.clone()).unwrap();
            Self { journal, thread, events, next: 0 }
        }

        fn until(&mut self, mut so: impl FnMut(&Journal) -> bool) {
            while !so(&self.journal) {
                self.journal.write(Arc::new(record(self.next)));
                self.next += 1;
                thread::park_timeout(Duration::from_millis(1));
            }
        }

        fn reasons(&self) -> Vec<&'static str> {
            self.events.select(&EventFilter::default()).iter().map(|event| event.reason).collect()
        }

        fn end(self) {
            drop(self.journal);
            self.thread.join().unwrap();
        }
    }

    #[test]
    fn recording_resumes_when_the_directory_is_writable_again() {
        let dir_guard = tempfile::tempdir().unwrap();
        let (file, dir) = (dir_guard.path().join("file"), dir_guard.path().join("file/calls"));
        fs::write(&file, "").unwrap();
        let mut recording = Recording::start(dir.clone());
        recording.until(|journal| journal.failure().is_some());
        let reason = recording.journal.failure().unwrap();
        assert!(reason.contains("Not a directory"), "{reason}");
        assert_eq!(recording.reasons(), ["RecordWriteFailed"]);
        fs::remove_file(&file).unwrap();
        recording.until(|journal| journal.failure().is_none());
        assert_eq!(recording.reasons(), ["RecordWriteFailed", "RecordWriteRecovered"]);
        let last = recording.next - 1;
        recording.end();
        let ids = read(&dir);
        assert_eq!(ids, (0..=last).collect::<Vec<_>>(), "what waited meanwhile is not lost");
    }

    #[test]
    fn a_record_failure_names_the_probeshim_that_holds_the_directory() {
        let dir_guard = tempfile::tempdir().unwrap();
        let lock = LockFile::acquire(&dir_guard.path().join("calls")).unwrap();
        let mut recording = Recording::start(dir_guard.path().to_owned());
        recording.until(|journal| journal.failure().is_some());
        let reason = recording.journal.failure().unwrap();
        assert!(reason.starts_with("another probeshim (pid"), "{reason}");
        drop(lock);
        // The failure also ends if no record arrives meanwhile.
        while recording.journal.failure().is_some() {
            thread::park_timeout(Duration::from_millis(1));
        }
        recording.until(|_| !read(dir_guard.path()).is_empty());
        assert_eq!(recording.reasons(), Vec::<&str>::new(), "a successor is no reason to worry");
        recording.end();
    }

    /// The other probeshim did not drain when this one started, so that both have given out the
    /// same ids.
    #[test]
    fn an_id_that_another_probeshim_has_recorded_meanwhile_is_not_recorded_again() {
        let dir_guard = tempfile::tempdir().unwrap();
        let dir = dir_guard.path();
        let lock = LockFile::acquire(&dir.join("calls")).unwrap();
        let mut recording = Recording::start(dir.to_owned());
        recording.until(|journal| journal.failure().is_some());
        let mut segments = segments::Segments::open(segments::CALLS, dir, 1 << 20).unwrap();
        segments.append(&writer::line(&record(0)).unwrap()).unwrap();
        segments.flush().unwrap();
        drop(lock);
        recording.until(|_| read(dir).len() > 1);
        assert_eq!(read(dir)[..2], [0, 1]);
        assert_eq!(recording.journal.dropped.get(), 1);
        recording.end();
    }

    #[test]
    fn a_journal_that_was_handed_over_is_complete_with_the_records_of_each_process() {
        let dir_guard = tempfile::tempdir().unwrap();
        let dir = dir_guard.path();
        let mut first = Recording::start(dir.to_owned());
        first.until(|_| !read(dir).is_empty());
        first.journal.hand_over(1_000).unwrap();
        assert!(dir.join("next-id").exists());
        // The successor has the lock, and hands over too, while the first still records.
        let mut second = Recording::start(dir.to_owned());
        second.next = 1_000;
        second.until(|_| read(dir).contains(&1_000));
        assert_eq!(second.journal.failure(), None);
        second.journal.hand_over(2_000).unwrap();
        let third = LockFile::acquire(&dir.join("calls")).unwrap();
        let (wanted, second_wanted) = (first.next, second.next);
        first.until(|_| read(dir).contains(&wanted));
        second.until(|_| read(dir).contains(&second_wanted));
        drop(third);
        // If no successor starts, the journal is locked again.
        second.journal.resume();
        second.until(|_| LockFile::acquire(&dir.join("calls")).is_err());
        let last = [first.next, second.next].map(|next| next - 1);
        first.end();
        second.end();
        let mut ids = read(dir);
        ids.sort_unstable();
        assert_eq!(ids, (0..=last[0]).chain(1_000..=last[1]).collect::<Vec<_>>());
    }

    #[test]
    fn a_removed_record_directory_is_reported_and_created_again() {
        let dir_guard = tempfile::tempdir().unwrap();
        let dir = dir_guard.path().join("state/calls");
        let mut recording = Recording::start(dir.clone());
        recording.until(|_| !read(&dir).is_empty());
        fs::remove_dir_all(dir_guard.path().join("state")).unwrap();
        recording.until(|_| !read(&dir).is_empty());
        assert_eq!(recording.reasons(), ["RecordRemoved"]);
        assert_eq!(recording.journal.failure(), None);
        recording.end();
    }

    /// Segments of an older version, of a newer version and without a version are not changed, not
    /// read, and do not count for the limit.
    #[test]
    fn journal_segments_of_another_version_are_set_aside_unchanged() {
        let dir_guard = tempfile::tempdir().unwrap();
        let dir = dir_guard.path();
        written(dir, 1 << 20, 1..3);
        let bytes = fs::read(segments::CALLS.path(dir, 1)).unwrap();
        let others = [("v0-", "v0"), ("v2-", "v2"), ("", "no-version")];
        let names = others.map(|(version, name)| {
            let old = format!("calls-{version}00000007.jsonl");
            (dir.join(&old), dir.join(format!("{old}.{name}-set-aside-1")))
        });
        for (old, _) in &names {
            fs::write(old, &bytes).unwrap();
        }
        // Only regular files are segments.
        let directory = dir.join("calls-v3-00000001.jsonl");
        fs::create_dir(&directory).unwrap();
        assert_eq!(read(dir), [1, 2], "not read, also before they are set aside");
        written(dir, 1, 3..5);
        for (old, new) in &names {
            assert!(!old.exists() && fs::read(new).unwrap() == bytes, "{}", old.display());
        }
        assert!(directory.is_dir());
        assert_eq!(read(dir).last(), Some(&4));
        // If files with these names appear again, nothing is overwritten.
        fs::write(&names[2].0, "other").unwrap();
        written(dir, 1 << 20, 5..6);
        assert_eq!(fs::read(&names[2].1).unwrap(), bytes);
        let second = dir.join("calls-00000007.jsonl.no-version-set-aside-2");
        assert_eq!(fs::read_to_string(second).unwrap(), "other");
        let numbers: Vec<u64> =
            segments::CALLS.list(dir).unwrap().into_iter().map(|(number, _)| number).collect();
        assert!(
            numbers.iter().all(|number| *number < 7),
            "{numbers:?}: numbers of other versions do not count"
        );
    }

    #[test]
    fn journal_segments_that_are_not_regular_files_are_ignored() {
        let dir_guard = tempfile::tempdir().unwrap();
        written(dir_guard.path(), 1 << 20, 1..3);
        let fifo = segments::CALLS.path(dir_guard.path(), 99);
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("/dev/zero", segments::CALLS.path(dir_guard.path(), 98)).unwrap();
        fs::create_dir(segments::CALLS.path(dir_guard.path(), 97)).unwrap();
        assert_eq!(read(dir_guard.path()), [1, 2]);
        written(dir_guard.path(), 1 << 20, 3..5);
        assert_eq!(read(dir_guard.path()), [1, 2, 3, 4]);
        written(dir_guard.path(), 1, 5..7);
        assert_eq!(read(dir_guard.path()).last(), Some(&6));
        assert!(fs::symlink_metadata(fifo).unwrap().file_type().is_fifo(), "it is left alone");
    }
}
