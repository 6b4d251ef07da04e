//! Reads lines and periods from a directory of records.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::execsync::CallRecord;
use crate::history::journal;
use crate::history::timeline::{Period, PeriodBuilder, TimelineReader};
use crate::regular_file;

/// Maximum number of bytes of a line; no line is as long.
const MAX_LINE_BYTES: u64 = 4 << 20;

/// Size of the buffer of a file, in bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// Reads what the records in a directory say about a period. Blocks. A directory without results,
/// of an earlier version of probeshim, is read call by call.
pub fn read_period(dir: &Path, from: SystemTime, to: SystemTime) -> io::Result<Period> {
    let mut reader = TimelineReader::new(from, to);
    read_lines(dir, |line| {
        reader.add_line(line);
        Ok(())
    })?;
    if reader.has_lines() { Ok(reader.finish()) } else { read_calls(dir, from, to) }
}

/// Returns whether a directory has records of a probeshim. Blocks.
pub fn has_records(dir: &Path) -> io::Result<bool> {
    Ok(!journal::PROBES.list(dir)?.is_empty() || !journal::CALLS.list(dir)?.is_empty())
}

/// Passes the lines of the results in a directory to `found`, in the order in which they were
/// written. Blocks. Ends at the first error of `found`.
pub fn read_lines(dir: &Path, mut found: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut line = Vec::new();
    for (number, size) in journal::PROBES.list(dir)? {
        let file = match regular_file::open(&journal::PROBES.path(dir, number)) {
            // The segment was removed at the size limit.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file.take(size));
        while reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
            found(line.trim_ascii_end())?;
            line.clear();
        }
    }
    Ok(())
}

fn read_calls(dir: &Path, from: SystemTime, to: SystemTime) -> io::Result<Period> {
    // A later record of a call replaces an earlier one.
    let mut calls: HashMap<u64, Arc<CallRecord>> = HashMap::new();
    journal::read_all(dir, |record| drop(calls.insert(record.call.id, Arc::new(record))))?;
    let mut period = PeriodBuilder::new(from, to, PeriodBuilder::resolution(from, to));
    for record in calls.values() {
        period.add_call(record);
    }
    Ok(period.build())
}
