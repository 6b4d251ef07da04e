//! containerd's own events, which it publishes on the socket of the CRI: what becomes of the processes in its containers, and when.

mod event;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio_stream::Stream;
use tonic::Status;
use tonic::transport::Channel;

use crate::cri::LazyStream;

pub use event::{TaskEvent, TimestampedEvent};

/// The messages and the client, generated from `proto/`.
#[allow(missing_docs, clippy::pedantic, unreachable_pub, reason = "generated; the words are in proto/")]
mod v1 {
    include!("../../proto/generated/containerd.services.events.v1.rs");
}

/// One filter: of several, an event had to pass only one.
const TASK_EVENT_FILTER: &str = r#"topic~="/tasks/",namespace==k8s.io"#;

/// What becomes of the processes in the containers of the CRI, from the moment at which it is first asked for. Ends when containerd does.
/// A runtime that has no such service answers `UNIMPLEMENTED`; containerd 1.6 and later have it.
#[derive(Debug)]
pub struct TaskEvents(LazyStream<v1::Envelope>);

impl TaskEvents {
    /// A subscription over this channel.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        let mut client = v1::events_client::EventsClient::new(channel);
        let request = v1::SubscribeRequest { filters: vec![TASK_EVENT_FILTER.to_owned()] };
        Self(LazyStream::new(async move { client.subscribe(request).await }))
    }
}

impl Stream for TaskEvents {
    type Item = Result<TimestampedEvent, Status>;

    /// The next event that is known here; others are passed over.
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
