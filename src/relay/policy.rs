//! The policy of a relay: selects the calls that are intercepted, and determines what happens to
//! them.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::marks::MarkSet;
use super::observer::CallInfo;
use super::peer::Peer;
use super::unary_response::UnaryResponse;

/// Selects the calls that are intercepted, on the byte path. Its methods must neither block nor do
/// expensive work.
pub trait CallPolicy: fmt::Debug + Send + Sync {
    /// Returns the interceptor of a call whose head was received; `None` if the call is forwarded
    /// without it.
    fn interceptor(&self, info: &Arc<CallInfo>) -> Option<Box<dyn Interceptor>>;

    /// Returns whether the connection of a client is closed before a byte of it is read.
    fn refuses(&self, peer: Option<&Peer>) -> bool {
        let _ = peer;
        false
    }
}

/// Decides what happens to one call.
pub trait Interceptor: Send {
    /// Decides on the call, and may wait. The client may give up meanwhile, which drops the future.
    /// `request` is the request's message with its gRPC frame; `None` if the message is longer than
    /// the relay keeps, or ended early. `marks` receives the marks of the call's record.
    fn decide(self: Box<Self>, request: Option<Bytes>, marks: &MarkSet) -> Decision<'_>;
}

/// A decision that may have to wait.
pub type Decision<'a> = Pin<Box<dyn Future<Output = Interception> + Send + 'a>>;

/// The effects on a call. The default forwards the call unchanged.
#[derive(Default)]
pub struct Interception {
    /// The request's message that is forwarded in place of the client's, with its gRPC frame.
    pub request: Option<Bytes>,
    /// Effects before the request is forwarded, in order.
    pub before: Vec<Effect>,
    /// Effects on the response of the runtime, in order.
    pub after: Vec<Effect>,
    /// Changes of the messages of the response.
    pub messages: Vec<MessageChange>,
    /// Decides once the effects before the request are over.
    pub next: Option<Box<dyn Interceptor>>,
    /// Receives the response of the runtime. It is dropped without a response if there is none.
    pub share: Option<ResponseSink>,
    /// A value that is kept until the runtime has answered, or the call has ended, such as a
    /// permit.
    pub guard: Option<Box<dyn Any + Send>>,
}

/// Receives the response of a call.
pub type ResponseSink = Box<dyn FnOnce(&UnaryResponse) + Send>;

/// An effect on a call.
#[derive(Debug)]
pub enum Effect {
    /// The call is held.
    Hold(Hold),
    /// The call ends, without regard to the runtime, unless the token is cancelled by then.
    End(Ending, CancellationToken),
}

/// A wait of a call, which ends early if it is released.
#[derive(Debug)]
pub struct Hold {
    /// Duration of the wait; `None` if the call waits until its client gives up.
    pub duration: Option<Duration>,
    /// Ends the wait when it is cancelled.
    pub released: CancellationToken,
}

/// End of a call that the policy causes.
#[derive(Debug)]
pub enum Ending {
    /// The client receives a response.
    Response(Box<UnaryResponse>),
    /// The client's connection is closed.
    Disconnect,
    /// The client receives GOAWAY, and its call is refused. gRPC clients send the call again on a
    /// new connection.
    GoAway,
}

/// A change of the messages of a response, which lasts until its token is cancelled.
#[derive(Debug)]
pub struct MessageChange {
    /// The effect on the messages.
    pub effect: MessageEffect,
    /// Ends the change when it is cancelled.
    pub ended: CancellationToken,
}

/// An effect on the messages of a response.
pub enum MessageEffect {
    /// Replaces each message, with its gRPC frame. A message for which the function returns `None`
    /// stays unchanged.
    Edit(MessageEdit),
    /// Ends the response after this number of messages.
    Truncate(usize, Box<tonic::Status>),
    /// Sends each message this number of times.
    Repeat(usize),
    /// Waits before each message.
    Delay(Duration),
    /// Sends this number of messages in reverse order, then the next ones.
    Reverse(usize),
}

/// Changes a message, with its gRPC frame; `None` if it stays unchanged.
pub type MessageEdit = Box<dyn Fn(&[u8]) -> Option<Bytes> + Send + Sync>;

/// The policy that intercepts no call.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPolicy;

impl CallPolicy for NoPolicy {
    fn interceptor(&self, _: &Arc<CallInfo>) -> Option<Box<dyn Interceptor>> {
        None
    }
}

impl Interception {
    /// Returns the interception of a call that ends with a response, without the runtime.
    #[must_use]
    pub fn respond(response: UnaryResponse) -> Self {
        let end = Effect::End(Ending::Response(Box::new(response)), CancellationToken::new());
        Self { before: vec![end], ..Self::default() }
    }
}

impl Hold {
    /// Waits for the duration, or until the hold is released.
    pub async fn wait(self) {
        let Self { duration, released } = self;
        match duration {
            Some(duration) => {
                tokio::select! {
                    () = sleep(duration) => {}
                    () = released.cancelled() => {}
                }
            }
            None => released.cancelled().await,
        }
    }
}

impl fmt::Debug for Interception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interception")
            .field("before", &self.before)
            .field("after", &self.after)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MessageEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edit(_) => f.write_str("Edit"),
            Self::Truncate(count, status) => f.debug_tuple("Truncate").field(count).field(status).finish(),
            Self::Repeat(count) => f.debug_tuple("Repeat").field(count).finish(),
            Self::Delay(delay) => f.debug_tuple("Delay").field(delay).finish(),
            Self::Reverse(count) => f.debug_tuple("Reverse").field(count).finish(),
        }
    }
}
