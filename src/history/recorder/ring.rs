//! The most recent lines in memory, if nothing is recorded on disk.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::history::timeline::{LineEncoder, TimelineBatch};

/// Maximum number of bytes of all segments together.
const MAX_BYTES: usize = 4 << 20;

/// Number of segments.
const SEGMENTS: usize = 8;

/// The most recent lines in segments, like those on disk. The oldest segment is removed at the
/// limit.
#[derive(Debug, Default)]
pub(super) struct LineRing {
    encoder: LineEncoder,
    segments: VecDeque<Arc<Vec<u8>>>,
    /// Number of the last segment.
    number: u64,
}

impl LineRing {
    /// Adds the lines of a batch.
    pub(super) fn push(&mut self, batch: &TimelineBatch) -> io::Result<()> {
        if self.segments.back().is_none_or(|segment| segment.len() >= MAX_BYTES / SEGMENTS) {
            if self.segments.len() == SEGMENTS {
                self.segments.pop_front();
            }
            self.segments.push_back(Arc::default());
            self.number += 1;
        }
        let lines = self.encoder.encode(batch, self.number)?;
        if let Some(segment) = self.segments.back_mut() {
            // Copies the segment only while a reader has it.
            Arc::make_mut(segment).extend_from_slice(&lines);
        }
        Ok(())
    }

    /// Returns the segments, the oldest first.
    pub(super) fn segments(&self) -> Vec<Arc<Vec<u8>>> {
        self.segments.iter().cloned().collect()
    }
}
