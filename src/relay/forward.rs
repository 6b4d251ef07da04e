//! One call: its request goes up, its response comes down, and each side learns how the other ended.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::task::yield_now;
use tokio::time::Instant;
use tracing::{Level, debug, enabled};

use super::ending::{Failure, client_gave_up};
use super::pipe::{End, Pipe};
use crate::cri::Code;

/// What is left to do for a call, by the link that knows the state of both connections.
#[derive(Debug)]
pub(super) enum Settled {
    /// Nothing: the client has its answer, its reset, or has gone.
    Done,
    /// Upstream never took the call: reset it with `REFUSED_STREAM` once the client knows that we are leaving.
    Refused(SendResponse<Bytes>),
    /// The connection broke under the call: close the client's connection, and let go of the stream only then.
    Lost(SendResponse<Bytes>),
}

/// How a call ended, as far as this relay knows.
enum Outcome {
    /// The response is complete; its gRPC code, if it has one.
    Answered(Option<Code>),
    /// The client reset the stream or is gone.
    Cancelled(Reason),
    /// Upstream did not finish it.
    Failed(Failure),
}

/// Carries one call from a client to upstream and back.
pub(super) async fn forward(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    upstream: SendRequest<Bytes>,
) -> Settled {
    let log = enabled!(Level::DEBUG).then(|| (request.uri().path().to_owned(), Instant::now()));
    let outcome = exchange(request, &mut respond, upstream).await;
    if let Some((method, start)) = log {
        debug!(%method, status = %outcome, duration = ?start.elapsed(), "call");
    }
    match outcome {
        Outcome::Answered(_) | Outcome::Cancelled(_) => Settled::Done,
        Outcome::Failed(Failure::Reset(reason)) => {
            // h2 drops what is still queued when a stream is reset: let the connection write it first.
            yield_now().await;
            respond.send_reset(reason);
            Settled::Done
        }
        Outcome::Failed(Failure::Refused) => Settled::Refused(respond),
        Outcome::Failed(Failure::Lost) => Settled::Lost(respond),
    }
}

async fn exchange(
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
    mut upstream: SendRequest<Bytes>,
) -> Outcome {
    let (head, body) = request.into_parts();
    let whole = body.is_end_stream();
    let (response, to_upstream) = match upstream.send_request(Request::from_parts(head, ()), whole) {
        Ok(sent) => sent,
        Err(error) => return Outcome::Failed(Failure::before_sending(&error)),
    };
    drop(upstream);
    let mut upload = pipe(whole, body, to_upstream);

    let response = match response_head(response, respond, &mut upload).await {
        Ok(response) => response,
        Err(outcome) => return cancel_upstream(upload, outcome),
    };
    let (head, body) = response.into_parts();
    let whole = body.is_end_stream();
    let code = Code::from_headers(&head.headers);
    let Ok(to_client) = respond.send_response(Response::from_parts(head, ()), whole) else {
        return cancel_upstream(upload, Outcome::Cancelled(Reason::CANCEL));
    };
    let mut download = pipe(whole, body, to_client);
    if let Err(outcome) = response_body(&mut upload, &mut download).await {
        return cancel_upstream(upload, outcome);
    }
    rest_of_request(&mut upload, &mut download).await;
    Outcome::Answered(download.code().or(code))
}

/// Waits for the head of the response while the request goes up.
async fn response_head(
    mut response: ResponseFuture,
    respond: &mut SendResponse<Bytes>,
    upload: &mut Pipe,
) -> Result<Response<RecvStream>, Outcome> {
    poll_fn(|cx| {
        if let Poll::Ready(reset) = respond.poll_reset(cx) {
            return Poll::Ready(Err(Outcome::Cancelled(reset.unwrap_or(Reason::CANCEL))));
        }
        if let Poll::Ready(End::Source(error)) = upload.poll(cx) {
            return Poll::Ready(Err(Outcome::Cancelled(client_gave_up(&error))));
        }
        Pin::new(&mut response).poll(cx).map_err(|error| Outcome::Failed(Failure::of(&error)))
    })
    .await
}

/// Moves the response to its end, and as much of the request as comes meanwhile.
async fn response_body(upload: &mut Pipe, download: &mut Pipe) -> Result<(), Outcome> {
    let end = poll_fn(|cx| {
        if let Poll::Ready(End::Source(error)) = upload.poll(cx) {
            return Poll::Ready(End::Declined(client_gave_up(&error)));
        }
        download.poll(cx)
    });
    match end.await {
        End::Clean => Ok(()),
        End::Declined(reason) => Err(Outcome::Cancelled(reason)),
        End::Sink => Err(Outcome::Cancelled(Reason::CANCEL)),
        End::Source(error) => Err(Outcome::Failed(Failure::of(&error))),
    }
}

/// Moves what is left of a request whose response is complete, until upstream declines it or the client gives up.
async fn rest_of_request(upload: &mut Pipe, download: &mut Pipe) {
    let given_up = poll_fn(|cx| match upload.poll(cx) {
        Poll::Ready(End::Source(error)) => Poll::Ready(Some(client_gave_up(&error))),
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => download.poll_declined(cx).map(|end| match end {
            End::Declined(reason) => Some(reason),
            _ => Some(Reason::CANCEL),
        }),
    });
    if let Some(reason) = given_up.await {
        upload.reset(reason);
    }
}

/// Tells upstream that the client has gone, if it has.
fn cancel_upstream(mut upload: Pipe, outcome: Outcome) -> Outcome {
    if let Outcome::Cancelled(reason) = outcome {
        upload.reset(reason);
    }
    outcome
}

fn pipe(whole: bool, from: RecvStream, to: h2::SendStream<Bytes>) -> Pipe {
    if whole { Pipe::finished(from, to) } else { Pipe::new(from, to) }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(Some(code)) => write!(f, "{code}"),
            Self::Answered(None) => f.write_str("no gRPC status"),
            Self::Cancelled(reason) => write!(f, "client reset ({reason:?})"),
            Self::Failed(Failure::Reset(reason)) => write!(f, "upstream reset ({reason:?})"),
            Self::Failed(Failure::Refused) => f.write_str("upstream refused"),
            Self::Failed(Failure::Lost) => f.write_str("upstream connection lost"),
        }
    }
}
