use std::fs;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio_util::task::AbortOnDropHandle;

use super::*;

/// Timeout of a wait that ends quickly unless the runtime's thread is blocked.
const NEVER: Duration = Duration::from_secs(60);

/// A stream of empty lines that is always readable and records each read.
struct Flood {
    left: usize,
    note: Box<dyn FnMut() + Send>,
}

impl AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        (self.note)();
        let length = self.left.min(buffer.remaining());
        buffer.put_slice(&vec![b'\n'; length]);
        self.left -= length;
        Poll::Ready(Ok(()))
    }
}

/// Starts a task that counts its turns.
fn count_turns() -> (Arc<AtomicUsize>, AbortOnDropHandle<()>) {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let counting = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    (turns, AbortOnDropHandle::new(counting))
}

fn log_to(file: File) -> Arc<LogFile> {
    Arc::new(LogFile { path: Some("a log".into()), file: Mutex::new(Some(file)) })
}

#[tokio::test]
async fn other_tasks_run_after_each_chunk_of_a_container_that_writes_without_pause() {
    const CHUNKS: usize = 20;
    for has_log in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = has_log.then(|| dir.path().join("log"));
        let log = Arc::new(LogFile::open(path.clone()).await.unwrap());
        let (turns, _counting) = count_turns();
        let (counted, read_at) = (turns.clone(), Arc::new(Mutex::new(Vec::new())));
        let reads = read_at.clone();
        let note = Box::new(move || reads.lock().unwrap().push(counted.load(Ordering::Relaxed)));
        let following = tokio::spawn(log.follow("stdout", Flood { left: CHUNKS * MAX_CHUNK_BYTES, note }));
        following.await.unwrap();
        let read_at = read_at.lock().unwrap();
        assert_eq!(read_at.len(), CHUNKS + 1, "each read is a whole chunk, and the last is the end");
        // The scheduler may poll a task twice, but not more often, before another task has its
        // turn.
        let has_pause = read_at.windows(3).all(|reads| reads[0] < reads[2]);
        assert!(has_pause, "turns of another task at each read, with a log: {has_log}: {read_at:?}");
        if let Some(path) = path {
            let written = fs::read_to_string(path).unwrap();
            assert_eq!(written.lines().count(), CHUNKS * MAX_CHUNK_BYTES);
        }
    }
}

#[tokio::test]
async fn lines_of_one_chunk_share_its_timestamp() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = Arc::new(LogFile::open(Some(path.clone())).await.unwrap());
    log.follow("stderr", &b"one\ntwo\nthree"[..]).await;
    let written = fs::read_to_string(path).unwrap();
    let parts: Vec<(&str, &str)> = written.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(
        parts.iter().map(|part| part.1).collect::<Vec<_>>(),
        ["stderr F one", "stderr F two", "stderr P three"]
    );
    assert!(parts[0].0 == parts[1].0 && parts[0].0.parse::<Timestamp>().is_ok(), "{written}");
}

/// The log is a pipe. Only one byte is read from it until another task has run, so a write on the
/// runtime's thread would block forever.
#[tokio::test]
async fn a_blocked_log_delays_only_its_container() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let log = log_to(File::from(std::os::fd::OwnedFd::from(writer)));
    let (others_ran, has_run) = mpsc::channel();
    let is_written = Arc::new(AtomicBool::new(false));
    let noted = is_written.clone();
    let draining = std::thread::spawn(move || {
        let mut written = vec![0];
        reader.read_exact(&mut written).unwrap();
        noted.store(true, Ordering::Relaxed);
        let is_prompt = has_run.recv_timeout(NEVER).is_ok();
        reader.read_to_end(&mut written).unwrap();
        (is_prompt, written)
    });
    let flood = Flood { left: 3 * MAX_CHUNK_BYTES, note: Box::new(|| {}) };
    let following = tokio::spawn(log.clone().follow("stdout", flood));
    while !is_written.load(Ordering::Relaxed) {
        yield_now().await;
    }
    // The lines of one chunk do not fit into a pipe.
    assert!(!following.is_finished());
    let closing = tokio::spawn(async move { log.close().await });
    yield_now().await;
    others_ran.send(()).unwrap();
    following.await.unwrap();
    closing.await.unwrap();
    let (is_prompt, written) = draining.join().unwrap();
    assert!(is_prompt, "another task ran while the log could not be written to");
    assert!(written.ends_with(b"stdout F \n"));
}

#[tokio::test]
async fn a_closed_container_log_is_not_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = Arc::new(LogFile::open(Some(path.clone())).await.unwrap());
    log.close().await;
    log.reopen().await.unwrap();
    log.follow("stdout", &b"late\n"[..]).await;
    assert_eq!(fs::read_to_string(path).unwrap(), "");
}

fn records(chunks: &[&[u8]]) -> Vec<(bool, Vec<u8>)> {
    let (mut lines, mut records) = (Lines::default(), Vec::new());
    let mut record = |is_whole, line: &[u8]| records.push((is_whole, line.to_owned()));
    for chunk in chunks {
        lines.take(chunk, &mut record);
    }
    lines.end(&mut record);
    records
}

#[test]
fn log_records_end_with_their_line_and_an_incomplete_last_line_is_partial() {
    assert_eq!(
        records(&[b"one\ntw", b"o\r\n\nthree"]),
        [(true, b"one".into()), (true, b"two".into()), (true, b"".into()), (false, b"three".into())]
    );
    assert_eq!(records(&[]), []);
}

#[test]
fn a_long_log_line_is_split_into_partial_records() {
    let long = vec![b'x'; 2 * MAX_LINE_BYTES + 1];
    let cut = |line: &[u8], ends: bool| {
        let end: &[u8] = if ends { b"\n" } else { b"" };
        records(&[line, end]).into_iter().map(|(is_whole, line)| (is_whole, line.len())).collect::<Vec<_>>()
    };
    assert_eq!(cut(&long, true), [(false, MAX_LINE_BYTES), (false, MAX_LINE_BYTES), (true, 1)]);
    assert_eq!(cut(&long[..MAX_LINE_BYTES], true), [(true, MAX_LINE_BYTES)]);
    assert_eq!(cut(&long[..=MAX_LINE_BYTES], false), [(false, MAX_LINE_BYTES), (false, 1)]);
}

#[test]
fn log_paths_do_not_leave_the_log_directory() {
    let below = |file| path("/logs/pod", file).map(|path| path.map(|path| path.display().to_string()));
    assert_eq!(below("main/0.log").unwrap().as_deref(), Some("/logs/pod/main/0.log"));
    assert_eq!(below("/main.log").unwrap().as_deref(), Some("/logs/pod/main.log"));
    assert_eq!(below("a/../main.log").unwrap().as_deref(), Some("/logs/pod/main.log"));
    assert_eq!(below("").unwrap(), None);
    assert_eq!(path("", "main.log").unwrap(), None);
    for wrong in ["../main.log", "a/../../main.log", "..", "/.."] {
        assert!(below(wrong).unwrap_err().to_string().contains("escapes"), "{wrong}");
    }
    assert!(below("./").is_err() && below("a/..").is_err());
}
