//! The connection to the runtime that belongs to one client connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::Reason;
use h2::client::{Connection, SendRequest};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::tuning;
use crate::socket::SocketPath;

/// How the upstream connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It takes calls.
    Open,
    /// It sent GOAWAY with this reason: calls that it took go on, new ones are refused.
    Leaving(Reason),
    /// It is gone, with this reason.
    Gone(Reason),
}

/// A connection to the runtime, driven by a task of its own and closed when dropped.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Sends calls. Each takes a clone.
    pub(super) calls: SendRequest<Bytes>,
    state: watch::Receiver<State>,
    driver: JoinHandle<()>,
}

impl Upstream {
    /// Connects, and sends the HTTP/2 preface.
    pub(super) async fn dial(path: &SocketPath) -> io::Result<Self> {
        let stream = UnixStream::connect(path.as_path()).await?;
        let (calls, connection) = tuning::client().handshake(stream).await.map_err(io::Error::other)?;
        let (report, state) = watch::channel(State::Open);
        let driver = tokio::spawn(drive(connection, calls.clone(), report));
        Ok(Self { calls, state, driver })
    }

    /// Waits for the next change of state.
    pub(super) async fn changed(&mut self) -> State {
        match self.state.changed().await {
            Ok(()) => *self.state.borrow_and_update(),
            // The driver says `Gone` before it ends, unless it panicked.
            Err(_) => State::Gone(Reason::INTERNAL_ERROR),
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Moves the frames of one connection, and says when the runtime begins to leave and when it has gone.
async fn drive(
    mut connection: Connection<UnixStream>,
    mut probe: SendRequest<Bytes>,
    report: watch::Sender<State>,
) {
    let mut goaway_reason = None;
    let end = poll_fn(|cx| {
        let end = Pin::new(&mut connection).poll(cx);
        // h2 has no signal for a GOAWAY that came, but takes no more calls after one.
        if let Poll::Ready(Err(error)) = probe.poll_ready(cx) {
            let reason = *goaway_reason.get_or_insert(error.reason().unwrap_or(Reason::NO_ERROR));
            report.send_if_modified(|state| {
                let is_news = *state == State::Open;
                *state = State::Leaving(reason);
                is_news
            });
        }
        end
    })
    .await;
    // Our own farewell may fail to be written; what the runtime said before is the better reason.
    let reason = end.err().and_then(|error| error.reason()).or(goaway_reason).unwrap_or(Reason::NO_ERROR);
    report.send_replace(State::Gone(reason));
}
