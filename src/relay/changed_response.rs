//! The response of a call that the policy changes, or gives in place of the runtime.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response};

use super::backlog::{Backlog, Room};
use super::body_tap::BodyTap;
use super::call::CallEnd;
use super::grpc_frames::frame_length;
use super::outcome::{CallOutcome, ExchangeResult, UpstreamFailure, reason_of_client};
use super::pipe::{Pipe, PipeEnd, poll_room};
use super::policy::{Effect, Ending, Hold, MessageChange, MessageEffect, ResponseSink};
use super::unary_response::{UnaryResponse, status_headers};
use crate::cri::{Code, StatusMessage};

/// The client's side of a call whose response has not begun.
pub(super) struct ClientSide<'a> {
    pub(super) respond: &'a mut SendResponse<Bytes>,
    pub(super) backlog: &'a Backlog,
    pub(super) received: &'a mut BodyTap,
    pub(super) end: &'a mut CallEnd,
}

/// Maximum length in bytes of a message that is shared, with its gRPC frame: that of the kubelet's
/// client.
const MAX_SHARED: usize = (16 << 20) + 5;

/// Changes of a response.
#[derive(Default)]
pub(super) struct ResponseChanges {
    pub(super) effects: Vec<Effect>,
    pub(super) messages: Vec<MessageChange>,
    /// Receives the response of the runtime.
    pub(super) share: Option<ResponseSink>,
}

/// A response whose head was sent to the client.
struct Reply<'a> {
    to: SendStream<Bytes>,
    room: Room,
    received: &'a mut BodyTap,
    end: &'a mut CallEnd,
}

/// The messages of a response of the runtime.
struct Messages {
    body: RecvStream,
    /// Data that was received, and is not returned yet.
    held: BytesMut,
}

impl ResponseChanges {
    /// Returns whether the response stays as it is.
    pub(super) fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.messages.is_empty() && self.share.is_none()
    }

    /// Sends the response of the runtime to the client, with the changes. The runtime has executed
    /// a call without a stream before it sends the head of the response.
    pub(super) async fn answer(
        self,
        response: Response<RecvStream>,
        mut client: ClientSide<'_>,
        upload: &mut Pipe<'_>,
    ) -> Result<ExchangeResult, ExchangeResult> {
        for effect in self.effects {
            match effect {
                Effect::Hold(hold) => client.unless_given_up(Some(upload), hold.wait()).await?,
                Effect::End(_, ended) if ended.is_cancelled() => {}
                Effect::End(ending, _) => return client.end(ending).await,
            }
        }
        if let Some(share) = self.share {
            // The response is complete before it is sent, so that a client that reads slowly delays
            // no other.
            match client.unless_given_up(Some(upload), whole(response)).await?? {
                ReadResponse::Whole(response) => {
                    share(&response);
                    return client.respond_with(response, Some(upload)).await;
                }
                // Others make the call themselves.
                ReadResponse::TooLong(head, messages) => {
                    drop(share);
                    return client.begin(head, false)?.forward(messages, &[], upload).await;
                }
            }
        }
        let (head, body) = response.into_parts();
        let code = Code::from_headers(&head.headers);
        let message = StatusMessage::from_headers(code, &head.headers);
        let is_end = body.is_end_stream();
        let mut reply = client.begin(Response::from_parts(head, ()), is_end)?;
        if is_end {
            return Ok(reply.ended(code, message));
        }
        reply.forward(Messages { body, held: BytesMut::new() }, &self.messages, upload).await
    }
}

impl<'a> ClientSide<'a> {
    /// Does some work while the request is forwarded, unless the client gives up before it is done.
    pub(super) async fn unless_given_up<T>(
        &mut self,
        upload: Option<&mut Pipe<'_>>,
        work: impl Future<Output = T>,
    ) -> Result<T, ExchangeResult> {
        let poll_reset = |cx: &mut Context<'_>| self.respond.poll_reset(cx).map(Result::ok);
        unless_given_up(poll_reset, upload, work).await
    }

    /// Ends the call without regard to the runtime.
    pub(super) async fn end(self, ending: Ending) -> Result<ExchangeResult, ExchangeResult> {
        match ending {
            Ending::Response(response) => self.respond_with(*response, None).await,
            Ending::Disconnect => Err(ExchangeResult::Disconnected),
            Ending::GoAway => Err(ExchangeResult::Failed(UpstreamFailure::Refused)),
        }
    }

    /// Sends a response.
    async fn respond_with(
        self,
        response: UnaryResponse,
        upload: Option<&mut Pipe<'_>>,
    ) -> Result<ExchangeResult, ExchangeResult> {
        let UnaryResponse { headers, message, trailers } = response;
        let (code, status_message) = status_of(&headers);
        let mut head = Response::new(());
        *head.headers_mut() = headers;
        let is_end = message.is_none() && trailers.is_none();
        let mut reply = self.begin(head, is_end)?;
        if is_end {
            return Ok(reply.ended(code, status_message));
        }
        if let Some(message) = message {
            reply.received.on_data(&message, true);
            reply.send(message, upload).await?;
        }
        match trailers {
            Some(trailers) => reply.end(trailers),
            None => reply.end_without_trailers(),
        }
    }

