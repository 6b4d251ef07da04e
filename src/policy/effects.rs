//! Translates the actions of a rule into effects on a call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::fault::{Action, Place, StreamAction};
use crate::cri::{FieldMessage, FieldPath, MessageSide, Method, framed_message, unary_message, v1};
use crate::relay::{
    Effect, Ending, FaultMark, Hold, Interception, MarkSet, MessageChange, MessageEffect, UnaryResponse,
};

/// An action that is applied to a call.
#[derive(Debug)]
pub(super) struct AppliedAction<'a> {
    pub(super) rule: &'a Arc<str>,
    pub(super) action: &'a Action,
    pub(super) place: Place,
    /// Cancelled when the rule ends.
    pub(super) ended: &'a CancellationToken,
    /// A number from 0 to 1, for the jitter.
    pub(super) random: f64,
}

impl AppliedAction<'_> {
    /// Adds the effects of the action, and its mark. `request` is the message of the call, with its
    /// gRPC frame.
    pub(super) fn apply(
        &self,
        method: Method,
        request: Option<&Bytes>,
        call: &mut Interception,
        marks: &MarkSet,
    ) {
        let is_applied = match self.action {
            Action::Delay { delay, jitter } => self.hold(Some(jittered(*delay, *jitter, self.random)), call),
            Action::Hang => self.hold(None, call),
            Action::Abort { code, message, details } => {
                let details = Bytes::copy_from_slice(details);
                let status = Status::with_details(*code, message.clone(), details);
                self.respond(UnaryResponse::from_status(&status), call)
            }
            Action::Drop => self.end(Ending::Disconnect, call),
            Action::GoAway => self.end(Ending::GoAway, call),
            Action::Exit { code, stdout, stderr } => {
                let (stdout, stderr) = (stdout.clone().into_bytes(), stderr.clone().into_bytes());
                let response = v1::ExecSyncResponse { exit_code: *code, stdout, stderr };
                let message = framed_message(&response.encode_to_vec());
                self.respond(UnaryResponse::from_message(message), call)
            }
            Action::Stream(action) => self.change_messages(stream_effect(action), call),
            Action::Set(MessageSide::Request, path, value) => {
                change_request(method, request, call, |message| message.set(path, value))
            }
            Action::Remove(MessageSide::Request, path) => {
                change_request(method, request, call, |message| message.remove(path))
            }
            Action::Set(MessageSide::Response, path, value) => {
                self.change_messages(edit(method, path.clone(), Some(value.clone())), call)
            }
            Action::Remove(MessageSide::Response, path) => {
                self.change_messages(edit(method, path.clone(), None), call)
            }
            // Connections are refused before they have calls.
            Action::Refuse => false,
        };
        if is_applied {
            let action = self.action.to_string().into();
            marks.add_fault(FaultMark { name: self.rule.clone(), action });
        }
    }

    /// Holds the call. Returns true: the action is applied.
    fn hold(&self, duration: Option<Duration>, call: &mut Interception) -> bool {
        self.at_place(Effect::Hold(Hold { duration, released: self.ended.clone() }), call)
    }

    /// Ends the call with a response. Returns true: the action is applied.
    fn respond(&self, response: UnaryResponse, call: &mut Interception) -> bool {
        self.end(Ending::Response(Box::new(response)), call)
    }

    /// Ends the call. Returns true: the action is applied.
    fn end(&self, ending: Ending, call: &mut Interception) -> bool {
        self.at_place(Effect::End(ending, self.ended.clone()), call)
    }

    fn at_place(&self, effect: Effect, call: &mut Interception) -> bool {
        match self.place {
            Place::Before => call.before.push(effect),
            Place::After => call.after.push(effect),
        }
        true
    }

    /// Changes messages for as long as the rule is active. Returns true: the action is applied.
    fn change_messages(&self, effect: MessageEffect, call: &mut Interception) -> bool {
        call.messages.push(MessageChange { effect, ended: self.ended.clone() });
        true
    }
}

/// Changes the request. Returns false if it has no such field.
fn change_request(
    method: Method,
    request: Option<&Bytes>,
    call: &mut Interception,
    change: impl FnOnce(&mut FieldMessage) -> bool,
) -> bool {
    let current = call.request.as_ref().or(request);
    let changed = current.and_then(|it| changed(method, MessageSide::Request, it, change));
    let is_changed = changed.is_some();
    call.request = changed.or(call.request.take());
    is_changed
}

/// Returns the effect that sets a field of each message of the response, or removes it.
fn edit(method: Method, path: FieldPath, value: Option<String>) -> MessageEffect {
    MessageEffect::Edit(Box::new(move |message| {
        changed(method, MessageSide::Response, message, |message| match &value {
            Some(value) => message.set(&path, value),
            None => message.remove(&path),
        })
    }))
}

/// Returns a message with a change, and with its gRPC frame; `None` if it stays as it is.
fn changed(
    method: Method,
    side: MessageSide,
    bytes: &[u8],
    change: impl FnOnce(&mut FieldMessage) -> bool,
) -> Option<Bytes> {
    let mut message = FieldMessage::decode(method, side, unary_message(bytes).ok()?)?;
    change(&mut message).then(|| framed_message(&message.encode()))
}

fn stream_effect(action: &StreamAction) -> MessageEffect {
    match action {
        StreamAction::Truncate(count, code) => {
            let message = if *code == Code::Ok { "" } else { "the stream was ended by a fault of probeshim" };
            MessageEffect::Truncate(*count, Box::new(Status::new(*code, message)))
        }
        StreamAction::Repeat(count) => MessageEffect::Repeat(*count),
        StreamAction::DelayEach(delay) => MessageEffect::Delay(*delay),
        StreamAction::Reverse(count) => MessageEffect::Reverse(*count),
    }
}

/// Returns a delay between `delay - jitter` and `delay + jitter`.
fn jittered(delay: Duration, jitter: Duration, random: f64) -> Duration {
    delay.saturating_sub(jitter) + jitter.mul_f64(2.0 * random)
}
