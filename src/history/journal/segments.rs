//! The segments of a journal: numbered files, each with a part of the size limit. The oldest are
//! removed at the size limit.
//!
//! A family of segments has lines of one kind. The name of a segment has the family and the format
//! version of its lines: `calls-v1-00000001.jsonl`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::file_id::FileId;
use crate::format_version;

/// Segments with call records. Raise the version with every change of
/// [`json::Call`](crate::history::json::Call) that this probeshim or an older one would misread;
/// segments of other versions are set aside.
pub(in crate::history) const CALLS: SegmentFamily = SegmentFamily { name: "calls", version: 1 };

/// Segments with the results of probes. Raise the version with every change of
/// [`Line`](crate::history::timeline::Line) that this probeshim or an older one would misread.
pub(in crate::history) const PROBES: SegmentFamily = SegmentFamily { name: "probes", version: 1 };

/// Segments with lines of one kind in one format version.
#[derive(Clone, Copy, Debug)]
pub(in crate::history) struct SegmentFamily {
    name: &'static str,
    version: u64,
}

/// Minimum number of segments into which the limit is divided, and maximum size of a segment in
/// bytes.
const SEGMENTS: u64 = 8;
const MAX_SEGMENT_BYTES: u64 = 64 << 20;

/// The segments in a directory.
pub(super) struct Segments {
    family: SegmentFamily,
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
    pub(super) fn open(family: SegmentFamily, dir: &Path, limit: u64) -> io::Result<Self> {
        family.set_aside_others(dir)?;
        let mut known = family.list(dir)?;
        let last = match known.last() {
            Some((number, _)) => *number,
            None => family.next_number(dir)?,
        };
        let mut file = append_to(&family.path(dir, last))?;
        let id = FileId::from_metadata(&file.metadata()?);
        let size = file.metadata()?.len();
        if known.is_empty() {
            known.push((last, size));
        }
        let mut segments =
            Self { family, dir: dir.to_owned(), limit, known, file: BufWriter::new(file.try_clone()?), id };
        if size > 0 && !ends_with_newline(&mut file)? {
            segments.write(b"\n")?;
        }
        Ok(segments)
    }

    /// Appends a line; starts another segment if the last is full.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.rotate_if_full()?;
        self.write(line)
    }

    /// Starts another segment if the last is full. Returns the number of the last segment.
    pub(super) fn rotate_if_full(&mut self) -> io::Result<u64> {
        let segment = (self.limit / SEGMENTS).clamp(1, MAX_SEGMENT_BYTES);
        if self.known.last().is_some_and(|(_, size)| *size >= segment) {
            self.rotate()?;
        }
        Ok(self.known.last().map_or(1, |(number, _)| *number))
    }

    /// Returns the number of bytes of all segments together.
    pub(super) fn size(&self) -> u64 {
        self.known.iter().map(|(_, size)| size).sum()
    }

    /// Changes the limit, and removes the oldest segments beyond it.
    pub(super) fn set_limit(&mut self, limit: u64) -> io::Result<()> {
        self.limit = limit;
        self.remove_oldest(limit, 1)
    }

    /// Writes the buffered lines to the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Returns whether the open file is no longer the file with its name. Lines that are written to
    /// a removed file are lost.
    pub(super) fn is_removed(&self) -> bool {
        let last = self.known.last().map_or(1, |(number, _)| *number);
        FileId::from_path(&self.family.path(&self.dir, last)).map_or(true, |named| named != self.id)
    }

    /// Appends whole lines to the last segment.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if let Some((_, size)) = self.known.last_mut() {
            *size += bytes.len() as u64;
        }
        Ok(())
    }

    /// Starts another segment, and removes the oldest segments until there is room for it.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let next = self.family.next_number(&self.dir)?;
        self.remove_oldest(self.limit - self.limit / SEGMENTS, 0)?;
        let file = append_to(&self.family.path(&self.dir, next))?;
        self.id = FileId::from_metadata(&file.metadata()?);
        self.file = BufWriter::new(file);
        self.known.push((next, 0));
        Ok(())
    }

    /// Removes the oldest segments, except for the last `keep`, until all together have at most
    /// `room` bytes.
    fn remove_oldest(&mut self, room: u64, keep: usize) -> io::Result<()> {
        while self.known.len() > keep && self.size() > room {
            let (oldest, _) = self.known.remove(0);
            match fs::remove_file(self.family.path(&self.dir, oldest)) {
                // Another process has removed the file.
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}

/// Appends whole lines to a segment, of which another process may be the writer. Both append whole
/// lines with one write each, so lines are not mixed.
pub(super) fn append_unlocked(
    family: SegmentFamily,
    dir: &Path,
    number: u64,
    lines: &[u8],
) -> io::Result<()> {
    append_to(&family.path(dir, number))?.write_all(lines)
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

impl SegmentFamily {
    /// Returns the path of a segment.
    pub(in crate::history) fn path(self, dir: &Path, number: u64) -> PathBuf {
        let Self { name, version } = self;
        dir.join(format!("{name}-v{version}-{number:08}.jsonl"))
    }

    /// Returns the number of the last segment in a directory, or of the first if there is none.
    pub(super) fn last_number(self, dir: &Path) -> io::Result<u64> {
        Ok(self.list(dir)?.last().map_or(1, |(number, _)| *number))
    }

    /// Returns the numbers and sizes of the segments of this version in a directory, the oldest
    /// first. Only regular files are segments: opening a FIFO would block.
    pub(in crate::history) fn list(self, dir: &Path) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Some(number) = self.number_of(&entry.file_name()) else { continue };
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

    /// Returns the format version, if there is one, and the number in the name of a segment; `None`
    /// if the name is not that of a segment.
    fn parse_name(self, name: &OsStr) -> Option<(Option<u64>, u64)> {
        let name = name.to_str()?.strip_prefix(self.name)?.strip_prefix('-')?.strip_suffix(".jsonl")?;
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
    fn number_of(self, name: &OsStr) -> Option<u64> {
        let parsed = self.parse_name(name).filter(|(version, _)| *version == Some(self.version));
        parsed.map(|(_, number)| number)
    }

    /// Renames the segments of other format versions. Only regular files are segments.
    fn set_aside_others(self, dir: &Path) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let parsed = self.parse_name(&entry.file_name());
            let Some((version, _)) = parsed.filter(|(version, _)| *version != Some(self.version)) else {
                continue;
            };
            if entry.file_type()?.is_file() {
                format_version::set_aside(&entry.path(), version, self.version)?;
            }
        }
        Ok(())
    }

    /// Returns the number after the highest in the names of segments in a directory, including
    /// names of anything but regular files.
    fn next_number(self, dir: &Path) -> io::Result<u64> {
        let mut next = 1;
        for entry in fs::read_dir(dir)? {
            let number = self.number_of(&entry?.file_name());
            next = next.max(number.map_or(1, |number| number.saturating_add(1)));
        }
        Ok(next)
    }
}