    /// Sends the head of the response.
    fn begin(self, head: Response<()>, is_end: bool) -> Result<Reply<'a>, ExchangeResult> {
        let Self { respond, backlog, received, end } = self;
        backlog.add_head(head.headers());
        let to = respond.send_response(head, is_end).map_err(|_| client_gone())?;
        Ok(Reply { to, room: backlog.room(), received, end })
    }
}

impl Reply<'_> {
    /// Sends the messages of the runtime with changes, and its trailers.
    async fn forward(
        &mut self,
        mut from: Messages,
        changes: &[MessageChange],
        upload: &mut Pipe<'_>,
    ) -> Result<ExchangeResult, ExchangeResult> {
        let (mut read, mut batch) = (0, Vec::new());
        loop {
            let truncated = active(changes).find_map(|effect| match effect {
                MessageEffect::Truncate(count, status) if *count <= read => Some(status),
                _ => None,
            });
            if let Some(status) = truncated {
                self.send_batch(&mut batch, changes, upload).await?;
                return self.end(status_headers(status));
            }
            let Some(message) = self.unless_given_up(Some(upload), from.next()).await?? else { break };
            read += 1;
            // The record has what the runtime sent: it is what is true on the node.
            self.received.on_data(&message, false);
            batch.push(edited(message, changes));
            let group = active(changes).find_map(|effect| match effect {
                MessageEffect::Reverse(count) => Some(*count),
                _ => None,
            });
            if batch.len() >= group.unwrap_or(1) {
                self.send_batch(&mut batch, changes, upload).await?;
            }
        }
        self.send_batch(&mut batch, changes, upload).await?;
        if let Some(trailers) = self.unless_given_up(Some(upload), from.trailers()).await?? {
            return self.end(trailers);
        }
        self.end_without_trailers()
    }

    /// Sends messages, the last one first.
    async fn send_batch(
        &mut self,
        batch: &mut Vec<Bytes>,
        changes: &[MessageChange],
        upload: &mut Pipe<'_>,
    ) -> Result<(), ExchangeResult> {
        while let Some(message) = batch.pop() {
            let copies = active(changes).find_map(|effect| match effect {
                MessageEffect::Repeat(count) => Some(*count),
                _ => None,
            });
            for _ in 0..copies.unwrap_or(1) {
                for MessageChange { effect, ended } in changes {
                    if let MessageEffect::Delay(delay) = effect {
                        let hold = Hold { duration: Some(*delay), released: ended.clone() };
                        self.unless_given_up(Some(upload), hold.wait()).await?;
                    }
                }
                self.send(message.clone(), Some(upload)).await?;
            }
        }
        Ok(())
    }

    /// Sends data as fast as the client takes it.
    async fn send(
        &mut self,
        mut data: Bytes,
        mut upload: Option<&mut Pipe<'_>>,
    ) -> Result<(), ExchangeResult> {
        while !data.is_empty() {
            self.to.reserve_capacity(data.len());
            poll_fn(|cx| {
                if let Poll::Ready(reason) = poll_given_up(
                    &mut |cx: &mut Context<'_>| self.to.poll_reset(cx).map(Result::ok),
                    upload.as_deref_mut(),
                    cx,
                ) {
                    return Poll::Ready(Err(ExchangeResult::ClientReset(reason)));
                }
                let Some(length) = ready!(poll_room(&mut self.to, &mut self.room, data.len(), cx)) else {
                    return Poll::Ready(Err(client_gone()));
                };
                self.received.on_forwarded(length);
                let sent = self.to.send_data(data.split_to(length), false);
                Poll::Ready(sent.map_err(|_| client_gone()))
            })
            .await?;
        }
        Ok(())
    }

    /// Sends the trailers.
    fn end(&mut self, trailers: HeaderMap) -> Result<ExchangeResult, ExchangeResult> {
        let (code, message) = status_of(&trailers);
        self.room.backlog().add_head(&trailers);
        self.to.send_trailers(trailers).map_err(|_| client_gone())?;
        Ok(self.ended(code, message))
    }

    /// Ends the response as the runtime ended it, without trailers.
    fn end_without_trailers(&mut self) -> Result<ExchangeResult, ExchangeResult> {
        self.to.send_data(Bytes::new(), true).map_err(|_| client_gone())?;
        Ok(self.ended(None, None))
    }

    /// Records that the response is complete.
    fn ended(&mut self, code: Option<Code>, message: Option<StatusMessage>) -> ExchangeResult {
        self.received.on_eos();
        self.received.on_eos_forwarded();
        self.end.note(CallOutcome::Completed(code));
        self.end.message = message;
        ExchangeResult::Answered(code)
    }

    async fn unless_given_up<T>(
        &mut self,
        upload: Option<&mut Pipe<'_>>,
        work: impl Future<Output = T>,
    ) -> Result<T, ExchangeResult> {
        let poll_reset = |cx: &mut Context<'_>| self.to.poll_reset(cx).map(Result::ok);
        unless_given_up(poll_reset, upload, work).await
    }
}

