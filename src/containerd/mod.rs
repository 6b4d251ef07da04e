//! containerd's task events, which it publishes on the CRI socket: starts, execs and exits of
//! processes in its containers, with their times.

mod event;
mod filter;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prost::Message as _;
use tokio_stream::Stream;
use tonic::Status;
use tonic::transport::Channel;

use crate::cri::LazyStream;

pub use event::{TaskEvent, TimestampedEvent};
pub(crate) use filter::EventFilter;
pub(crate) use v1::events_server::{Events, EventsServer};
pub(crate) use v1::{Envelope, SubscribeRequest};

/// Messages and client, generated from `proto/`.
#[allow(missing_docs, clippy::pedantic, unreachable_pub, reason = "generated; the comments are in proto/")]
mod v1 {
    include!("../../proto/generated/containerd.services.events.v1.rs");
}

/// Decodes the message of an event. Returns `None` if the event is of another kind, or malformed.
pub(crate) fn decode_event(message: &[u8]) -> Option<TimestampedEvent> {
    TimestampedEvent::from_any(v1::Envelope::decode(message).ok()?)
}

/// Filter for task events in the namespace of the CRI. It is a single filter, because of several
/// filters an event has to match only one.
const TASK_EVENT_FILTER: &str = r#"topic~="/tasks/",namespace==k8s.io"#;

/// Stream of the task events of the CRI's containers. It subscribes when it is first polled, and
/// ends when containerd ends. containerd 1.6 and later have the service; a runtime without the
/// service returns `UNIMPLEMENTED`.
#[derive(Debug)]
pub struct TaskEvents(LazyStream<v1::Envelope>);

impl TaskEvents {
    /// Creates a subscription over this channel.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        let mut client = v1::events_client::EventsClient::new(channel);
        let request = v1::SubscribeRequest { filters: vec![TASK_EVENT_FILTER.to_owned()] };
        Self(LazyStream::new(async move { client.subscribe(request).await }))
    }
}

impl Stream for TaskEvents {
    type Item = Result<TimestampedEvent, Status>;

    /// Returns the next event that is a [`TaskEvent`]. Other events are skipped.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.0).poll_next(cx)) {
                Some(Ok(envelope)) => {
                    if let Some(event) = TimestampedEvent::from_any(envelope) {
                        return Poll::Ready(Some(Ok(event)));
                    }
                }
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None => return Poll::Ready(None),
            }
        }
    }
}
