//! One client connection tied to one upstream connection, from accept to the end of both.

use std::future::{pending, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::net::UnixStream;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::forward::{Settled, forward};
use super::legacy::Adapter;
use super::peer::Peer;
use super::tuning;
use super::upstream::{State, Upstream};
use crate::socket::SocketPath;

/// How long calls may take to hand on what they had when their upstream went, and the client to read our farewell.
const FAREWELL: Duration = Duration::from_secs(1);

type Client = Connection<Adapter<UnixStream>, Bytes>;
type NewCall = (Request<RecvStream>, SendResponse<Bytes>);

/// What ended a link.
enum End {
    /// The client went, after a drain perhaps.
    Client,
    /// The client broke the rules of HTTP/2.
    Protocol(h2::Error),
    /// Upstream went.
    Upstream,
    /// The relay drained before the client had said a word.
    Drain,
}

/// A link whose two connections stand.
struct Link {
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

/// Serves a client until it goes, upstream goes, or the relay has drained. `id` counts connections, for the log.
pub(super) async fn run(id: u64, stream: UnixStream, upstream: Arc<SocketPath>, drain: CancellationToken) {
    let peer = Peer::of(&stream).map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    // Dialled before a byte of the client is read: where the runtime would refuse it, so do we, at once.
    let upstream = match Upstream::dial(&upstream).await {
        Ok(dialled) => dialled,
        Err(error) => {
            warn!(connection = id, %peer, %upstream, %error, "upstream is not there: client refused");
            return;
        }
    };
    info!(connection = id, %peer, "client connected");
    let start = Instant::now();
    let (calls, end) = serve(id, stream, upstream, &drain).await;
    let duration = start.elapsed();
    let reason = match end {
        End::Client => "the client left",
        End::Upstream => "upstream has gone",
        End::Drain => "draining",
        End::Protocol(error) => {
            warn!(connection = id, %peer, calls, ?duration, %error, "client broke the protocol");
            return;
        }
    };
    info!(connection = id, %peer, calls, ?duration, reason, "client disconnected");
}

/// Speaks HTTP/2 with the client; returns how many calls were carried, and what ended the link.
async fn serve(id: u64, stream: UnixStream, mut upstream: Upstream, drain: &CancellationToken) -> (u64, End) {
    let handshake = tuning::server().handshake(Adapter::new(stream));
    let client = tokio::select! {
        client = handshake => client,
        _ = upstream.changed() => return (0, End::Upstream),
        () = drain.cancelled() => return (0, End::Drain),
    };
    match client {
        Ok(client) => Link::new(id, client, upstream).run(drain).await,
        Err(error) => (0, End::of_client(error)),
    }
}

impl End {
    fn of_client(error: h2::Error) -> Self {
        // A client that goes with answers unread resets its socket: that is a way to go, too.
        if error.is_io() { Self::Client } else { Self::Protocol(error) }
    }
}

impl Link {
    fn new(id: u64, client: Client, upstream: Upstream) -> Self {
        let (calls, lost) = (JoinSet::new(), Vec::new());
        Self { id, client, upstream, calls, lost, carried: 0, leaving: false, gone: None, cut_at: None }
    }

    async fn run(mut self, drain: &CancellationToken) -> (u64, End) {
        let mut drained = pin!(drain.cancelled());
        let end = loop {
            tokio::select! {
                biased;
                // First what is finished: whether calls are left decides how the rest ends.
                Some(settled) = self.calls.join_next() => self.settle(settled),
                state = self.upstream.changed(), if self.gone.is_none() => self.upstream_changed(state),
                () = &mut drained, if !self.leaving => self.leave(),
                () = wait_until(self.cut_at) => break self.farewell().await,
                accepted = self.client.accept() => match self.take_call(accepted) {
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

    fn take_call(&mut self, accepted: Option<Result<NewCall, h2::Error>>) -> ControlFlow<End> {
        match accepted {
            Some(Ok((request, respond))) => {
                self.carried += 1;
                self.calls.spawn(forward(self.id, request, respond, self.upstream.calls.clone()));
                ControlFlow::Continue(())
            }
            Some(Err(error)) => ControlFlow::Break(End::of_client(error)),
            None if self.gone.is_some() => ControlFlow::Break(End::Upstream),
            None => ControlFlow::Break(End::Client),
        }
    }

    fn settle(&mut self, settled: Result<Settled, JoinError>) {
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
            Err(error) => error!(connection = self.id, %error, "a call ended by a fault of ours"),
        }
    }

    fn upstream_changed(&mut self, state: State) {
        let has_calls = !self.calls.is_empty();
        match state {
            State::Open => {}
            // h2 can give a reason only in its final GOAWAY. While calls run, leave with NO_ERROR now and give the
            // reason at the end.
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

    /// Whether upstream is gone and nothing is left to hand on. Answers that the client has yet to read keep the
    /// connection; it ends by itself after them.
    fn is_over(&self) -> bool {
        // A lost stream is never answered, but counts as one that the client has open.
        let has_unread_answers = self.lost.is_empty() && self.client.has_streams();
        self.gone.is_some() && self.calls.is_empty() && !has_unread_answers
    }

    /// Closes the client's connection as upstream closed ours.
    async fn farewell(&mut self) -> End {
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
        End::Upstream
    }
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
