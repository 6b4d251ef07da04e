//! Reads the records of an earlier probeshim.

use std::collections::HashSet;
use std::hash::Hash;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::segments::CALLS;
use crate::execsync::CallRecord;
use crate::history::json;
use crate::object_ref::{ContainerRef, PodRef};
use crate::regular_file;
use crate::relay::Peer;

/// Maximum number of bytes that are read at the start, from the end of the journal: about as many
/// calls as the history keeps.
const TAIL_BYTES: u64 = 8 << 20;

/// Maximum number of bytes of a line; no record is as long.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Passes the last records of a directory to `found`, in the order in which they were written.
/// Lines that cannot be read are skipped, such as a line that a crash tore.
pub(in crate::history) fn read_last(dir: &Path, mut found: impl FnMut(CallRecord)) {
    let (mut left, mut parts) = (TAIL_BYTES, Vec::new());
    for (number, size) in CALLS.list(dir).unwrap_or_default().into_iter().rev() {
        if left == 0 {
            break;
        }
        let from = size.saturating_sub(left);
        parts.push((CALLS.path(dir, number), from..size));
        left -= size - from;
    }
    let mut shared = Interner::default();
    for (path, part) in parts.into_iter().rev() {
        // If a segment cannot be read completely, the history has the records that were read.
        let _ = read_segment(&path, part, |record| found(shared.intern(record)));
    }
}

/// Passes all records of a directory to `found`, in the order in which they were written. Lines
/// that cannot be read are skipped. Returns an error if the directory or a segment cannot be read.
pub(in crate::history) fn read_all(dir: &Path, mut found: impl FnMut(CallRecord)) -> io::Result<()> {
    let mut shared = Interner::default();
    for (number, size) in CALLS.list(dir)? {
        let path = CALLS.path(dir, number);
        read_segment(&path, 0..size, |record| found(shared.intern(record)))?;
    }
    Ok(())
}

fn read_segment(path: &Path, part: Range<u64>, mut found: impl FnMut(CallRecord)) -> io::Result<()> {
    let mut file = regular_file::open(path)?;
    file.seek(SeekFrom::Start(part.start))?;
    let (mut reader, mut line) = (BufReader::new(file.take(part.end - part.start)), Vec::new());
    while reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
        let call: Option<json::Call> = serde_json::from_slice(&line).ok();
        if let Some(record) = call.and_then(|call| CallRecord::try_from(call).ok()) {
            found(record);
        }
        line.clear();
    }
    Ok(())
}

/// Values that records share: equal values are stored once.
#[derive(Default)]
struct Interner {
    pods: HashSet<Arc<PodRef>>,
    containers: HashSet<Arc<ContainerRef>>,
    peers: HashSet<Arc<Peer>>,
}

impl Interner {
    fn intern(&mut self, mut record: CallRecord) -> CallRecord {
        if let Some(call) = Arc::get_mut(&mut record.call) {
            call.pod = call.pod.take().map(|pod| intern_one(&mut self.pods, pod));
            call.container =
                call.container.take().map(|container| intern_one(&mut self.containers, container));
            call.peer = call.peer.take().map(|peer| intern_one(&mut self.peers, peer));
        }
        record
    }
}

fn intern_one<T: Eq + Hash>(known: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    known.get(&new).cloned().unwrap_or_else(|| {
        known.insert(new.clone());
        new
    })
}
