//! Events, which every subscriber receives: those of the CRI about sandboxes and containers, and
//! containerd's about processes in containers.

use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use super::clock;
use crate::containerd::{TaskEvent, TimestampedEvent};

/// Number of events by which a subscriber may lag behind, as in containerd.
const BROADCAST_CAPACITY: usize = 1000;

/// Sends each event to all subscribers.
#[derive(Clone, Debug)]
pub(super) struct EventBroadcast<T> {
    sender: broadcast::Sender<T>,
}

/// Publishes the events of a command that is executed in a container.
#[derive(Clone, Debug)]
pub(super) struct ExecEvents {
    events: EventBroadcast<TimestampedEvent>,
    container: String,
    exec: String,
}

impl<T: Clone> Default for EventBroadcast<T> {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BROADCAST_CAPACITY) }
    }
}

impl<T: Clone + Send + 'static> EventBroadcast<T> {
    /// Publishes an event. The closure is called only if there is a subscriber.
    pub(super) fn publish(&self, event: impl FnOnce() -> T) {
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send(event());
        }
    }

    /// Returns a stream of all events from now on. If the subscriber lags behind, the stream ends
    /// with the error `DataLoss`.
    pub(super) fn subscribe(&self) -> impl Stream<Item = Result<T, Status>> + Send + use<T> {
        // tonic ends a stream after its first error.
        BroadcastStream::new(self.sender.subscribe()).map(|next| {
            next.map_err(|BroadcastStreamRecvError::Lagged(missed)| {
                Status::data_loss(format!("{missed} events were dropped because the client read too slowly"))
            })
        })
    }
}

impl EventBroadcast<TimestampedEvent> {
    /// Publishes an event with its time, in nanoseconds since 1970.
    pub(super) fn publish_task(&self, at: i64, event: impl FnOnce() -> TaskEvent) {
        self.publish(|| TimestampedEvent { at: clock::system_time(at), event: event() });
    }
}

impl ExecEvents {
    /// Publishes that a command is about to be executed.
    pub(super) fn added(events: &EventBroadcast<TimestampedEvent>, container: &str, exec: String) -> Self {
        let new = Self { events: events.clone(), container: container.to_owned(), exec };
        new.events.publish_task(clock::now(), || {
            let (container, exec) = new.names();
            TaskEvent::ExecAdded { container, exec }
        });
        new
    }

    /// Returns the id of the exec instance.
    pub(super) fn exec(&self) -> &str {
        &self.exec
    }

    /// Publishes that the command has started.
    pub(super) fn started(&self, at: i64, pid: i32) {
        self.events.publish_task(at, || {
            let (container, exec) = self.names();
            TaskEvent::ExecStarted { container, exec, pid: pid.unsigned_abs() }
        });
    }

    /// Publishes that the command has exited.
    pub(super) fn exited(&self, at: i64, pid: i32, code: i32) {
        self.events.publish_task(at, || {
            let (container, exec) = self.names();
            TaskEvent::ExecExited { container, exec, pid: pid.unsigned_abs(), status: code.unsigned_abs() }
        });
    }

    fn names(&self) -> (String, String) {
        (self.container.clone(), self.exec.clone())
    }
}
