//! A container's log, in the format of the CRI: time, stream, whether the line is whole, and the line.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use rustix::fs::OFlags;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tracing::warn;

use super::refusal::{Refusal, words_of};

/// The longest line that stays whole, as with containerd's default `max_container_log_line_size`.
const LONGEST_LINE: usize = 16 << 10;

/// Bytes that are read at once.
const CHUNK: usize = 32 << 10;

/// A log file, or nowhere.
#[derive(Debug)]
pub(super) struct LogFile {
    path: Option<PathBuf>,
    file: Mutex<Option<File>>,
}

/// Cuts what a stream says into the lines of a log.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
}

impl LogFile {
    /// Opens the log at `path`, with the folders above it; without a path, what is written is dropped.
    pub(super) fn open(path: Option<PathBuf>) -> Result<Self, Refusal> {
        let file = path.as_deref().map(open).transpose()?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Goes on in a new file where the old one was moved away.
    pub(super) fn reopen(&self) -> Result<(), Refusal> {
        let file = self.path.as_deref().map(open).transpose()?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    /// Gives the file up: nothing more is written.
    pub(super) fn close(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Writes down what a stream says, until it ends.
    pub(super) async fn follow(&self, name: &'static str, mut stream: impl AsyncRead + Unpin) {
        let mut lines = Lines::default();
        let mut chunk = vec![0; CHUNK];
        let mut is_failing = false;
        loop {
            let length = stream.read(&mut chunk).await.unwrap_or(0);
            let mut records = Vec::new();
            let mut record = |is_whole, line: &[u8]| write_record(&mut records, name, is_whole, line);
            if length == 0 {
                lines.end(&mut record);
            } else {
                lines.take(&chunk[..length], &mut record);
            }
            // Said once: the container goes on, as with containerd, whatever becomes of its log.
            match self.write(&records) {
                Err(error) if !is_failing => {
                    warn!(path = ?self.path, %error, "a container's log cannot be written");
                    is_failing = true;
                }
                _ => {}
            }
            if length == 0 {
                return;
            }
        }
    }

    fn write(&self, records: &[u8]) -> io::Result<()> {
        match &mut *self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.write_all(records),
            None => Ok(()),
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

    /// Adds to the line; what makes it too long goes before as a partial one.
    fn add(&mut self, bytes: &[u8], record: &mut impl FnMut(bool, &[u8])) {
        self.rest.extend_from_slice(bytes);
        while self.rest.len() > LONGEST_LINE {
            record(false, &self.rest[..LONGEST_LINE]);
            self.rest.drain(..LONGEST_LINE);
        }
    }

    /// What was said last, without the end of a line.
    fn end(&mut self, record: &mut impl FnMut(bool, &[u8])) {
        if !self.rest.is_empty() {
            record(false, &self.rest);
            self.rest.clear();
        }
    }
}

fn write_record(records: &mut Vec<u8>, stream: &str, is_whole: bool, line: &[u8]) {
    let tag = if is_whole { 'F' } else { 'P' };
    // Writing to a vector does not fail.
    let _ = write!(records, "{:.9} {stream} {tag} ", Timestamp::now());
    records.extend_from_slice(line);
    records.push(b'\n');
}

/// Where a container's log goes: below the sandbox's folder. Without one of the two there is none.
pub(super) fn path(directory: &str, file: &str) -> Result<Option<PathBuf>, Refusal> {
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
            return Err(Refusal::invalid(format!(
                "container log path {file:?} escapes the sandbox log directory {directory:?}"
            )));
        }
    }
    if below.as_os_str().is_empty() {
        return Err(Refusal::invalid(format!("container log path {file:?} names no file")));
    }
    Ok(Some(Path::new(directory).join(below)))
}

fn open(path: &Path) -> Result<File, Refusal> {
    let failed = |words: String| {
        Refusal::unknown(format!("open {}: {words}", path.display()))
            .when("failed to create and open log file")
    };
    make_folders(path.parent().unwrap_or(path))
        .map_err(|refusal| refusal.when("failed to create and open log file"))?;
    // A pipe without a reader would hold up everyone.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().append(true).create(true).mode(0o640).custom_flags(nonblock).open(path);
    let file = file.map_err(|error| failed(words_of(&error)))?;
    let kind = file.metadata().map_err(|error| failed(words_of(&error)))?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(failed("not a file".to_owned()));
    }
    Ok(file)
}

/// Makes a folder and those above it; the one that could not be made is named.
fn make_folders(folder: &Path) -> Result<(), Refusal> {
    let Err(error) = fs::create_dir_all(folder) else { return Ok(()) };
    // The first from above that is no folder is what is in the way.
    let above = folder.ancestors().filter(|above| !above.as_os_str().is_empty()).collect::<Vec<_>>();
    let blocked = above.into_iter().rev().find(|above| !above.is_dir()).unwrap_or(folder);
    Err(Refusal::unknown(format!("mkdir {}: {}", blocked.display(), words_of(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn lines_are_cut_where_they_end_and_the_last_without_an_end_is_partial() {
        assert_eq!(
            records(&[b"one\ntw", b"o\r\n\nthree"]),
            [(true, b"one".into()), (true, b"two".into()), (true, b"".into()), (false, b"three".into())]
        );
        assert_eq!(records(&[]), []);
    }

    #[test]
    fn a_long_line_is_cut_into_partial_ones() {
        let long = vec![b'x'; 2 * LONGEST_LINE + 1];
        let cut = |line: &[u8], ends: bool| {
            let end: &[u8] = if ends { b"\n" } else { b"" };
            records(&[line, end])
                .into_iter()
                .map(|(is_whole, line)| (is_whole, line.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(&long, true), [(false, LONGEST_LINE), (false, LONGEST_LINE), (true, 1)]);
        assert_eq!(cut(&long[..LONGEST_LINE], true), [(true, LONGEST_LINE)]);
        assert_eq!(cut(&long[..=LONGEST_LINE], false), [(false, LONGEST_LINE), (false, 1)]);
    }

    #[test]
    fn a_log_stays_below_its_folder() {
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
}
