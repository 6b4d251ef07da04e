//! Policies for the calls that probeshim makes to the runtime directly, for probes, hooks and
//! stops.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tonic::{Response, Status};

use super::policies::Policies;
use crate::cri::{framed_message, unary_message};
use crate::relay::{CallInfo, Effect, Ending, Interception, MarkSet, MessageChange, MessageEffect};

/// Status message of a call whose connection a fault has closed.
const DISCONNECTED: &str = "the connection was closed by a fault of probeshim";

impl Policies {
    /// Makes a call of probeshim, as the policies decide. They do not affect a call without `info`.
    /// `marks` receives the marks of the call, also if the future is dropped before its end.
    pub async fn apply_to_own<Q, R, F>(
        &self,
        info: Option<&Arc<CallInfo>>,
        request: Q,
        marks: &MarkSet,
        call: impl FnOnce(Q) -> F,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + Default,
        R: Message + Default,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let Some(interceptor) = info.and_then(|info| self.interceptor_of_own(info)) else {
            return call(request).await;
        };
        let mut message = framed_message(&request.encode_to_vec());
        let (mut effects, mut changes, mut guards) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = Some(interceptor);
        while let Some(interceptor) = next {
            let decision = interceptor.decide(Some(message.clone()), marks).await;
            // Only calls of clients are coalesced, because others must not get encoded messages.
            let Interception { request, before, after, messages, next: following, share: _, guard } =
                decision;
            if let Some(response) = applied(before).await? {
                return decoded(&response).map(Response::new);
            }
            message = request.unwrap_or(message);
            effects.extend(after);
            changes.extend(messages);
            guards.extend(guard);
            next = following;
        }
        let response = call(decoded(&message)?).await;
        drop(guards);
        let response = response.map(|response| framed_message(&response.into_inner().encode_to_vec()));
        if let Some(response) = applied(effects).await? {
            return decoded(&response).map(Response::new);
        }
        let bytes = changes.into_iter().fold(response?, |bytes, change| match change {
            MessageChange { effect: MessageEffect::Edit(edit), ended } if !ended.is_cancelled() => {
                edit(&bytes).unwrap_or(bytes)
            }
            _ => bytes,
        });
        decoded(&bytes).map(Response::new)
    }
}

/// Applies effects in order. Returns the message with which the call ends, if one ends it with a
/// message.
async fn applied(effects: Vec<Effect>) -> Result<Option<Bytes>, Status> {
    for effect in effects {
        match effect {
            Effect::Hold(hold) => hold.wait().await,
            Effect::End(_, ended) if ended.is_cancelled() => {}
            Effect::End(Ending::Response(response), _) => return response.into_result().map(Some),
            // Calls of probeshim are not sent again on another connection.
            Effect::End(Ending::Disconnect | Ending::GoAway, _) => {
                return Err(Status::unavailable(DISCONNECTED));
            }
        }
    }
    Ok(None)
}

/// Decodes a message with its gRPC frame.
fn decoded<T: Message + Default>(bytes: &Bytes) -> Result<T, Status> {
    let message = unary_message(bytes).map_err(|error| Status::internal(error.to_string()))?;
    T::decode(message).map_err(|error| Status::internal(error.to_string()))
}
