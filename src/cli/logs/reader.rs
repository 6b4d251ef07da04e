//! Reads the lines of a log file, which grows and may be rotated meanwhile.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::regular_file;

/// Number of bytes that are read at a time to find the last lines.
const CHUNK: u64 = 64 << 10;

/// Reads the lines of a log file.
#[derive(Debug)]
pub(super) struct LogReader {
    path: PathBuf,
    file: BufReader<File>,
    /// Begin of a line that is not complete yet.
    rest: Vec<u8>,
}

impl LogReader {
    /// Opens a file, at its last `tail` lines.
    pub(super) fn open(path: &Path, tail: Option<u32>) -> io::Result<Self> {
        let mut file = regular_file::open(path)?;
        if let Some(tail) = tail {
            let start = start_of_tail(&mut file, tail)?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self { path: path.to_owned(), file: BufReader::new(file), rest: Vec::new() })
    }

    /// Returns the next complete line without its line feed; `None` if there is none yet. After the
    /// last line of a rotated file, continues with the file that has replaced it.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(line) = self.read_line()? {
                return Ok(Some(line));
            }
            if !self.has_replacement()? {
                return Ok(None);
            }
            // The runtime wrote to the renamed file until it created the new one.
            if let Some(line) = self.read_line()? {
                return Ok(Some(line));
            }
            self.file = BufReader::new(regular_file::open(&self.path)?);
            if !self.rest.is_empty() {
                return Ok(Some(std::mem::take(&mut self.rest)));
            }
        }
    }

    /// Returns the next complete line of the open file; `None` if there is none yet.
    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.file.read_until(b'\n', &mut self.rest)?;
        Ok(self.rest.pop_if(|last| *last == b'\n').map(|_| std::mem::take(&mut self.rest)))
    }

    /// Returns whether there are unread bytes.
    pub(super) fn has_more(&mut self) -> io::Result<bool> {
        Ok(!self.file.fill_buf()?.is_empty() || self.has_replacement()?)
    }

    /// Returns whether another file has the path now. Between rename and creation, none has it.
    fn has_replacement(&self) -> io::Result<bool> {
        let current = self.file.get_ref().metadata()?;
        let Ok(found) = fs::metadata(&self.path) else { return Ok(false) };
        Ok((found.dev(), found.ino()) != (current.dev(), current.ino()))
    }
}

/// Returns the position at which the last `lines` lines begin.
fn start_of_tail(file: &mut File, lines: u32) -> io::Result<u64> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let (mut position, mut found) = (end, 0);
    while position > 0 {
        let length = CHUNK.min(position);
        position -= length;
        file.seek(SeekFrom::Start(position))?;
        let mut chunk = Vec::new();
        file.by_ref().take(length).read_to_end(&mut chunk)?;
        for (index, _) in chunk.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = position + index as u64 + 1;
            // The line feed at the end belongs to the last line.
            if after == end {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(after);
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn lines(reader: &mut LogReader) -> String {
        let mut text = String::new();
        while let Some(line) = reader.next_line().unwrap() {
            text += &(String::from_utf8(line).unwrap() + "|");
        }
        text
    }

    #[test]
    fn a_log_is_read_from_its_last_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, tail, expected) in [
            ("a\nb\nc\n", None, "a|b|c|"),
            ("a\nb\nc\n", Some(0), ""),
            ("a\nb\nc\n", Some(2), "b|c|"),
            ("a\nb\nc\n", Some(3), "a|b|c|"),
            ("a\nb\nc\n", Some(9), "a|b|c|"),
            ("", Some(1), ""),
        ] {
            fs::write(file.path(), content).unwrap();
            assert_eq!(lines(&mut LogReader::open(file.path(), tail).unwrap()), expected, "{tail:?}");
        }
        let long = format!("{}\n", "x".repeat(100_000)).repeat(3);
        fs::write(file.path(), &long).unwrap();
        assert_eq!(lines(&mut LogReader::open(file.path(), Some(2)).unwrap()).len(), 200_002);
    }

    #[test]
    fn a_log_that_grows_and_is_rotated_is_read_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut file = File::create(&path).unwrap();
        let mut reader = LogReader::open(&path, None).unwrap();
        file.write_all(b"a\nb").unwrap();
        assert_eq!(lines(&mut reader), "a|");
        file.write_all(b"c\n").unwrap();
        assert_eq!(lines(&mut reader), "bc|");
        fs::rename(&path, dir.path().join("0.log.1")).unwrap();
        file.write_all(b"last\n").unwrap();
        assert!(reader.has_more().unwrap());
        assert_eq!(lines(&mut reader), "last|");
        file.write_all(b"late\nunfinished").unwrap();
        fs::write(&path, "new\n").unwrap();
        assert_eq!(lines(&mut reader), "late|unfinished|new|");
        assert!(!reader.has_more().unwrap());
    }
}
