//! Faults in the calls that probeshim makes to the runtime directly, for probes, hooks and stops.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tonic::{Response, Status};

use super::rules::FaultRules;
use crate::cri::{framed_message, unary_message};
use crate::relay::{
    CallInfo, CallMarks, CallPolicy as _, Effect, Ending, Interception, MessageChange, MessageEffect,
};

/// Status message of a call whose connection a fault has closed.
const DISCONNECTED: &str = "the connection was closed by a fault of probeshim";

impl FaultRules {
    /// Makes a call of probeshim, with the faults of the rules that select it. No rule selects a
    /// call without `info`. `marks` receives the faults, also if the future is dropped before its
    /// end.
    pub async fn apply_to_own<Q, R, F>(
        &self,
        info: Option<&Arc<CallInfo>>,
        request: Q,
        marks: &mut CallMarks,
        call: impl FnOnce(Q) -> F,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + Default,
        R: Message + Default,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let Some(interceptor) = info.and_then(|info| self.interceptor(info)) else {
            return call(request).await;
        };
        let decision = interceptor.decide(Some(framed_message(&request.encode_to_vec()))).await;
        let Interception { request: changed, before, after, messages, marks: decided, guard: _guard } =
            decision;
        *marks = decided;
        if let Some(response) = applied(before).await? {
            return decoded(&response).map(Response::new);
        }
        let request = changed.as_ref().map_or(Ok(request), decoded)?;
        let response = call(request).await;
        if let Some(response) = applied(after).await? {
            return decoded(&response).map(Response::new);
        }
        let mut bytes = framed_message(&response?.into_inner().encode_to_vec());
        for MessageChange { effect, ended } in messages {
            if let MessageEffect::Edit(edit) = effect
                && !ended.is_cancelled()
            {
                bytes = edit(&bytes).unwrap_or(bytes);
            }
        }
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
            Effect::End(Ending::Status(status), _) => return Err(*status),
            Effect::End(Ending::Message(message), _) => return Ok(Some(message)),
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
