//! One client connection tied to one upstream connection, from accept to the end of both.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::forward::{Settled, forward};
use super::legacy::Adapter;
use super::peer::Peer;
use super::tuning;
use super::upstream::{State, Upstream};
use crate::socket::SocketPath;

/// How long calls may take to hand on what they had when their upstream went, and the client to read our farewell.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a link is made of.
#[derive(Debug)]
pub(super) struct Link {
    /// Counts from 1, for the log.
    pub(super) id: u64,
    /// Where calls go.
    pub(super) upstream: Arc<SocketPath>,
    /// Cancelled when the relay drains.
    pub(super) drain: CancellationToken,
}

type Client = Connection<Adapter<UnixStream>, Bytes>;
type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// A link whose two connections stand.
struct Joined {
    id: u64,
    client: Client,
    upstream: Upstream,
    calls: JoinSet<Settled>,
    /// Streams whose upstream connection broke: they end with the client's connection, not before.
    lost: Vec<SendResponse<Bytes>>,
    carried: u64,
    leaving: bool,
    /// Set once upstream is gone: why.
    gone: Option<Reason>,
    /// Set once a call is lost: until when the others may hand on what they have.
    cut_at: Option<Instant>,
}

/// Serves a client until it goes, upstream goes, or the relay has drained.
pub(super) async fn run(link: Link, stream: UnixStream) {
    let Link { id, upstream: path, drain } = link;
    let peer = Peer::of(&stream).map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    // Dialled before a byte of the client is read: where the runtime would refuse it, so do we, at once.
    let mut upstream = match Upstream::dial(&path).await {
        Ok(upstream) => upstream,
        Err(error) => {
            warn!(connection = id, %peer, upstream = %path, %error, "upstream is not there: client refused");
            return;
        }
    };
    info!(connection = id, %peer, "client connected");
    let start = Instant::now();
    let handshake = tuning::server().handshake(Adapter::new(stream));
    let client = tokio::select! {
        client = handshake => client,
        _ = upstream.changed() => return info!(connection = id, %peer, "upstream left before the client's first word"),
        () = drain.cancelled() => return info!(connection = id, %peer, "client disconnected before its first word"),
    };
    let (carried, end) = match client {
        Ok(client) => Joined::new(id, client, upstream).run(&drain).await,
        Err(error) => (0, Err(error)),
    };
    let duration = start.elapsed();
    match end {
        // A client that ends with answers unread resets its socket: that is a way to go, too.
        Err(error) if !error.is_io() => {
            warn!(connection = id, %peer, calls = carried, ?duration, %error, "client broke the protocol");
        }
        _ => info!(connection = id, %peer, calls = carried, ?duration, "client disconnected"),
    }
}

impl Joined {
    fn new(id: u64, client: Client, upstream: Upstream) -> Self {
        let (calls, lost) = (JoinSet::new(), Vec::new());
        Self { id, client, upstream, calls, lost, carried: 0, leaving: false, gone: None, cut_at: None }
    }

    /// Runs to the end; returns how many calls were carried, and what ended the client's connection.
    async fn run(mut self, drain: &CancellationToken) -> (u64, Result<(), h2::Error>) {
        let end = loop {
            tokio::select! {
                biased;
                // First what is finished: whether calls are left decides how the rest ends.
                Some(settled) = self.calls.join_next() => self.settle(settled),
                state = self.upstream.changed(), if self.gone.is_none() => self.upstream_changed(state),
                () = drain.cancelled(), if !self.leaving => self.leave(),
                () = wait_until(self.cut_at) => break self.farewell().await,
                accepted = self.client.accept() => match self.accepted(accepted) {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(end) => break end,
                },
            }
            if self.is_over() {
                break self.farewell().await;
            }
        };
        (self.carried, end)
    }

    fn accepted(
        &mut self,
        accepted: Option<Result<Accepted, h2::Error>>,
    ) -> ControlFlow<Result<(), h2::Error>> {
        match accepted {
            Some(Ok((request, respond))) => {
                self.carried += 1;
                self.calls.spawn(forward(request, respond, self.upstream.calls.clone()));
                ControlFlow::Continue(())
            }
            Some(Err(error)) => ControlFlow::Break(Err(error)),
            None => ControlFlow::Break(Ok(())),
        }
    }

    fn settle(&mut self, settled: Result<Settled, tokio::task::JoinError>) {
        match settled {
            Ok(Settled::Done) => {}
            Ok(Settled::Refused(mut respond)) => {
                // GOAWAY first: a client that sends the call again must not send it here.
                self.leave();
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            Ok(Settled::Lost(respond)) => {
                self.lost.push(respond);
                self.cut_at.get_or_insert_with(|| Instant::now() + FAREWELL);
            }
            Err(error) => warn!(%error, "a call ended by a fault of ours"),
        }
    }

    fn upstream_changed(&mut self, state: State) {
        let has_calls = !self.calls.is_empty();
        match state {
            State::Open => {}
            // h2 gives a reason only with its last GOAWAY, so one that matters has to wait for the calls.
            State::Leaving(reason) if has_calls || reason == Reason::NO_ERROR => {
                debug!(connection = self.id, ?reason, "upstream is leaving");
                self.leave();
            }
            State::Leaving(reason) | State::Gone(reason) => {
                warn!(
                    connection = self.id,
                    ?reason,
                    calls = self.calls.len(),
                    "upstream closed its connection"
                );
                self.gone = Some(reason);
                if has_calls {
                    self.leave();
                }
            }
        }
    }

    /// Asks the client to open no more streams here, and lets those that are open finish.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            self.client.graceful_shutdown();
        }
    }

    /// Whether upstream is gone and there is nothing left to hand on. Where calls were finished and the client is still to
    /// read their answers, the connection ends by itself when it has.
    fn is_over(&self) -> bool {
        let has_answers = self.lost.is_empty() && self.client.has_streams();
        self.gone.is_some() && self.calls.is_empty() && !has_answers
    }

    /// Closes the client's connection as upstream closed ours.
    async fn farewell(&mut self) -> Result<(), h2::Error> {
        // What calls handed on is written as far as the client takes it; the shutdown would drop it.
        poll_fn(|cx| {
            while let Poll::Ready(Some(Ok(_))) = self.client.poll_accept(cx) {}
            Poll::Ready(())
        })
        .await;
        self.client.abrupt_shutdown(self.gone.unwrap_or(Reason::NO_ERROR));
        let closed = async { while let Some(Ok(_)) = self.client.accept().await {} };
        // A client that does not read is not waited for.
        let _ = timeout(FAREWELL, closed).await;
        Ok(())
    }
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
