//! The connection to the runtime that belongs to one client connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use h2::client::{Connection, SendRequest};
use tokio::io::{Join, join};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::backlog::{Backlog, TrackedWriter};
use super::h2_settings;
use super::inlet::Inlet;
use super::turn::Turns;
use crate::socket::SocketPath;

/// How the upstream connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamState {
    /// It takes calls.
    Open,
    /// It sent GOAWAY with this reason: calls that it took go on, new ones are refused.
    GoingAway(Reason),
    /// It is gone, with this reason.
    Closed(Reason),
}

type Stream = Join<Inlet<OwnedReadHalf>, TrackedWriter<OwnedWriteHalf>>;

/// A connection to the runtime, which moves when it is polled and is closed when dropped.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Sends calls. Each takes a clone.
    pub(super) calls: SendRequest<Bytes>,
    /// The backlog towards the runtime.
    pub(super) backlog: Backlog,
    /// `None` once it is gone.
    connection: Option<Connection<Stream, Bytes>>,
    /// Takes no more calls once a GOAWAY has come.
    probe: SendRequest<Bytes>,
    state: UpstreamState,
    state_reported: bool,
}

impl UpstreamState {
    /// Returns the reason for which the connection ends; `NO_ERROR` while it is open.
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Open => Reason::NO_ERROR,
            Self::GoingAway(reason) | Self::Closed(reason) => reason,
        }
    }
}

impl Upstream {
    /// Connects, and sends the HTTP/2 preface. The runtime is read no faster than the client's backlog allows.
    pub(super) async fn connect(
        path: &SocketPath,
        turns: &Turns,
        client_backlog: Backlog,
    ) -> io::Result<Self> {
        let (read, write) = UnixStream::connect(path.as_path()).await?.into_split();
        let backlog = Backlog::new();
        let outlet = TrackedWriter::to_upstream(write, turns.new_turn(), backlog.clone());
        let stream = join(Inlet::for_upstream(read, turns.new_turn(), client_backlog), outlet);
        let (calls, connection) = h2_settings::client().handshake(stream).await.map_err(io::Error::other)?;
        let (connection, probe) = (Some(connection), calls.clone());
        Ok(Self { calls, backlog, connection, probe, state: UpstreamState::Open, state_reported: true })
    }

    /// Moves the frames of the connection. The task is woken where there is news of it.
    pub(super) fn poll_frames(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let end = Pin::new(connection).poll(cx);
        self.backlog.polled();
        // h2 has no signal for a GOAWAY that came, but takes no more calls after one.
        if let Poll::Ready(Err(error)) = self.probe.poll_ready(cx)
            && self.state == UpstreamState::Open
        {
            self.state = UpstreamState::GoingAway(error.reason().unwrap_or(Reason::NO_ERROR));
            self.state_reported = false;
        }
        if let Poll::Ready(end) = end {
            let said = match self.state {
                UpstreamState::GoingAway(reason) => Some(reason),
                UpstreamState::Open | UpstreamState::Closed(_) => None,
            };
            // Our own farewell may fail to be written; what the runtime said before is the better reason.
            let reason = end.err().and_then(|error| error.reason()).or(said).unwrap_or(Reason::NO_ERROR);
            self.connection = None;
            self.backlog.close();
            self.state = UpstreamState::Closed(reason);
            self.state_reported = false;
        }
        if !self.state_reported {
            // It may be asked for only after the next poll.
            cx.waker().wake_by_ref();
        }
    }

    /// Returns how the connection stands, where that is news.
    pub(super) fn take_change(&mut self) -> Option<UpstreamState> {
        (!std::mem::replace(&mut self.state_reported, true)).then_some(self.state)
    }

    /// Moves the frames of the connection until there is news of it.
    pub(super) fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<UpstreamState> {
        self.poll_frames(cx);
        self.take_change().map_or(Poll::Pending, Poll::Ready)
    }
}
