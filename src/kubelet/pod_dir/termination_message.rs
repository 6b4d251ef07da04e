//! Termination messages of containers: the content of the message file, or the end of the log
//! (kubelet: `kuberuntime_container.go`: `getTerminationMessage`). Last lines of a log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use rustix::fs::OFlags;

use super::beneath::without_links;

/// Limits of a message from the file in bytes, and from the log in bytes and lines (kubelet:
/// `container/runtime.go`: `MaxContainerTerminationMessageLength`, `…LogLength`, `…LogLines`).
const MAX_BYTES: u64 = 4_096;
const FALLBACK_MAX_BYTES: usize = 2_048;
const FALLBACK_MAX_LINES: usize = 80;

/// Number of bytes read from the end of a log. It is larger than the limit of the message, because
/// each line of a log begins with a time, a stream and a tag.
const TAIL_READ_BYTES: u64 = 64 << 10;

/// Returns the termination message in `file`. If there is none, returns the end of `log`, if given.
pub(in crate::kubelet) fn message(file: Option<&Path>, log: Option<&Path>) -> String {
    let left = file.and_then(|file| end_of(file, MAX_BYTES)).unwrap_or_default();
    match log {
        Some(log) if left.is_empty() => tail(&end_of(log, TAIL_READ_BYTES).unwrap_or_default()),
        _ => left,
    }
}

/// Returns the last lines of output in a log, at most `count`.
pub(in crate::kubelet) fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let text = outputs(&end_of(log, TAIL_READ_BYTES).unwrap_or_default()).concat();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

/// Reads the last `most` bytes of a regular file. Links are not followed in any part of the path: a
/// pod that can write to a directory of the path could otherwise publish any file of the host as
/// its message. FIFOs and devices do not block the read.
fn end_of(path: &Path, most: u64) -> Option<String> {
    let mut file = File::from(without_links(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?);
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let length = found.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most))).ok()?;
    let mut content = Vec::new();
    file.take(most).read_to_end(&mut content).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// Returns the output in the last lines of a log, without the time, stream and tag of each line.
fn tail(log: &str) -> String {
    let lines = outputs(log);
    let text = lines[lines.len().saturating_sub(FALLBACK_MAX_LINES)..].concat();
    let mut begin = text.len().saturating_sub(FALLBACK_MAX_BYTES);
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    text[begin..].to_owned()
}

/// Returns the output in each line of a log, without time, stream and tag. A line with the tag P
/// has no line feed, because the next line continues it.
fn outputs(log: &str) -> Vec<String> {
    let written = |line: &str| {
        let mut parts = line.splitn(4, ' ');
        let (tag, text) = (parts.nth(2)?.to_owned(), parts.next().unwrap_or_default());
        Some(if tag.starts_with('P') { text.to_owned() } else { format!("{text}\n") })
    };
    log.lines().filter_map(written).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn a_termination_message_is_the_file_or_the_end_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (file, log) = (path.join("message"), path.join("log"));
        std::fs::write(&file, "").unwrap();
        let line = |number: usize| format!("2026-11-22T07:00:00.1Z stdout F line {number}\n");
        let text: String = (0..200).map(line).collect();
        std::fs::write(&log, text + "2026-11-22T07:00:00.1Z stderr P half\n").unwrap();
        let read = message(Some(&file), Some(&log));
        assert!(read.starts_with("line 121\n") && read.ends_with("line 199\nhalf"), "{read}");
        assert_eq!(last_lines(&log, 2), ["line 199", "half"]);
        assert_eq!(last_lines(&path.join("absent"), 2), Vec::<String>::new());
        assert_eq!(message(Some(&file), None), "");
        std::fs::write(&file, "long ".repeat(1_000) + "gone").unwrap();
        let read = message(Some(&file), Some(&log));
        assert!(read.len() == 4_096 && read.ends_with("long gone"), "{read}");
    }

    #[test]
    fn termination_messages_are_not_read_from_links_or_pipes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        std::fs::create_dir(path.join("host")).unwrap();
        std::fs::write(path.join("host/secret"), "secret").unwrap();
        let read_message = |name: &str| message(Some(&path.join(name)), Some(&path.join(name)));
        assert_eq!(read_message("host/secret"), "secret");
        symlink(path.join("host/secret"), path.join("link")).unwrap();
        symlink("host", path.join("directory")).unwrap();
        mkfifoat(CWD, path.join("pipe"), Mode::RWXU).unwrap();
        // A FIFO without a writer would block the reader forever.
        for name in ["link", "directory/secret", "pipe", "host", "absent"] {
            assert_eq!(read_message(name), "", "{name}");
        }
    }
}
