//! Forwards one call: its request to upstream, and its response to the client. Each side learns how
//! the other ended.

use std::any::Any;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::request::Parts;
use http::{Request, Response, Version};

use super::backlog::{Backlog, HeldHead};
use super::call::CallInFlight;
use super::changed_response::{ClientSide, ResponseChanges};
use super::outcome::{CallOutcome, ExchangeResult, UpstreamFailure, reason_of_client};
use super::pipe::{self, Pipe};
use crate::cri::{Code, StatusMessage};

/// A call whose exchange has ended, and the work that the session still has to do for it.
#[derive(Debug)]
pub(super) enum SettledCall {
    /// No work is left: the client has its response or its reset.
    Done,
    /// The client reset the call, or closed its connection.
    ResetByClient,
    /// Upstream reset the call during its response. The client's stream must be reset once the data
    /// before the reset is written.
    Reset(SendResponse<Bytes>, Reason),
    /// Upstream never accepted the call. The stream must be reset with `REFUSED_STREAM` after a
    /// GOAWAY.
    Refused(SendResponse<Bytes>),
    /// The upstream connection broke during the call. The client's connection must be closed, and
    /// the stream released only after that.
    Lost(SendResponse<Bytes>),
    /// The policy closes the client's connection.
    Disconnected,
}

/// The backlogs of both sides of a call.
#[derive(Clone, Debug)]
pub(super) struct Backlogs {
    pub(super) client: Backlog,
    pub(super) upstream: Backlog,
}

/// A request to be forwarded.
pub(super) struct PendingRequest {
    pub(super) head: Parts,
    pub(super) body: RecvStream,
    /// The beginning of the body, if it was read before.
    pub(super) beginning: Bytes,
}

/// A request that has been handed to the upstream connection, and may wait until the runtime
/// accepts another stream.
pub(super) struct PendingOpen {
    upstream: SendRequest<Bytes>,
    /// Counts the request's head while it waits.
    _head: HeldHead,
}

impl PendingOpen {
    /// Returns whether the runtime has accepted the stream, or the connection is gone.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.upstream.poll_ready(cx).is_ready()
    }
}

/// Forwards one call of a client to upstream, and its response to the client.
pub(super) async fn forward(
    mut call: CallInFlight,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    upstream: SendRequest<Bytes>,
    backlogs: Backlogs,
) -> SettledCall {
    let (head, body) = request.into_parts();
    let request = PendingRequest { head, body, beginning: Bytes::new() };
    let outcome = exchange(request, &mut respond, upstream, &backlogs, &mut call, Changes::default()).await;
    settle(call, &outcome, respond)
}

/// Records the result of a call. Returns the work that is left.
pub(super) fn settle(
    mut call: CallInFlight,
    outcome: &ExchangeResult,
    mut respond: SendResponse<Bytes>,
) -> SettledCall {
    call.end.note(CallOutcome::from(outcome));
    match *outcome {
        ExchangeResult::Answered(_) => SettledCall::Done,
        ExchangeResult::ClientReset(_) => SettledCall::ResetByClient,
        ExchangeResult::ResetUnanswered(reason) => {
            respond.send_reset(reason);
            SettledCall::Done
        }
        ExchangeResult::Failed(UpstreamFailure::Reset(reason)) => SettledCall::Reset(respond, reason),
        ExchangeResult::Failed(UpstreamFailure::Refused) => SettledCall::Refused(respond),
        ExchangeResult::Failed(UpstreamFailure::Lost) => SettledCall::Lost(respond),
        ExchangeResult::Disconnected => SettledCall::Disconnected,
    }
}

/// The policy's part in an exchange. The default leaves the call as it is.
#[derive(Default)]
pub(super) struct Changes {
    /// Changes of the response.
    pub(super) response: Option<ResponseChanges>,
    /// Values that are kept until the runtime has answered, such as a permit.
    pub(super) guards: Vec<Box<dyn Any + Send>>,
}

