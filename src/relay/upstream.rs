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

/// State of the upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamState {
    /// The connection accepts calls.
    Open,
    /// The runtime sent GOAWAY with this reason. Calls that it accepted continue, and new ones are
    /// refused.
    GoingAway(Reason),
    /// The connection is closed, with this reason.
    Closed(Reason),
}

type Stream = Join<Inlet<OwnedReadHalf>, TrackedWriter<OwnedWriteHalf>>;

/// A connection to the runtime. It makes progress when it is polled, and is closed when it is
/// dropped.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Sends calls. Each call takes a clone.
    pub(super) calls: SendRequest<Bytes>,
    /// Backlog of the data for the runtime.
    pub(super) backlog: Backlog,
    /// `None` once the connection is closed.
    connection: Option<Connection<Stream, Bytes>>,
    /// Detects a GOAWAY, after which it accepts no more calls.
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
    /// Connects to the runtime, and sends the HTTP/2 preface. The runtime is read no faster than
    /// the client's backlog allows.
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

    /// Moves the frames of the connection. Wakes the task if the state has changed.
    pub(super) fn poll_frames(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let end = Pin::new(connection).poll(cx);
        self.backlog.polled();
        // h2 has no signal for a received GOAWAY, but accepts no more calls after one.
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
            // Writing our final GOAWAY may fail with an error without a reason. The reason that the
            // runtime sent before is used then.
            let reason = end.err().and_then(|error| error.reason()).or(said).unwrap_or(Reason::NO_ERROR);
            self.connection = None;
            self.backlog.close();
            self.state = UpstreamState::Closed(reason);
            self.state_reported = false;
        }
        if !self.state_reported {
            // The caller may take the change only after the next poll.
            cx.waker().wake_by_ref();
        }
    }

    /// Returns the state of the connection if it has changed since the last call.
    pub(super) fn take_change(&mut self) -> Option<UpstreamState> {
        (!std::mem::replace(&mut self.state_reported, true)).then_some(self.state)
    }

    /// Moves the frames of the connection until its state changes.
    pub(super) fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<UpstreamState> {
        self.poll_frames(cx);
        self.take_change().map_or(Poll::Pending, Poll::Ready)
    }
}
