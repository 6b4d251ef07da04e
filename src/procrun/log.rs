//! Log of a container, in the format of the CRI: time, stream, tag of a full or partial line, and
//! the line.

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use rustix::fs::OFlags;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::{spawn_blocking, yield_now};
use tracing::{error, warn};

use super::error::CriError;
use crate::gofmt::system_error;

/// Length of the longest line that is not split, as with containerd's default
/// `max_container_log_line_size`.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Maximum number of bytes of one read. Each read has one timestamp.
const MAX_CHUNK_BYTES: usize = 32 << 10;

/// A log file, or none if the container has no log.
///
/// File operations run on a thread for blocking work. A slow disk delays only the container that
/// writes to it: the container's pipes fill up, as with containerd.
#[derive(Debug)]
pub(super) struct LogFile {
    path: Option<PathBuf>,
    file: Mutex<Option<File>>,
}

/// Turns the bytes of one stream into records and appends them to a log file.
#[derive(Debug)]
struct RecordWriter {
    log: Arc<LogFile>,
    stream: &'static str,
    lines: Lines,
    is_failing: bool,
}

/// Splits the bytes of a stream into the lines of a log.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
}

impl LogFile {
    /// Opens the log at `path` and creates the directories above it. Without a path the output is
    /// dropped.
    pub(super) async fn open(path: Option<PathBuf>) -> Result<Self, CriError> {
        blocking(move || {
            let file = path.as_deref().map(open).transpose()?;
            Ok(Self { path, file: Mutex::new(file) })
        })
        .await?
    }

    /// Opens the path again, after the file there was moved away. After this returns, nothing more
    /// is written to the old file. A closed log stays closed.
    pub(super) async fn reopen(self: &Arc<Self>) -> Result<(), CriError> {
        let log = self.clone();
        blocking(move || {
            // The lock is held while the file is opened: of two callers, the one that opens last
            // sets the file.
            let mut file = log.file();
            if let (Some(file), Some(path)) = (file.as_mut(), log.path.as_deref()) {
                *file = open(path)?;
            }
            Ok(())
        })
        .await?
    }

    /// Closes the file. After this returns, nothing more is written.
    pub(super) async fn close(self: &Arc<Self>) {
        let log = self.clone();
        // The only possible error is a panic, which does not make the lock unusable.
        let _ = blocking(move || *log.file() = None).await;
    }

