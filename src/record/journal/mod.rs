//! Records on disk: lines of JSON in segments, of which the oldest go when there are too many.
//!
//! A thread of its own writes. What it has no time for is dropped and counted; what the disk will not take ends it, with one warning.

mod read;
mod segments;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tracing::{info, warn};

pub(super) use self::read::read_last;
use self::segments::Segments;
use super::shape;
use crate::exec::Record;
use crate::socket::{Lock, LockError};

/// Records that may wait to be written.
const WAITING: usize = 4_096;

/// From one attempt to take a folder that another probeshim still holds to the next.
const RETRY: Duration = Duration::from_millis(500);

/// What the journal runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where segments are kept; made where it is missing, for its owner alone.
    pub folder: PathBuf,
    /// Bytes that they may have together.
    pub limit: u64,
}

/// The way to the journal's thread. Copies share it.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
    lines: SyncSender<Arc<Record>>,
    dropped: Counter,
    off: Arc<OnceLock<String>>,
}

impl Journal {
    /// Starts the thread, which has written everything and ended once all copies are dropped.
    pub fn start(settings: Settings) -> io::Result<(Self, JoinHandle<()>)> {
        let (lines, written) = sync_channel(WAITING);
        let off = Arc::new(OnceLock::new());
        let (folder, reason) = (settings.folder.clone(), off.clone());
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(move || {
            if let Err(error) = write(&settings, &written) {
                let folder = settings.folder.display();
                warn!(%folder, %error, "calls are not recorded on disk any more; traffic is not touched");
                let _ = reason.set(error.to_string());
            }
        })?;
        Ok((Self { folder, lines, dropped: Counter::default(), off }, thread))
    }

    /// Adds what is counted of it to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "records_dropped",
            "Calls that were not recorded on disk, because too many waited or the disk took no more",
            self.dropped.clone(),
        );
    }

    /// Has a record written.
    pub fn write(&self, record: Arc<Record>) {
        if self.lines.try_send(record).is_err() {
            self.dropped.inc();
        }
    }

    /// Where it writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Why it does not write any more, if it does not.
    #[must_use]
    pub fn why_off(&self) -> Option<&str> {
        self.off.get().map(String::as_str)
    }
}

/// Writes what comes until nobody is left to send anything.
fn write(settings: &Settings, records: &Receiver<Arc<Record>>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(&settings.folder)?;
    let _lock = lock(&settings.folder)?;
    let mut segments = Segments::open(&settings.folder, settings.limit)?;
    while let Ok(record) = records.recv() {
        segments.append(&line(&record)?)?;
        // Everything that waits, and then at once to the disk's cache.
        for record in records.try_iter() {
            segments.append(&line(&record)?)?;
        }
        segments.flush()?;
    }
    Ok(())
}

fn line(record: &Record) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&shape::Call::from(record))?;
    line.push(b'\n');
    Ok(line)
}

/// Takes the folder. Waits for the probeshim before this one, which records its last calls; what is to be recorded waits in the queue.
fn lock(folder: &Path) -> io::Result<Lock> {
    let mut is_told = false;
    loop {
        match Lock::take(&folder.join("calls")) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Io { source, .. }) => return Err(source),
            Err(held @ LockError::Held { .. }) if !is_told => {
                info!(%held, "calls are recorded on disk once it is free");
                is_told = true;
            }
            Err(LockError::Held { .. }) => {}
        }
        thread::park_timeout(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use super::*;
    use crate::tap::Call;

    fn record(id: u64) -> Record {
        Record::plain(Call::sample(id, "/a/B", SystemTime::UNIX_EPOCH, Duration::from_millis(id)), None, None)
    }

    fn written(folder: &Path, limit: u64, ids: std::ops::Range<u64>) {
        let settings = Settings { folder: folder.to_owned(), limit };
        let (sender, records) = sync_channel(1000);
        for id in ids {
            sender.send(Arc::new(record(id))).unwrap();
        }
        drop(sender);
        write(&settings, &records).unwrap();
    }

    fn read(folder: &Path) -> Vec<u64> {
        let mut ids = Vec::new();
        read_last(folder, |record| ids.push(record.call.id));
        ids
    }

    #[test]
    fn what_is_written_is_read_and_the_oldest_go() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("state");
        written(&folder, 1 << 20, 1..4);
        written(&folder, 1 << 20, 4..6);
        assert_eq!(read(&folder), [1, 2, 3, 4, 5]);
        written(&folder, 8_000, 6..200);
        let sizes: Vec<u64> = segments::of(&folder).unwrap().into_iter().map(|(_, size)| size).collect();
        assert!(sizes.iter().sum::<u64>() <= 8_000 && sizes.len() > 4, "{sizes:?}");
        let last = read(&folder);
        assert!(last.is_sorted() && last.len() > 10 && last.ends_with(&[198, 199]), "{last:?}");
    }

    #[test]
    fn a_torn_line_is_passed_over_and_closed() {
        let place = tempfile::tempdir().unwrap();
        written(place.path(), 1 << 20, 1..3);
        let path = segments::path_of(place.path(), 1);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 10]).unwrap();
        assert_eq!(read(place.path()), [1]);
        written(place.path(), 1 << 20, 3..4);
        assert_eq!(read(place.path()), [1, 3]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_not_the_end() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(ends(file.join("below")).contains("Not a directory"));
    }

    #[test]
    fn a_disk_that_is_full_ends_it_and_what_comes_is_counted() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", segments::path_of(place.path(), 1)).unwrap();
        assert!(ends(place.path().to_owned()).contains("No space left on device"));
    }

    /// Writes until that is over, and returns the reason.
    fn ends(folder: PathBuf) -> String {
        let (journal, thread) = Journal::start(Settings { folder, limit: 1 << 20 }).unwrap();
        for id in 0.. {
            journal.write(Arc::new(record(id)));
            if journal.why_off().is_some() {
                break;
            }
            thread::yield_now();
        }
        thread.join().unwrap();
        let before = journal.dropped.get();
        journal.write(Arc::new(record(0)));
        assert_eq!(journal.dropped.get(), before + 1);
        journal.why_off().unwrap().to_owned()
    }
}
