//! The last words of a container: what it left in its file, or at the end of its log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use rustix::fs::OFlags;

use super::beneath::without_links;

/// What is taken of the end of a message, and of a log: bytes, and lines.
const MAX_BYTES: u64 = 4_096;
const FALLBACK_MAX_BYTES: usize = 2_048;
const FALLBACK_MAX_LINES: usize = 80;

/// What of the end of a log is looked at: its lines have more on them than was written.
const TAIL_READ_BYTES: u64 = 64 << 10;

/// The message in a file; the end of a log where there is none, and one is given.
pub(in crate::kubelet) fn message(file: Option<&Path>, log: Option<&Path>) -> String {
    let left = file.and_then(|file| end_of(file, MAX_BYTES)).unwrap_or_default();
    match log {
        Some(log) if left.is_empty() => tail(&end_of(log, TAIL_READ_BYTES).unwrap_or_default()),
        _ => left,
    }
}

/// Reads the end of a regular file. Links are not followed, in no part of the path: a pod that can write to a directory on it could have the content
/// of any file of the host told as its message. Whatever else is there is not waited for.
fn end_of(path: &Path, most: u64) -> Option<String> {
    let mut file = File::from(without_links(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?);
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let length = found.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most))).ok()?;
    let mut content = Vec::new();
    file.take(most).read_to_end(&mut content).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// What was written on the last lines of a log: after the time, the stream and the tag.
fn tail(log: &str) -> String {
    let written = |line: &str| {
        let mut parts = line.splitn(4, ' ');
        let (tag, text) = (parts.nth(2)?.to_owned(), parts.next().unwrap_or_default());
        Some(if tag.starts_with('P') { text.to_owned() } else { format!("{text}\n") })
    };
    let lines: Vec<String> = log.lines().filter_map(written).collect();
    let text = lines[lines.len().saturating_sub(FALLBACK_MAX_LINES)..].concat();
    let mut begin = text.len().saturating_sub(FALLBACK_MAX_BYTES);
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    text[begin..].to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn a_message_is_what_was_left_or_the_end_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (file, log) = (path.join("message"), path.join("log"));
        std::fs::write(&file, "").unwrap();
        let line = |number: usize| format!("2026-11-22T07:00:00.1Z stdout F line {number}\n");
        let text: String = (0..200).map(line).collect();
        std::fs::write(&log, text + "2026-11-22T07:00:00.1Z stderr P half\n").unwrap();
        let read = message(Some(&file), Some(&log));
        assert!(read.starts_with("line 121\n") && read.ends_with("line 199\nhalf"), "{read}");
        assert_eq!(message(Some(&file), None), "");
        std::fs::write(&file, "long ".repeat(1_000) + "gone").unwrap();
        let read = message(Some(&file), Some(&log));
        assert!(read.len() == 4_096 && read.ends_with("long gone"), "{read}");
    }

    #[test]
    fn neither_links_nor_pipes_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        std::fs::create_dir(path.join("host")).unwrap();
        std::fs::write(path.join("host/secret"), "secret").unwrap();
        let read_message = |name: &str| message(Some(&path.join(name)), Some(&path.join(name)));
        assert_eq!(read_message("host/secret"), "secret");
        symlink(path.join("host/secret"), path.join("link")).unwrap();
        symlink("host", path.join("directory")).unwrap();
        mkfifoat(CWD, path.join("pipe"), Mode::RWXU).unwrap();
        // A pipe that nobody writes to would hold the reader up for good.
        for name in ["link", "directory/secret", "pipe", "host", "absent"] {
            assert_eq!(read_message(name), "", "{name}");
        }
    }
}