    /// Writes the output of a stream to the log until the stream ends. A chunk is read after the
    /// previous one was written. Other tasks run after each chunk, because the stream of a
    /// container that writes without pause is always readable.
    pub(super) async fn follow(self: Arc<Self>, stream: &'static str, mut output: impl AsyncRead + Unpin) {
        let is_dropped = self.path.is_none();
        let mut writer = RecordWriter { log: self, stream, lines: Lines::default(), is_failing: false };
        let mut chunk = vec![0; MAX_CHUNK_BYTES];
        loop {
            let length = output.read(&mut chunk).await.unwrap_or(0);
            if !is_dropped {
                let read_at = Timestamp::now();
                let written = blocking(move || {
                    writer.write(&chunk[..length], read_at);
                    (writer, chunk)
                });
                match written.await {
                    Ok(back) => (writer, chunk) = back,
                    Err(reason) => {
                        error!(stream, %reason, "cannot write the rest of a container's output");
                        return;
                    }
                }
            }
            if length == 0 {
                return;
            }
            yield_now().await;
        }
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordWriter {
    /// Appends the lines of a chunk that was read at `read_at`. An empty chunk is the end of the
    /// stream. A failure is logged once: the container continues without its log, as with
    /// containerd.
    fn write(&mut self, chunk: &[u8], read_at: Timestamp) {
        let heads = ["P", "F"].map(|tag| format!("{read_at:.9} {} {tag} ", self.stream));
        let mut records = Vec::new();
        let mut record = |is_whole, line: &[u8]| {
            records.extend_from_slice(heads[usize::from(is_whole)].as_bytes());
            records.extend_from_slice(line);
            records.push(b'\n');
        };
        if chunk.is_empty() {
            self.lines.end(&mut record);
        } else {
            self.lines.take(chunk, &mut record);
        }
        let written = self.log.file().as_mut().map_or(Ok(()), |file| file.write_all(&records));
        if let Err(error) = written
            && !std::mem::replace(&mut self.is_failing, true)
        {
            warn!(path = ?self.log.path, %error, "cannot write a container's log");
        }
    }
}

impl Lines {
    fn take(&mut self, mut bytes: &[u8], record: &mut impl FnMut(bool, &[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add(&bytes[..end], record);
            bytes = &bytes[end + 1..];
            let line = self.rest.strip_suffix(b"\r").unwrap_or(&self.rest);
            record(true, line);
            self.rest.clear();
        }
        self.add(bytes, record);
    }

    /// Adds bytes to the current line. Records partial lines while the line exceeds the maximum
    /// length.
    fn add(&mut self, bytes: &[u8], record: &mut impl FnMut(bool, &[u8])) {
        self.rest.extend_from_slice(bytes);
        while self.rest.len() > MAX_LINE_BYTES {
            record(false, &self.rest[..MAX_LINE_BYTES]);
            self.rest.drain(..MAX_LINE_BYTES);
        }
    }

    /// Records the last line of a stream that does not end with a newline.
    fn end(&mut self, record: &mut impl FnMut(bool, &[u8])) {
        if !self.rest.is_empty() {
            record(false, &self.rest);
            self.rest.clear();
        }
    }
}

/// Runs `work`, which may block, on a thread for blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CriError> {
    spawn_blocking(work).await.map_err(|fault| CriError::unknown(fault.to_string()))
}

/// Returns the path of a container's log below the sandbox's log directory, or `None` if
/// `directory` or `file` is empty. Fails if the path leads out of the directory.
pub(super) fn path(directory: &str, file: &str) -> Result<Option<PathBuf>, CriError> {
    if directory.is_empty() || file.is_empty() {
        return Ok(None);
    }
    let mut below = PathBuf::new();
    for part in Path::new(file).components() {
        let stays = match part {
            Component::Normal(part) => {
                below.push(part);
                true
            }
            Component::ParentDir => below.pop(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => true,
        };
        if !stays {
            return Err(CriError::invalid(format!(
                "container log path {file:?} escapes the sandbox log directory {directory:?}"
            )));
        }
    }
    if below.as_os_str().is_empty() {
        return Err(CriError::invalid(format!("container log path {file:?} names no file")));
    }
    Ok(Some(Path::new(directory).join(below)))
}

fn open(path: &Path) -> Result<File, CriError> {
    let failed = |error_text: String| {
        CriError::unknown(format!("open {}: {error_text}", path.display()))
            .context("failed to create and open log file")
    };
    create_dirs(path.parent().unwrap_or(path))
        .map_err(|refusal| refusal.context("failed to create and open log file"))?;
    // Without NONBLOCK, the open of a FIFO without a reader would block.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().append(true).create(true).mode(0o640).custom_flags(nonblock).open(path);
    let file = file.map_err(|error| failed(system_error(&error)))?;
    let kind = file.metadata().map_err(|error| failed(system_error(&error)))?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(failed("not a file".to_owned()));
    }
    Ok(file)
}

/// Creates a directory and its parents, which only their owner may change, whatever the umask is.
/// The error names the directory that could not be created.
fn create_dirs(dir: &Path) -> Result<(), CriError> {
    let Err(error) = DirBuilder::new().recursive(true).mode(0o755).create(dir) else { return Ok(()) };
    // The topmost path that is no directory has caused the error.
    let above = dir.ancestors().filter(|above| !above.as_os_str().is_empty()).collect::<Vec<_>>();
    let blocked = above.into_iter().rev().find(|above| !above.is_dir()).unwrap_or(dir);
    Err(CriError::unknown(format!("mkdir {}: {}", blocked.display(), system_error(&error))))
}

#[cfg(test)]
mod tests;
