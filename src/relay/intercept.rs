//! Forwards a call that the policy selected: reads the request's message, waits for the decision,
//! and applies its effects.

use std::future::{Future, poll_fn};
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Error, RecvStream};
use http::Request;

use super::call::CallInFlight;
use super::capture::CaptureBudget;
use super::changed_response::{ClientSide, ResponseChanges};
use super::forward::{Backlogs, Changes, PendingRequest, SettledCall, exchange, settle};
use super::grpc_frames::frame_length;
use super::outcome::{ExchangeResult, reason_of_client};
use super::policy::{Effect, Interception, Interceptor};

/// Maximum bytes of a request's message that the policy reads, with its gRPC frame. A longer
/// message is forwarded unread.
const MAX_REQUEST: usize = (4 << 20) + 5;

/// Memory that a request holds until the runtime has received it.
struct HeldMemory<'a> {
    budget: &'a CaptureBudget,
    bytes: usize,
}

/// Forwards one call of a client as the policy decides.
pub(super) async fn intercept(
    mut call: CallInFlight,
    interceptor: Box<dyn Interceptor>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    upstream: SendRequest<Bytes>,
    backlogs: Backlogs,
) -> SettledCall {
    let result = decide(&mut call, interceptor, request, &mut respond, upstream, &backlogs).await;
    settle(call, &result.unwrap_or_else(|end| end), respond)
}

async fn decide(
    call: &mut CallInFlight,
    interceptor: Box<dyn Interceptor>,
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
    upstream: SendRequest<Bytes>,
    backlogs: &Backlogs,
) -> Result<ExchangeResult, ExchangeResult> {
    let (head, mut body) = request.into_parts();
    let budget = call.interception_budget();
    let mut memory = HeldMemory { budget: &budget, bytes: 0 };
    let CallInFlight { request: sent, response: received, end, marks, .. } = call;
    let mut client = ClientSide { respond, backlog: &backlogs.client, received, end };
    let read = client.unless_given_up(None, read_message(&mut body, &mut memory)).await?;
    let beginning = read.map_err(|error| ExchangeResult::ClientReset(reason_of_client(&error)))?;
    let message = (frame_length(&beginning) == Some(beginning.len())).then(|| beginning.clone());
    // The record of a call that is not forwarded has its request nevertheless. A request with its
    // message is complete: the CRI has no streams of requests.
    sent.on_data(&beginning, message.is_some() || body.is_end_stream());
    let (mut current, mut changes, mut guards) = (None, ResponseChanges::default(), Vec::new());
    let mut next = Some(interceptor);
    while let Some(interceptor) = next {
        let request = current.clone().or_else(|| message.clone());
        let decision = or_on_wait(interceptor.decide(request, marks), || sent.on_held(marks.get()));
        let decision = client.unless_given_up(None, decision).await?;
        let Interception { request, before, after, messages, next: following, share, guard } = decision;
        for effect in before {
            match effect {
                Effect::Hold(hold) => {
                    client
                        .unless_given_up(None, or_on_wait(hold.wait(), || sent.on_held(marks.get())))
                        .await?;
                }
                Effect::End(_, ended) if ended.is_cancelled() => {}
                Effect::End(ending, _) => return client.end(ending).await,
            }
        }
        current = request.or(current);
        changes.effects.extend(after);
        changes.messages.extend(messages);
        changes.share = share.or(changes.share);
        guards.extend(guard);
        next = following;
    }
    let request = PendingRequest { head, body, beginning: current.unwrap_or(beginning) };
    let changes = Changes { response: (!changes.is_empty()).then_some(changes), guards };
    Ok(exchange(request, respond, upstream, backlogs, call, changes).await)
}

/// Does some work, and calls a function if the work has to wait.
async fn or_on_wait<T>(work: impl Future<Output = T>, on_wait: impl FnOnce()) -> T {
    let (mut work, mut on_wait) = (pin!(work), Some(on_wait));
    poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        if polled.is_pending()
            && let Some(on_wait) = on_wait.take()
        {
            on_wait();
        }
        polled
    })
    .await
}

/// Reads the beginning of a body up to the end of its first message, up to the limit, or as long as
/// there is memory.
async fn read_message(body: &mut RecvStream, memory: &mut HeldMemory<'_>) -> Result<Bytes, Error> {
    let mut read = BytesMut::new();
    while read.len() < frame_length(&read).unwrap_or(MAX_REQUEST).min(MAX_REQUEST) {
        match body.data().await {
            Some(Ok(chunk)) => {
                // The sender may send as many bytes again. An error means that the stream is
                // closed, and is ignored.
                let _ = body.flow_control().release_capacity(chunk.len());
                read.extend_from_slice(&chunk);
                if !memory.take(chunk.len()) {
                    break;
                }
            }
            Some(Err(error)) => return Err(error),
            None => break,
        }
    }
    Ok(read.freeze())
}

impl HeldMemory<'_> {
    /// Takes memory from the budget. Returns whether there was enough.
    fn take(&mut self, bytes: usize) -> bool {
        let is_taken = self.budget.take(bytes);
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }
}

impl Drop for HeldMemory<'_> {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}
