//! A storage backend that reads a file and keeps changes in memory. The database library writes to
//! every database that it opens, and repairs those that were not closed; a file of unknown version
//! must not change.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// Number of bytes of the file that are copied to memory together when one of them changes.
const CHUNK: usize = 4096;

/// A file and its changes in memory.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    /// Length as the database sees it.
    len: u64,
    /// Length up to which the bytes of the file apply; zeros follow.
    file_len: u64,
    /// Changed chunks by their numbers.
    chunks: BTreeMap<u64, Box<[u8]>>,
}

impl Overlay {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let content = Mutex::new(Content { len, file_len: len, chunks: BTreeMap::new() });
        Ok(Self { file, content })
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Reads unchanged bytes.
    fn read_file(&self, file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let available = usize::try_from(self.file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (from_file, zeros) = out.split_at_mut(available.min(out.len()));
        file.read_exact_at(from_file, offset)?;
        zeros.fill(0);
        Ok(())
    }

    /// Returns a chunk in memory, in which the caller may change bytes.
    fn chunk(&mut self, file: &File, number: u64) -> io::Result<&mut [u8]> {
        if !self.chunks.contains_key(&number) {
            let mut chunk = vec![0; CHUNK].into_boxed_slice();
            self.read_file(file, number * CHUNK as u64, &mut chunk)?;
            self.chunks.insert(number, chunk);
        }
        Ok(self.chunks.entry(number).or_default())
    }
}

/// Divides a range at the borders of chunks. Returns for each part: the number of the chunk, the
/// first byte in the chunk, the first byte in the range, and the length.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % CHUNK as u64).unwrap_or_default();
        let part = (CHUNK - within).min(len - done);
        let found = (at / CHUNK as u64, within, done, part);
        done += part;
        (part > 0).then_some(found)
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = self.lock();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > content.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content.read_file(&self.file, offset, out)?;
        for (number, within, from, len) in parts(offset, out.len()) {
            if let Some(chunk) = content.chunks.get(&number) {
                out[from..from + len].copy_from_slice(&chunk[within..within + len]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.lock();
        (content.len, content.file_len) = (len, content.file_len.min(len));
        // If the file grows again after it was shortened, the added bytes are zeros.
        content.chunks.retain(|number, _| number * (CHUNK as u64) < len);
        if let Some(chunk) = content.chunks.get_mut(&(len / CHUNK as u64)) {
            chunk[usize::try_from(len % CHUNK as u64).unwrap_or_default()..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut content = self.lock();
        let end = offset.checked_add(data.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        content.len = content.len.max(end);
        for (number, within, from, len) in parts(offset, data.len()) {
            content.chunk(&self.file, number)?[within..within + len].copy_from_slice(&data[from..from + len]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Random changes have the same effect on an overlay and on bytes in memory. The file stays
    /// unchanged.
    #[test]
    fn an_overlay_has_all_changes_and_leaves_its_file_unchanged() {
        let mut random = fastrand::Rng::with_seed(7);
        let original: Vec<u8> = (0..3 * CHUNK + 100).map(|_| random.u8(..)).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&original).unwrap();
        let overlay = Overlay::new(file.try_clone().unwrap()).unwrap();
        let mut expected = original.clone();
        for round in 0..500 {
            if random.u8(..8) == 0 {
                expected.resize(random.usize(..5 * CHUNK), 0);
                overlay.set_len(expected.len() as u64).unwrap();
            } else {
                let offset = random.usize(..=expected.len());
                let data: Vec<u8> = (0..random.usize(..2 * CHUNK)).map(|_| random.u8(..)).collect();
                let end = offset + data.len();
                expected.resize(expected.len().max(end), 0);
                expected[offset..end].copy_from_slice(&data);
                overlay.write(offset as u64, &data).unwrap();
            }
            let mut seen = vec![1; expected.len()];
            overlay.read(0, &mut seen).unwrap();
            assert!(seen == expected, "round {round}");
            assert_eq!(overlay.len().unwrap(), expected.len() as u64);
            let from = random.usize(..=expected.len());
            let mut seen = vec![1; expected.len() - from];
            overlay.read(from as u64, &mut seen).unwrap();
            assert!(seen == expected[from..], "round {round} from {from}");
        }
        let beyond = overlay.read(expected.len() as u64, &mut [0]).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        let mut kept = vec![0; original.len()];
        file.read_exact_at(&mut kept, 0).unwrap();
        assert_eq!((file.metadata().unwrap().len(), kept == original), (original.len() as u64, true));
    }
}
