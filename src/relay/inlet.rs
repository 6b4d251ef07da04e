//! The reading half of a stream. It reads in turns, and no faster than the other side of the relay
//! can be written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::backlog::Backlog;
use super::turn::{Turn, TurnStatus};

/// Maximum bytes of one read. h2 decodes all of them before it reads again.
const MAX_READ_BYTES: u32 = 32 << 10;

/// Maximum bytes of one read from a stream whose frames take long to process.
const MIN_READ_BYTES: u32 = 256;

/// Time by which a read, with its processing by h2, may exceed its turn.
const MAX_LATENESS: Duration = Duration::from_micros(50);

/// Pause between reads while the other side's backlog is full. One read per pause detects that the
/// peer has closed its connection and, slowly, that it has cancelled calls.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Time over which the bytes of a client are compared. Keepalive PINGs of several hours are no
/// flood.
const FLOOD_WINDOW: Duration = Duration::from_secs(1);

/// Pause after a turn in which a client sent hardly any bytes for the runtime, for example a flood
/// of PING or SETTINGS frames. Without the pause, a flood occupies a processor that the other
/// clients and the runtime need.
const FLOOD_PAUSE: Duration = Duration::from_millis(1);

/// Number of bytes that a client may send for each byte that is handed to the runtime. More is a
/// flood, if it takes longer than a turn.
const FLOOD_FACTOR: u64 = 4;

/// Deficit in bytes that is no flood. The calls of one full read wait in h2 until they are
/// accepted, which may take several turns.
const TOLERATED_DEFICIT: u64 = MAX_READ_BYTES as u64 / FLOOD_FACTOR;

/// Reads a stream in turns.
#[derive(Debug)]
pub(super) struct Inlet<S> {
    stream: S,
    turn: Turn,
    /// Backlog of the other side, which receives the data read here.
    onward: Backlog,
    /// Returns whether that backlog is full. While it is full, one read is made per [`FULL_PAUSE`].
    is_full: fn(&Backlog) -> bool,
    /// Set while the backlog is full.
    pause: Option<Pin<Box<Sleep>>>,
    /// Maximum bytes of the next read. It shrinks so that no turn is much too long, whatever the
    /// frames are.
    read_bytes: u32,
    /// Whether the last turn was too short.
    was_over: bool,
    /// Detector of floods. It is set for clients only.
    flood: Option<ControlFlood>,
}

/// Detects floods of frames that do not go to the runtime.
#[derive(Debug, Default)]
struct ControlFlood {
    /// Number of bytes that have been read since the last turn started.
    read: u64,
    /// Number of bytes that had been handed to the upstream connection when the last turn started.
    handed_on: u64,
    /// Number of bytes by which the data handed to the runtime falls short of a quarter of the data
    /// read, in the current window.
    deficit: u64,
    window_start: Option<Instant>,
    /// Set while a flooding client is not read.
    pause: Option<Pin<Box<Sleep>>>,
}

impl ControlFlood {
    /// Starts a turn. Returns whether the client floods the connection.
    fn start_turn(&mut self, handed_on: u64, now: Instant) -> bool {
        if self.window_start.is_none_or(|start| now - start >= FLOOD_WINDOW) {
            (self.window_start, self.deficit) = (Some(now), 0);
        }
        let newly_handed_on = handed_on.wrapping_sub(self.handed_on);
        let deficit = (self.deficit + self.read / FLOOD_FACTOR).saturating_sub(newly_handed_on);
        (self.handed_on, self.read) = (handed_on, 0);
        // The cap lets the pauses end soon after a client that has flooded makes calls again.
        self.deficit = deficit.min(2 * TOLERATED_DEFICIT);
        self.deficit > TOLERATED_DEFICIT
    }
}

impl<S> Inlet<S> {
    /// Creates the reading half of a client's stream.
    pub(super) fn for_client(stream: S, turn: Turn, onward: Backlog) -> Self {
        let flood = ControlFlood { handed_on: onward.handed_on(), ..ControlFlood::default() };
        Self { flood: Some(flood), ..Self::new(stream, turn, onward, Backlog::is_full) }
    }

    /// Creates the reading half of an upstream connection. Only heads and trailers pause its reads:
    /// windows limit the data of responses, and the runtime's data must be read before its
    /// connection is closed.
    pub(super) fn for_upstream(stream: S, turn: Turn, onward: Backlog) -> Self {
        Self::new(stream, turn, onward, Backlog::is_full_of_heads)
    }

