//! The reading half of a stream, which is read in turns and not faster than the other side of the relay can be written to.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::backlog::Backlog;
use super::turn::{Standing, Turn};

/// Bytes that are read at once. h2 works on all of them before it reads again.
const MAX_READ_BYTES: u32 = 64 << 10;

/// Bytes that are read at once from a stream whose frames take long.
const MIN_READ_BYTES: u32 = 256;

/// How much longer than its turn a read may take, with what h2 makes of it.
const MAX_LATENESS: Duration = Duration::from_micros(50);

/// How long nothing is read where it goes no further. Then one read is made, so that a client that has gone is noticed, and one
/// that gives up its calls is heard, if slowly.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Passes on what there is to read.
#[derive(Debug)]
pub(super) struct Inlet<S> {
    stream: S,
    turn: Turn,
    /// Where what is read goes: hardly anything is read while that is full.
    onward: Option<Backlog>,
    /// Set while it is full.
    pause: Option<Pin<Box<Sleep>>>,
    /// Bytes that are read at once, so that a turn is not much too long whatever the frames are.
    read_bytes: u32,
    /// Whether the last turn was too short.
    was_over: bool,
}

impl<S> Inlet<S> {
    pub(super) fn new(stream: S, turn: Turn, onward: Option<Backlog>) -> Self {
        Self { stream, turn, onward, pause: None, read_bytes: MAX_READ_BYTES, was_over: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inlet<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.onward.as_ref().is_some_and(Backlog::is_full) {
            // The task that writes there is this one: it is polled when there is room again.
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(FULL_PAUSE)));
            ready!(pause.as_mut().poll(cx));
        }
        self.pause = None;
        if self.onward.as_ref().is_some_and(Backlog::is_source_paused) {
            return Poll::Pending;
        }
        match self.turn.standing() {
            Standing::Begun if !self.was_over => {
                self.read_bytes = (self.read_bytes * 2).min(MAX_READ_BYTES);
            }
            Standing::Begun => self.was_over = false,
            Standing::Within => {}
            Standing::Over(late) => {
                if late > MAX_LATENESS && !self.was_over {
                    self.read_bytes = (self.read_bytes / 2).max(MIN_READ_BYTES);
                }
                self.was_over = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let read_bytes = u64::from(self.read_bytes);
        Pin::new(&mut (&mut self.stream).take(read_bytes)).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::super::metrics::Metrics;
    use super::super::turn::Turns;
    use super::*;

    #[test]
    fn a_stream_without_end_is_read_less_at_once_the_longer_its_frames_take() {
        let turns = Turns::new(Metrics::default());
        let mut inlet = Inlet::new(tokio::io::repeat(7), turns.of_part(), None);
        let mut buffer = vec![0; 2 * MAX_READ_BYTES as usize];
        let mut reads = Vec::new();
        {
            let mut task = pin!(turns.run(std::future::poll_fn(|cx| {
                let mut of_this_poll = Vec::new();
                loop {
                    let mut buf = ReadBuf::new(&mut buffer);
                    if Pin::new(&mut inlet).poll_read(cx, &mut buf).is_pending() {
                        reads.push(of_this_poll);
                        return if reads.len() < 20 { Poll::Pending } else { Poll::Ready(()) };
                    }
                    of_this_poll.push(buf.filled().len());
                    let start = std::time::SystemTime::now();
                    while start.elapsed().is_ok_and(|elapsed| elapsed < 4 * MAX_LATENESS) {}
                }
            })));
            while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }
        assert!(reads.iter().all(|reads| reads.len() == 1), "{reads:?}");
        assert_eq!(reads[0], [MAX_READ_BYTES as usize]);
        assert_eq!(reads[19], [MIN_READ_BYTES as usize], "{reads:?}");
    }
}
