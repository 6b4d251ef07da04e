//! The segments of a journal: numbered files, each with a part of the size limit. The oldest are
//! removed at the size limit.
//!
//! The name of a segment has the format version of its lines: `calls-v1-00000001.jsonl`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::file_id::FileId;
use crate::format_version;

/// Format version of the lines. Raise it with every change of
/// [`json::Call`](crate::history::json::Call) that this probeshim or an older one would misread;
/// segments of other versions are set aside.
const VERSION: u64 = 1;

/// Minimum number of segments into which the limit is divided, and maximum size of a segment in
/// bytes.
const SEGMENTS: u64 = 8;
const MAX_SEGMENT_BYTES: u64 = 64 << 20;

/// The segments in a directory.
pub(super) struct Segments {
    dir: PathBuf,
    limit: u64,
    /// Numbers and sizes of the segments, the oldest first. The last segment is open for writing.
    known: Vec<(u64, u64)>,
    file: BufWriter<File>,
    /// Identity of the file that is open for writing.
    id: FileId,
}

impl Segments {
    /// Opens the last segment, to append to it. Ends a line in it that a crash tore. Sets aside
    /// segments of other format versions.
    pub(super) fn open(dir: &Path, limit: u64) -> io::Result<Self> {
        set_aside_others(dir)?;
        let mut known = list_segments(dir)?;
        let last = match known.last() {
            Some((number, _)) => *number,
            None => next_number(dir)?,
        };
        let mut file = append_to(&path_of(dir, last))?;
        let id = FileId::from_metadata(&file.metadata()?);
        let size = file.metadata()?.len();
        if known.is_empty() {
            known.push((last, size));
        }
        let mut segments =
            Self { dir: dir.to_owned(), limit, known, file: BufWriter::new(file.try_clone()?), id };
        if size > 0 && !ends_with_newline(&mut file)? {
            segments.write(b"\n")?;
        }
        Ok(segments)
    }

    /// Appends a line; starts another segment if the last is full.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let segment = (self.limit / SEGMENTS).clamp(1, MAX_SEGMENT_BYTES);
        let is_full = self.known.last().is_some_and(|(_, size)| *size >= segment);
        if is_full {
            self.rotate()?;
        }
        self.write(line)
    }

    /// Writes the buffered lines to the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Returns whether the open file is no longer the file with its name. Lines that are written to
    /// a removed file are lost.
    pub(super) fn is_removed(&self) -> bool {
        let last = self.known.last().map_or(1, |(number, _)| *number);
        FileId::from_path(&path_of(&self.dir, last)).map_or(true, |named| named != self.id)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if let Some((_, size)) = self.known.last_mut() {
            *size += bytes.len() as u64;
        }
        Ok(())
    }

    /// Starts another segment, and removes the oldest segments until there is room for it.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let next = next_number(&self.dir)?;
        let room = self.limit - self.limit / SEGMENTS;
        while self.known.iter().map(|(_, size)| size).sum::<u64>() > room {
            let (oldest, _) = self.known.remove(0);
            match fs::remove_file(path_of(&self.dir, oldest)) {
                // Another process has removed the file.
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        let file = append_to(&path_of(&self.dir, next))?;
        self.id = FileId::from_metadata(&file.metadata()?);
        self.file = BufWriter::new(file);
        self.known.push((next, 0));
        Ok(())
    }
}

/// Appends lines to the last segment, of which another process may be the writer. Both append whole
/// lines with one write each, so lines are not mixed.
pub(super) fn append_unlocked(dir: &Path, lines: &[Vec<u8>]) -> io::Result<()> {
    let last = list_segments(dir)?.last().map_or(1, |(number, _)| *number);
    append_to(&path_of(dir, last))?.write_all(&lines.concat())
}

fn append_to(path: &Path) -> io::Result<File> {
    // Fails for a symlink, and does not block for a FIFO, that has taken the name meanwhile.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Returns the path of a segment.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("calls-v{VERSION}-{number:08}.jsonl"))
}

/// Returns the format version, if there is one, and the number in the name of a segment; `None` if
/// the name is not that of a segment.
fn parse_name(name: &OsStr) -> Option<(Option<u64>, u64)> {
    let name = name.to_str()?.strip_prefix("calls-")?.strip_suffix(".jsonl")?;
    let (version, number) = match name.strip_prefix('v') {
        Some(versioned) => {
            let (version, number) = versioned.split_once('-')?;
            (Some(version.parse().ok()?), number)
        }
        None => (None, name),
    };
    Some((version, number.parse().ok()?))
}

/// Returns the number in the name of a segment of this version.
fn number_of(name: &OsStr) -> Option<u64> {
    parse_name(name).filter(|(version, _)| *version == Some(VERSION)).map(|(_, number)| number)
}

/// Renames the segments of other format versions. Only regular files are segments.
fn set_aside_others(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Some((version, _)) =
            parse_name(&entry.file_name()).filter(|(version, _)| *version != Some(VERSION))
        else {
            continue;
        };
        if entry.file_type()?.is_file() {
            format_version::set_aside(&entry.path(), version, VERSION)?;
        }
    }
    Ok(())
}

/// Returns the number after the highest in the names of segments in a directory, including names
/// of anything but regular files.
fn next_number(dir: &Path) -> io::Result<u64> {
    let mut next = 1;
    for entry in fs::read_dir(dir)? {
        let number = number_of(&entry?.file_name());
        next = next.max(number.map_or(1, |number| number.saturating_add(1)));
    }
    Ok(next)
}

/// Returns the numbers and sizes of the segments of this version in a directory, the oldest first.
/// Only regular files are segments: opening a FIFO would block.
pub(super) fn list_segments(dir: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Some(number) = number_of(&entry.file_name()) else { continue };
        match entry.metadata() {
            Ok(file) if file.is_file() => found.push((number, file.len())),
            Ok(_) => {}
            // Another process has removed the file.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
            Err(other) => return Err(other),
        }
    }
    found.sort_unstable();
    Ok(found)
}
