//! A second thread for the connections of a storm. Thousands of clients that connect at once would
//! delay the calls of clients that are connected already: each connection needs a fraction of a
//! millisecond for its beginning and its end.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::EVENT_INTERVAL;
use super::peer::Peer;
use crate::niceness::give_way;
use crate::token_bucket::TokenBucket;

/// Number of connections that the relay's thread takes at once.
const BURST: u32 = 64;

/// Time after which the relay's thread takes one more.
const REFILL: Duration = Duration::from_millis(15);

/// Least niceness of the second thread: the relay's thread goes first where both want the same
/// core.
const NICE: i32 = 5;

/// Decides which thread serves a connection.
#[derive(Debug)]
pub(super) struct Placement {
    /// The connections that the relay's thread takes.
    of_relay: TokenBucket,
    second: SecondThread,
}

/// The second thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct SecondThread {
    runtime: Handle,
    _end: DropGuard,
}

impl Placement {
    pub(super) fn new(second: SecondThread) -> Self {
        Self { of_relay: TokenBucket::new(REFILL, BURST), second }
    }

    /// Returns the thread that serves a connection, with the connection: `None` for the thread of
    /// the relay. That serves each kubelet, whose connections last for days.
    pub(super) fn place(&mut self, client: UnixStream) -> io::Result<(Option<Handle>, UnixStream)> {
        let is_kubelet = || Peer::from_socket(&client).is_some_and(|peer| peer.is_kubelet());
        if self.of_relay.try_accept(Instant::now()) || is_kubelet() {
            return Ok((None, client));
        }
        let runtime = self.second.runtime.clone();
        let client = client.into_std()?;
        let _entered = runtime.enter();
        Ok((Some(runtime.clone()), UnixStream::from_std(client)?))
    }
}

impl SecondThread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        thread::Builder::new().name("relay-overflow".to_owned()).spawn(move || {
            give_way(NICE);
            runtime.block_on(ended.cancelled());
        })?;
        Ok(Self { runtime: handle, _end: end.drop_guard() })
    }

    /// Returns a handle of the thread.
    pub(super) fn handle(&self) -> Handle {
        self.runtime.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_beyond_a_burst_are_served_by_a_second_thread() {
        let mut placement = Placement::new(SecondThread::start().unwrap());
        let mut place = || {
            let (thread, _client) = placement.place(UnixStream::pair().unwrap().0).unwrap();
            thread
        };
        let first: Vec<_> = (0..BURST).map(|_| place()).collect();
        assert!(first.iter().all(Option::is_none));
        // The time of the test may refill some.
        let beyond: Vec<Handle> = (0..10 * BURST).filter_map(|_| place()).collect();
        assert!(!beyond.is_empty());
        let name = beyond[0].spawn(async { thread::current().name().map(str::to_owned) });
        assert_eq!(name.await.unwrap().as_deref(), Some("relay-overflow"));
        assert!(beyond.iter().all(|thread| thread.id() == beyond[0].id()), "there is one second thread");
    }

    #[test]
    fn the_relay_takes_more_connections_after_a_while() {
        let mut placement = Placement::new(SecondThread::start().unwrap());
        let start = Instant::now();
        let mut taken = |at: Duration| (0..200).filter(|_| placement.of_relay.try_accept(start + at)).count();
        let counts =
            [Duration::ZERO, REFILL / 2, 3 * REFILL + REFILL / 2, 4 * REFILL, 1000 * REFILL].map(&mut taken);
        assert_eq!(counts, [64, 0, 3, 1, 64]);
    }
}
