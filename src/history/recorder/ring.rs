//! The most recent lines in memory, if nothing is recorded on disk.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::history::timeline::{Irregularity, LineEncoder, TimelineBatch, unix_ms};

/// Maximum number of bytes of all segments together.
const MAX_BYTES: usize = 4 << 20;

/// Number of bytes from which a segment is full.
const SEGMENT_BYTES: usize = MAX_BYTES / 8;

/// The most recent lines in segments, like those on disk. The oldest segments are removed at the
/// limit.
#[derive(Debug, Default)]
pub(super) struct LineRing {
    encoder: LineEncoder,
    segments: VecDeque<Arc<Vec<u8>>>,
    /// Number of the last segment.
    number: u64,
}

impl LineRing {
    /// Adds the lines of a batch. The results of a batch that alone exceeds the limit become
    /// dropped observations.
    pub(super) fn push(&mut self, batch: &TimelineBatch) -> io::Result<()> {
        let mut lines = self.encoder.encode(batch, self.number)?;
        if self.segments.back().is_none_or(|last| last.len() + lines.len() > SEGMENT_BYTES) {
            // The lines define their series again, so that earlier segments can be removed.
            self.number += 1;
            lines = self.encoder.encode(batch, self.number)?;
            if lines.len() > MAX_BYTES {
                self.number += 1;
                lines = self.encoder.encode(&without_results(batch), self.number)?;
            }
            self.segments.push_back(Arc::default());
        }
        while self.size() + lines.len() > MAX_BYTES && self.segments.len() > 1 {
            self.segments.pop_front();
        }
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

    /// Returns the number of bytes of all segments together.
    fn size(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }
}

/// Returns a batch with a number of dropped observations in place of its results.
fn without_results(batch: &TimelineBatch) -> TimelineBatch {
    let dropped = Irregularity::Dropped(unix_ms(batch.from), unix_ms(batch.to), batch.attempts());
    let mut irregularities = batch.irregularities.clone();
    irregularities.push(dropped);
    TimelineBatch {
        run: batch.run,
        number: batch.number,
        start: batch.start.clone(),
        from: batch.from,
        to: batch.to,
        rows: Vec::new(),
        calls: Vec::new(),
        events: Vec::new(),
        irregularities,
        is_last: batch.is_last,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::history::timeline::{GapCause, Minute, Period, ProbeSeries, Prober, TimelineReader};

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(6_000_000 + seconds)
    }

    /// Returns a batch of a minute in which this number of commands succeeded once each.
    fn batch(number: u64, commands: u64) -> TimelineBatch {
        let row = |command: u64| {
            let series = ProbeSeries {
                namespace: "shop".to_owned(),
                pod: "web".to_owned(),
                container: "main".to_owned(),
                probe: "unknown".to_owned(),
                prober: Prober::Kubelet,
                handler: format!("check {number} {command}"),
                command: Vec::new(),
                timeout: None,
                period: None,
                failure_threshold: None,
            };
            let minute = Minute::number(at(60 * number));
            (Arc::new(series), Minute { minute, successes: 1, ..Minute::default() })
        };
        TimelineBatch {
            run: 1,
            number,
            start: None,
            from: at(60 * number),
            to: at(60 * number + 60),
            rows: (0..commands).map(row).collect(),
            calls: Vec::new(),
            events: Vec::new(),
            irregularities: Vec::new(),
            is_last: false,
        }
    }

    fn period(ring: &LineRing) -> Period {
        let mut reader = TimelineReader::new(at(0), at(600));
        for segment in ring.segments() {
            segment.split(|byte| *byte == b'\n').for_each(|line| reader.add_line(line));
        }
        reader.finish()
    }

    #[test]
    fn the_ring_never_exceeds_its_limit_and_its_lines_can_be_read() {
        let mut ring = LineRing::default();
        for number in 0..10 {
            ring.push(&batch(number, 6_000)).unwrap();
            assert!(ring.size() <= MAX_BYTES, "{}", ring.size());
            let last = Minute::number(at(60 * number));
            let period = period(&ring);
            let count = period.probes.iter().filter(|probe| probe.minutes[0].minute == last).count();
            assert_eq!(count, 6_000, "the newest batch is complete");
        }
        assert!(ring.size() > MAX_BYTES / 2);
    }

    #[test]
    fn a_batch_that_is_larger_than_the_ring_becomes_dropped_observations() {
        let mut ring = LineRing::default();
        ring.push(&batch(0, 2)).unwrap();
        ring.push(&batch(1, 60_000)).unwrap();
        ring.push(&batch(2, 3)).unwrap();
        assert!(ring.size() <= MAX_BYTES, "{}", ring.size());
        let period = period(&ring);
        assert_eq!(period.probes.len(), 5);
        assert!(period.gaps.iter().any(|gap| gap.cause == GapCause::Dropped(60_000)), "{:?}", period.gaps);
    }
}