impl Messages {
    /// Returns the next message with its gRPC frame; `None` at the end. Cancel safe.
    async fn next(&mut self) -> Result<Option<Bytes>, ExchangeResult> {
        loop {
            if let Some(length) = frame_length(&self.held).filter(|length| *length <= self.held.len()) {
                return Ok(Some(self.held.split_to(length).freeze()));
            }
            if !self.receive().await? {
                // A part of a message is passed on as it is.
                return Ok((!self.held.is_empty()).then(|| self.held.split().freeze()));
            }
        }
    }

    /// Receives more data. Returns false at the end. Cancel safe.
    async fn receive(&mut self) -> Result<bool, ExchangeResult> {
        match self.body.data().await {
            Some(Ok(chunk)) => {
                // An error means that the stream is closed, and is ignored.
                let _ = self.body.flow_control().release_capacity(chunk.len());
                self.held.extend_from_slice(&chunk);
                Ok(true)
            }
            Some(Err(error)) => Err(ExchangeResult::Failed(UpstreamFailure::from_stream_error(&error))),
            None => Ok(false),
        }
    }

    /// Returns the trailers; `None` if the stream ended without them.
    async fn trailers(&mut self) -> Result<Option<HeaderMap>, ExchangeResult> {
        let error = match self.body.trailers().await {
            Ok(None) if !self.body.is_end_stream() => Reason::NO_ERROR.into(),
            Ok(trailers) => return Ok(trailers),
            Err(error) => error,
        };
        // A failure that h2 does not report as an error must not look like an end.
        Err(ExchangeResult::Failed(UpstreamFailure::from_stream_error(&error)))
    }
}

/// A response of the runtime that may be shared.
enum ReadResponse {
    /// The complete response.
    Whole(UnaryResponse),
    /// A response that is too long to be shared: its head, and its messages.
    TooLong(Response<()>, Messages),
}

/// Returns a response of the runtime once it is complete, or known to be too long.
async fn whole(response: Response<RecvStream>) -> Result<ReadResponse, ExchangeResult> {
    let (head, body) = response.into_parts();
    let mut from = Messages { body, held: BytesMut::new() };
    while from.held.len() <= MAX_SHARED && frame_length(&from.held).is_none_or(|length| length <= MAX_SHARED)
    {
        if !from.receive().await? {
            let trailers = from.trailers().await?;
            let message = (!from.held.is_empty()).then(|| from.held.freeze());
            return Ok(ReadResponse::Whole(UnaryResponse { headers: head.headers, message, trailers }));
        }
    }
    Ok(ReadResponse::TooLong(Response::from_parts(head, ()), from))
}

/// Returns the effects of the changes that have not ended.
fn active(changes: &[MessageChange]) -> impl Iterator<Item = &MessageEffect> {
    changes.iter().filter(|change| !change.ended.is_cancelled()).map(|change| &change.effect)
}

/// Returns a message with the edits; the message itself if none changes it.
fn edited(message: Bytes, changes: &[MessageChange]) -> Bytes {
    active(changes).fold(message, |message, effect| match effect {
        MessageEffect::Edit(edit) => edit(&message).unwrap_or(message),
        _ => message,
    })
}

/// Does some work while the request is forwarded, unless the client gives up before it is done.
async fn unless_given_up<T>(
    mut poll_reset: impl FnMut(&mut Context<'_>) -> Poll<Option<Reason>>,
    mut upload: Option<&mut Pipe<'_>>,
    work: impl Future<Output = T>,
) -> Result<T, ExchangeResult> {
    let mut work = pin!(work);
    poll_fn(|cx| match poll_given_up(&mut poll_reset, upload.as_deref_mut(), cx) {
        Poll::Ready(reason) => Poll::Ready(Err(ExchangeResult::ClientReset(reason))),
        Poll::Pending => work.as_mut().poll(cx).map(Ok),
    })
    .await
}

/// Forwards the request, and returns the reason for which the client has given up, if it has.
fn poll_given_up(
    poll_reset: &mut impl FnMut(&mut Context<'_>) -> Poll<Option<Reason>>,
    upload: Option<&mut Pipe<'_>>,
    cx: &mut Context<'_>,
) -> Poll<Reason> {
    if let Some(upload) = upload
        && let Poll::Ready(PipeEnd::Source(error)) = upload.poll(cx)
    {
        return Poll::Ready(reason_of_client(&error));
    }
    poll_reset(cx).map(|reset| reset.unwrap_or(Reason::CANCEL))
}

fn client_gone() -> ExchangeResult {
    ExchangeResult::ClientReset(Reason::CANCEL)
}

fn status_of(headers: &HeaderMap) -> (Option<Code>, Option<StatusMessage>) {
    let code = Code::from_headers(headers);
    (code, StatusMessage::from_headers(code, headers))
}
