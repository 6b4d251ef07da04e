//! What happens to sandboxes and containers, told to everyone who subscribes.

use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::cri::v1;

/// Events that a subscriber may lag behind, as many as with containerd.
const BROADCAST_CAPACITY: usize = 1000;

/// Hands each event to every subscriber.
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
    /// Tells an event, if there is anybody to be told.
    pub(super) fn publish(&self, event: impl FnOnce() -> v1::ContainerEventResponse) {
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send(event());
        }
    }

    /// Every event from now on. Who reads too slowly is told so, as the last thing.
    pub(super) fn subscribe(
        &self,
    ) -> impl Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send + use<> {
        // tonic ends a stream with its first error.
        BroadcastStream::new(self.sender.subscribe()).map(|next| {
            next.map_err(|BroadcastStreamRecvError::Lagged(missed)| {
                Status::data_loss(format!("{missed} events were lost: they came faster than they were read"))
            })
        })
    }
}
