//! Translates the actions of a rule into effects on a call.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::fault::{Action, Place, StreamAction};
use crate::cri::{FieldMessage, FieldPath, MessageSide, Method, unary_message, v1};
use crate::relay::{Effect, Ending, FaultMark, Hold, Interception, MessageChange, MessageEffect};

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
    /// Adds the effects of the action. `request` is the message of the call, with its gRPC frame.
    pub(super) fn apply(&self, method: Method, request: Option<&Bytes>, call: &mut Interception) {
        let Self { action, place, ended, random, .. } = self;
        let effect = match action {
            Action::Delay { delay, jitter } => {
                let duration = Some(jittered(*delay, *jitter, *random));
                Effect::Hold(Hold { duration, released: (*ended).clone() })
            }
            Action::Hang => Effect::Hold(Hold { duration: None, released: (*ended).clone() }),
            Action::Abort { code, message, details } => {
                let details = Bytes::copy_from_slice(details);
                let status = Status::with_details(*code, message.clone(), details);
                self.end(Ending::Status(Box::new(status)))
            }
            Action::Drop => self.end(Ending::Disconnect),
            Action::GoAway => self.end(Ending::GoAway),
            Action::Exit { code, stdout, stderr } => {
                let (stdout, stderr) = (stdout.clone().into_bytes(), stderr.clone().into_bytes());
                let response = v1::ExecSyncResponse { exit_code: *code, stdout, stderr };
                self.end(Ending::Message(frame(&response.encode_to_vec())))
            }
            Action::Stream(action) => {
                call.messages.push(self.change(stream_effect(action)));
                return self.mark(call);
            }
            Action::Set(MessageSide::Request, path, value) => {
                return self.change_request(method, request, call, |message| message.set(path, value));
            }
            Action::Remove(MessageSide::Request, path) => {
                return self.change_request(method, request, call, |message| message.remove(path));
            }
            Action::Set(MessageSide::Response, path, value) => {
                call.messages.push(self.change(edit(method, path.clone(), Some(value.clone()))));
                return self.mark(call);
            }
            Action::Remove(MessageSide::Response, path) => {
                call.messages.push(self.change(edit(method, path.clone(), None)));
                return self.mark(call);
            }
            // Connections are refused before they have calls.
            Action::Refuse => return,
        };
        match place {
            Place::Before => call.before.push(effect),
            Place::After => call.after.push(effect),
        }
        self.mark(call);
    }

    /// Returns the effect that ends the call.
    fn end(&self, ending: Ending) -> Effect {
        Effect::End(ending, self.ended.clone())
    }

    /// Returns a change of messages for as long as the rule is active.
    fn change(&self, effect: MessageEffect) -> MessageChange {
        MessageChange { effect, ended: self.ended.clone() }
    }

    fn mark(&self, call: &mut Interception) {
        let action = self.action.to_string().into();
        call.marks.faults.push(FaultMark { name: self.rule.clone(), action });
    }

    /// Changes the request, unless it has no such field.
    fn change_request(
        &self,
        method: Method,
        request: Option<&Bytes>,
        call: &mut Interception,
        change: impl FnOnce(&mut FieldMessage) -> bool,
    ) {
        let current = call.request.as_ref().or(request);
        if let Some(changed) = current.and_then(|it| changed(method, MessageSide::Request, it, change)) {
            call.request = Some(changed);
            self.mark(call);
        }
    }
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
    change(&mut message).then(|| frame(&message.encode()))
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

/// Returns a message with its gRPC frame.
pub(super) fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// Returns a delay between `delay - jitter` and `delay + jitter`.
fn jittered(delay: Duration, jitter: Duration, random: f64) -> Duration {
    delay.saturating_sub(jitter) + jitter.mul_f64(2.0 * random)
}