/// Forwards a request and its response.
pub(super) async fn exchange(
    request: PendingRequest,
    respond: &mut SendResponse<Bytes>,
    mut upstream: SendRequest<Bytes>,
    backlogs: &Backlogs,
    call: &mut CallInFlight,
    changes: Changes,
) -> ExchangeResult {
    let PendingRequest { head, body, beginning } = request;
    let mut head = Request::from_parts(head, ());
    if head.uri().authority().is_none() {
        // A request may lack an authority. h2 forwards it without one only if its version is
        // HTTP/1.
        *head.version_mut() = Version::HTTP_11;
    }
    let waiting_head = backlogs.upstream.hold_head(head.headers());
    backlogs.upstream.add_head(head.headers());
    let has_no_body = body.is_end_stream() && beginning.is_empty();
    let (response, to_upstream) = match upstream.send_request(head, has_no_body) {
        Ok(sent) => sent,
        Err(error) => return ExchangeResult::on_no_response(UpstreamFailure::from_send_error(&error)),
    };
    let opening = PendingOpen { upstream, _head: waiting_head };
    let CallInFlight { request: sent, response: received, end, .. } = call;
    let mut upload = Pipe::new(body, to_upstream, &backlogs.upstream, sent);
    upload.begin_with(beginning);
    let client = ClientSide { respond, backlog: &backlogs.client, received, end };
    let head = response_head(opening, response, client.respond, &mut upload).await;
    // The runtime has executed a call without a stream before it sends the head of the response. A
    // client that reads slowly keeps no permit.
    drop(changes.guards);
    let answered = match (head, changes.response) {
        (Err(outcome), _) => Err(outcome),
        (Ok(response), None) => answer(response, client, &mut upload).await,
        (Ok(response), Some(changes)) => changes.answer(response, client, &mut upload).await,
    };
    let outcome = answered.unwrap_or_else(|outcome| outcome);
    match outcome {
        ExchangeResult::ClientReset(reason) => upload.reset(reason),
        ExchangeResult::Disconnected => upload.reset(Reason::CANCEL),
        _ => {}
    }
    outcome
}

/// Forwards the response to the client while the request is forwarded to upstream.
async fn answer(
    response: Response<RecvStream>,
    client: ClientSide<'_>,
    upload: &mut Pipe<'_>,
) -> Result<ExchangeResult, ExchangeResult> {
    let ClientSide { respond, backlog, received, end } = client;
    let (head, body) = response.into_parts();
    // A response without messages may have its status in its head.
    let code = Code::from_headers(&head.headers);
    let message = StatusMessage::from_headers(code, &head.headers);
    backlog.add_head(&head.headers);
    let head = Response::from_parts(head, ());
    let to_client = respond
        .send_response(head, body.is_end_stream())
        .map_err(|_| ExchangeResult::ClientReset(Reason::CANCEL))?;
    let mut download = Pipe::new(body, to_client, backlog, received);
    response_body(upload, &mut download).await?;
    let code = download.code().or(code);
    // The call has its response, whatever happens to the rest of the request.
    end.note(CallOutcome::Completed(code));
    end.message = download.take_message().or(message);
    finish_request(upload, &mut download).await;
    Ok(ExchangeResult::Answered(code))
}

/// Waits for the head of the response while the request is forwarded.
async fn response_head(
    opening: PendingOpen,
    mut response: ResponseFuture,
    respond: &mut SendResponse<Bytes>,
    upload: &mut Pipe<'_>,
) -> Result<Response<RecvStream>, ExchangeResult> {
    let mut opening = Some(opening);
    poll_fn(|cx| {
        if opening.as_mut().is_some_and(|opening| opening.is_over(cx)) {
            opening = None;
        }
        if let Poll::Ready(reset) = respond.poll_reset(cx) {
            return Poll::Ready(Err(ExchangeResult::ClientReset(reset.unwrap_or(Reason::CANCEL))));
        }
        if let Poll::Ready(pipe::PipeEnd::Source(error)) = upload.poll(cx) {
            return Poll::Ready(Err(ExchangeResult::ClientReset(reason_of_client(&error))));
        }
        Pin::new(&mut response)
            .poll(cx)
            .map_err(|error| ExchangeResult::on_no_response(UpstreamFailure::from_stream_error(&error)))
    })
    .await
}

/// Forwards the response to its end, and as much of the request as arrives meanwhile.
async fn response_body(upload: &mut Pipe<'_>, download: &mut Pipe<'_>) -> Result<(), ExchangeResult> {
    poll_fn(|cx| {
        if let Poll::Ready(pipe::PipeEnd::Source(error)) = upload.poll(cx) {
            return Poll::Ready(Err(ExchangeResult::ClientReset(reason_of_client(&error))));
        }
        download.poll(cx).map(|end| match end {
            pipe::PipeEnd::Clean => Ok(()),
            pipe::PipeEnd::SinkReset(reason) => Err(ExchangeResult::ClientReset(reason)),
            pipe::PipeEnd::Sink => Err(ExchangeResult::ClientReset(Reason::CANCEL)),
            pipe::PipeEnd::Source(error) => {
                Err(ExchangeResult::Failed(UpstreamFailure::from_stream_error(&error)))
            }
        })
    })
    .await
}

/// Forwards the rest of a request whose response is complete, until upstream declines it or the
/// client gives up.
async fn finish_request(upload: &mut Pipe<'_>, download: &mut Pipe<'_>) {
    let given_up = poll_fn(|cx| match upload.poll(cx) {
        Poll::Ready(pipe::PipeEnd::Source(error)) => Poll::Ready(Some(reason_of_client(&error))),
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => download.poll_sink_reset(cx).map(|end| match end {
            pipe::PipeEnd::SinkReset(reason) => Some(reason),
            _ => Some(Reason::CANCEL),
        }),
    });
    if let Some(reason) = given_up.await {
        upload.reset(reason);
    }
}