    fn new(stream: S, turn: Turn, onward: Backlog, is_full: fn(&Backlog) -> bool) -> Self {
        Self {
            stream,
            turn,
            onward,
            is_full,
            pause: None,
            read_bytes: MAX_READ_BYTES,
            was_over: false,
            flood: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inlet<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if (self.is_full)(&self.onward) {
            // This task also writes to the other side, so it is polled when there is room again.
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(FULL_PAUSE)));
            ready!(pause.as_mut().poll(cx));
        }
        self.pause = None;
        if self.onward.is_source_paused() {
            return Poll::Pending;
        }
        if let Some(flood) = &mut self.flood
            && let Some(pause) = &mut flood.pause
        {
            ready!(pause.as_mut().poll(cx));
            flood.pause = None;
        }
        match self.turn.status() {
            TurnStatus::Started => {
                let was_over = std::mem::take(&mut self.was_over);
                if !was_over {
                    self.read_bytes = (self.read_bytes * 2).min(MAX_READ_BYTES);
                }
                let handed_on = self.onward.handed_on();
                if let Some(flood) = &mut self.flood
                    && flood.start_turn(handed_on, Instant::now())
                    && was_over
                {
                    let pause = flood.pause.insert(Box::pin(sleep(FLOOD_PAUSE)));
                    ready!(pause.as_mut().poll(cx));
                }
            }
            TurnStatus::Running => {}
            TurnStatus::Exhausted(late) => {
                if late > MAX_LATENESS && !self.was_over {
                    self.read_bytes = (self.read_bytes / 2).max(MIN_READ_BYTES);
                }
                self.was_over = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let read_bytes = u64::from(self.read_bytes);
        let before = buf.filled().len();
        let polled = Pin::new(&mut (&mut self.stream).take(read_bytes)).poll_read(cx, buf);
        if let Some(flood) = &mut self.flood {
            flood.read += (buf.filled().len() - before) as u64;
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::super::metrics::RelayMetrics;
    use super::super::turn::Turns;
    use super::*;

    /// Works for longer than a turn, however fast the machine is.
    fn work() {
        let start = std::time::SystemTime::now();
        while start.elapsed().is_ok_and(|elapsed| elapsed < 4 * MAX_LATENESS) {}
    }

    #[test]
    fn an_endless_stream_is_read_in_smaller_parts_the_longer_its_frames_take() {
        let turns = Turns::new(RelayMetrics::default());
        let mut inlet = Inlet::for_upstream(tokio::io::repeat(7), turns.new_turn(), Backlog::new());
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
                    work();
                }
            })));
            while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }
        assert!(reads.iter().all(|reads| reads.len() == 1), "{reads:?}");
        assert_eq!(reads[0], [MAX_READ_BYTES as usize]);
        assert_eq!(reads[19], [MIN_READ_BYTES as usize], "{reads:?}");
    }

    /// Returns whether a client that sends more than a turn allows is paused after three turns. A
    /// `share` of the bytes read goes to the runtime.
    fn is_paused(share: impl Fn(usize) -> usize) -> bool {
        let turns = Turns::new(RelayMetrics::default());
        let backlog = Backlog::new();
        let mut room = backlog.room();
        let mut inlet = Inlet::for_client(tokio::io::repeat(7), turns.new_turn(), backlog.clone());
        let mut buffer = vec![0; MAX_READ_BYTES as usize];
        let mut turn = |cx: &mut Context<'_>| {
            let mut reads = 0;
            loop {
                let mut buf = ReadBuf::new(&mut buffer);
                if Pin::new(&mut inlet).poll_read(cx, &mut buf).is_pending() {
                    return reads;
                }
                reads += 1;
                work();
                assert!(room.poll(cx, share(buf.filled().len())).is_ready());
                backlog.polled();
            }
        };
        let mut reads = Vec::new();
        {
            let mut task = pin!(turns.run(std::future::poll_fn(|cx| {
                reads.push(turn(cx));
                if reads.len() < 4 { Poll::Pending } else { Poll::Ready(()) }
            })));
            while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }
        assert!(reads[0] > 0);
        reads[3] == 0
    }

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[tokio::test]
    async fn a_client_that_sends_mostly_control_frames_is_paused() {
        assert!(is_paused(|_| 0));
        assert!(is_paused(|read| read / 10));
        assert!(!is_paused(|read| read / 2));
    }

    /// Runs turns with these numbers of bytes read and bytes handed to the runtime. Returns for
    /// each turn whether it found a flood.
    fn turns(flood: &mut ControlFlood, interval: Duration, turns: &[(u64, u64)]) -> Vec<bool> {
        let (mut handed_on, mut now) = (flood.handed_on, flood.window_start.unwrap_or_else(Instant::now));
        let turn = |&(read, sent): &(u64, u64)| {
            flood.read += read;
            handed_on += sent;
            now += interval;
            flood.start_turn(handed_on, now)
        };
        turns.iter().map(turn).collect()
    }

    #[test]
    fn calls_that_are_read_together_and_forwarded_in_many_turns_are_not_a_flood() {
        let mut flood = ControlFlood::default();
        let read = u64::from(MAX_READ_BYTES);
        let mut calls = vec![(read, 0)];
        calls.extend([(0, read / 100); 100]);
        assert!(!turns(&mut flood, MICROSECOND, &calls.repeat(3)).contains(&true));
    }

    #[test]
    fn a_flood_of_small_reads_is_detected_and_ends_with_the_next_calls() {
        let mut flood = ControlFlood::default();
        let small = (u64::from(MIN_READ_BYTES), 0);
        let found = turns(&mut flood, MICROSECOND, &vec![small; 10_000]);
        assert_eq!(found.iter().position(|is_flood| *is_flood), Some(128));
        assert!(found[128..].iter().all(|is_flood| *is_flood));
        let calls = [(1_000, TOLERATED_DEFICIT), (1_000, 1_000)];
        assert_eq!(turns(&mut flood, MICROSECOND, &calls), [true, false]);
    }

    #[test]
    fn keepalives_of_a_quiet_client_are_never_a_flood() {
        let mut flood = ControlFlood::default();
        assert!(!turns(&mut flood, FLOOD_WINDOW, &vec![(17, 0); 10_000]).contains(&true));
    }
}
