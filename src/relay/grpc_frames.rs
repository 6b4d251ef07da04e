//! Splits the data of a stream into gRPC messages.

use super::capture::{Capture, CaptureBudget};

/// Length in bytes of the flag and the length before each message.
const PREFIX: usize = 5;

/// Returns the length of the first frame of `data` with its prefix; `None` if `data` ends in the
/// prefix.
pub(super) fn frame_length(data: &[u8]) -> Option<usize> {
    let (&[_, length @ ..], _) = data.split_first_chunk::<PREFIX>()?;
    Some(PREFIX + u32::from_be_bytes(length) as usize)
}

/// Cuts a stream of gRPC frames into captures of one frame each.
#[derive(Debug)]
pub(super) struct FrameSplitter {
    longest: usize,
    budget: CaptureBudget,
    prefix: [u8; PREFIX],
    /// Number of bytes of the prefix that have been received.
    prefix_read: usize,
    /// Number of bytes that the message still lacks, once its prefix is complete.
    remaining: usize,
    capture: Capture,
}

impl FrameSplitter {
    /// Creates the splitter of a new stream. It keeps no bytes of a message that is longer than
    /// `longest` bytes, prefix included.
    pub(super) fn new(longest: usize, budget: CaptureBudget) -> Self {
        let capture = Capture::new(longest, &budget);
        Self { longest, budget, prefix: [0; PREFIX], prefix_read: 0, remaining: 0, capture }
    }

    /// Adds data, and calls `message` for each complete message.
    pub(super) fn add(&mut self, mut data: &[u8], mut message: impl FnMut(Capture)) {
        while !data.is_empty() {
            if self.prefix_read < PREFIX {
                let part = data.split_off(..data.len().min(PREFIX - self.prefix_read)).unwrap_or_default();
                self.prefix[self.prefix_read..][..part.len()].copy_from_slice(part);
                self.prefix_read += part.len();
                self.capture.add(part);
                if self.prefix_read == PREFIX {
                    let [_, length @ ..] = self.prefix;
                    self.remaining = u32::from_be_bytes(length) as usize;
                }
            } else {
                let part = data.split_off(..data.len().min(self.remaining)).unwrap_or_default();
                self.remaining -= part.len();
                self.capture.add(part);
            }
            if self.prefix_read == PREFIX && self.remaining == 0 {
                self.prefix_read = 0;
                message(std::mem::replace(&mut self.capture, Capture::new(self.longest, &self.budget)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::relay::CaptureError;

    proptest! {
        #[test]
        fn grpc_messages_are_split_equally_from_any_chunks(
            lengths in proptest::collection::vec(0_usize..40, 0..8),
            cuts in proptest::collection::vec(1_usize..30, 1..20),
        ) {
            let frames: Vec<Vec<u8>> = lengths.iter().map(|length| {
                let prefix = [0, 0, 0, 0, u8::try_from(*length).unwrap()];
                [&prefix[..], &vec![7; *length]].concat()
            }).collect();
            let whole = frames.concat();
            let mut messages = FrameSplitter::new(30, CaptureBudget::new(1000));
            let (mut seen, mut rest, mut cuts) = (Vec::new(), &whole[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let part = rest.split_off(..rest.len().min(*cuts.next().unwrap())).unwrap();
                messages.add(part, |message| seen.push(message.bytes().map(<[u8]>::to_vec)));
            }
            let expected: Vec<_> = frames.into_iter()
                .map(|frame| if frame.len() > 30 { Err(CaptureError::TooLong) } else { Ok(frame) })
                .collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
