//! Events of sandboxes and containers, which every subscriber receives.

use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::cri::v1;

/// Number of events by which a subscriber may lag behind, as in containerd.
const BROADCAST_CAPACITY: usize = 1000;

/// Sends each event to all subscribers.
#[derive(Debug)]
pub(super) struct EventBroadcast {
    sender: broadcast::Sender<v1::ContainerEventResponse>,
}

impl Default for EventBroadcast {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BROADCAST_CAPACITY) }
    }
}

impl EventBroadcast {
    /// Publishes an event. The closure is called only if there is a subscriber.
    pub(super) fn publish(&self, event: impl FnOnce() -> v1::ContainerEventResponse) {
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send(event());
        }
    }

    /// Returns a stream of all events from now on. If the subscriber lags behind, the stream ends
    /// with the error `DataLoss`.
    pub(super) fn subscribe(
        &self,
    ) -> impl Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send + use<> {
        // tonic ends a stream after its first error.
        BroadcastStream::new(self.sender.subscribe()).map(|next| {
            next.map_err(|BroadcastStreamRecvError::Lagged(missed)| {
                Status::data_loss(format!("{missed} events were dropped because the client read too slowly"))
            })
        })
    }
}
