//! Records on disk: lines of JSON in segments, of which the oldest go when there are too many.
//!
//! A thread of its own writes. What it has no time for is dropped and counted; what the disk will not take ends it, with one warning.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::Hash;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tracing::{info, warn};

use super::shape;
use crate::exec::Record;
use crate::relay::Peer;
use crate::socket::{Lock, LockError};
use crate::tap::{Container, Pod};

/// Records that may wait to be written.
const WAITING: usize = 4_096;

/// Segments that the limit is divided into, at least, and how long one becomes at most.
const SEGMENTS: u64 = 8;
const LONGEST_SEGMENT: u64 = 64 << 20;

/// Bytes that are read at the start, from the end of what is written: about as many calls as are kept in memory.
const READ: u64 = 8 << 20;

/// From one attempt to take a folder that another probeshim still holds to the next.
const RETRY: Duration = Duration::from_millis(500);

/// Bytes of a line that are read: no record is as long.
const LONGEST_LINE: u64 = 1 << 20;

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

/// The segments of a folder.
struct Segments {
    folder: PathBuf,
    limit: u64,
    /// Numbers and sizes, the oldest first; the last is written to.
    known: Vec<(u64, u64)>,
    file: BufWriter<File>,
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
    pub fn is_off(&self) -> Option<&str> {
        self.off.get().map(String::as_str)
    }
}

/// Hands over the last records of a folder, in the order in which they were written. What cannot be read, as a line that a crash tore, is passed
/// over.
pub(super) fn read_last(folder: &Path, mut found: impl FnMut(Record)) {
    let (mut left, mut parts) = (READ, Vec::new());
    for (number, size) in segments(folder).unwrap_or_default().into_iter().rev() {
        if left == 0 {
            break;
        }
        let from = size.saturating_sub(left);
        parts.push((path_of(folder, number), from));
        left -= size - from;
    }
    let mut shared = Shared::default();
    for (path, from) in parts.into_iter().rev() {
        // Whoever asks sees that these are all that can be read.
        let _ = read_segment(&path, from, |record| found(shared.share(record)));
    }
}

fn read_segment(path: &Path, from: u64, mut found: impl FnMut(Record)) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    while reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? > 0 {
        let call: Option<shape::Call> = serde_json::from_slice(&line).ok();
        if let Some(record) = call.and_then(|call| Record::try_from(call).ok()) {
            found(record);
        }
        line.clear();
    }
    Ok(())
}

/// What many records have in common, once.
#[derive(Default)]
struct Shared {
    pods: HashSet<Arc<Pod>>,
    containers: HashSet<Arc<Container>>,
    peers: HashSet<Arc<Peer>>,
}

impl Shared {
    fn share(&mut self, mut record: Record) -> Record {
        if let Some(call) = Arc::get_mut(&mut record.call) {
            call.pod = call.pod.take().map(|pod| one_of(&mut self.pods, pod));
            call.container = call.container.take().map(|container| one_of(&mut self.containers, container));
            call.peer = call.peer.take().map(|peer| one_of(&mut self.peers, peer));
        }
        record
    }
}

fn one_of<T: Eq + Hash>(known: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    known.get(&new).cloned().unwrap_or_else(|| {
        known.insert(new.clone());
        new
    })
}

/// Writes what comes until nobody is left to send anything.
fn write(settings: &Settings, records: &Receiver<Arc<Record>>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(&settings.folder)?;
    let _lock = lock(&settings.folder)?;
    let mut segments = Segments::open(settings)?;
    while let Ok(record) = records.recv() {
        segments.add(&record)?;
        // Everything that waits, and then at once to the disk's cache.
        for record in records.try_iter() {
            segments.add(&record)?;
        }
        segments.file.flush()?;
    }
    Ok(())
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

impl Segments {
    fn open(settings: &Settings) -> io::Result<Self> {
        let Settings { folder, limit } = settings.clone();
        let mut known = segments(&folder)?;
        let last = known.last().map_or(1, |(number, _)| *number);
        let mut file = append_to(&path_of(&folder, last))?;
        let size = file.metadata()?.len();
        if known.is_empty() {
            known.push((last, size));
        }
        let mut segments = Self { folder, limit, known, file: BufWriter::new(file.try_clone()?) };
        if size > 0 && !ends_with_newline(&mut file)? {
            segments.write(b"\n")?;
        }
        Ok(segments)
    }

    fn add(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(&shape::Call::from(record))?;
        line.push(b'\n');
        let segment = (self.limit / SEGMENTS).clamp(1, LONGEST_SEGMENT);
        let is_full = self.known.last().is_some_and(|(_, size)| *size >= segment);
        if is_full {
            self.rotate()?;
        }
        self.write(&line)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if let Some((_, size)) = self.known.last_mut() {
            *size += bytes.len() as u64;
        }
        Ok(())
    }

    /// Begins another segment, and removes the oldest until there is room for it.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let next = self.known.last().map_or(1, |(number, _)| number + 1);
        let room = self.limit - self.limit / SEGMENTS;
        while self.known.iter().map(|(_, size)| size).sum::<u64>() > room {
            let (oldest, _) = self.known.remove(0);
            match fs::remove_file(path_of(&self.folder, oldest)) {
                // Somebody else has removed it.
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        self.file = BufWriter::new(append_to(&path_of(&self.folder, next))?);
        self.known.push((next, 0));
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("calls-{number:08}.jsonl"))
}

/// Numbers and sizes of the segments of a folder, the oldest first.
fn segments(folder: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("calls-")?.strip_suffix(".jsonl")?.parse().ok());
        if let Some(number) = number {
            found.push((number, entry.metadata()?.len()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
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
        let size: u64 = segments(&folder).unwrap().iter().map(|(_, size)| size).sum();
        assert!(size <= 8_000 && segments(&folder).unwrap().len() > 4, "{size}");
        let last = read(&folder);
        assert!(last.is_sorted() && last.len() > 10 && last.ends_with(&[198, 199]), "{last:?}");
    }

    #[test]
    fn a_torn_line_is_passed_over_and_closed() {
        let place = tempfile::tempdir().unwrap();
        written(place.path(), 1 << 20, 1..3);
        let path = path_of(place.path(), 1);
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
        let settings = Settings { folder: file.join("below"), limit: 1 << 20 };
        let (journal, _) = Journal::start(settings).unwrap();
        for id in 0.. {
            journal.write(Arc::new(record(id)));
            if journal.is_off().is_some() {
                break;
            }
            thread::yield_now();
        }
        journal.write(Arc::new(record(0)));
        assert!(journal.dropped.get() > 0);
    }
}
