//! containerd's events service, with the events about the processes in containers.

use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status};

use super::Service;
use super::listing::Streamed;
use crate::containerd::{Envelope, EventFilter, Events, SubscribeRequest};

#[tonic::async_trait]
impl Events for Service {
    type SubscribeStream = Streamed<Envelope>;

    /// Sends the events from now on that match one of the filters; all events without a filter.
    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        if self.engine.config.synthetic > 0 {
            let message = "procrun publishes no events with --synthetic, whose containers have no processes";
            return Err(Status::unimplemented(message));
        }
        let filters = request.into_inner().filters;
        let filters = filters.iter().map(|filter| filter.parse()).collect::<Result<Vec<EventFilter>, _>>();
        let filters =
            filters.map_err(|error| Status::invalid_argument(format!("failed to subscribe: {error}")))?;
        let is_selected =
            move |event: &Envelope| filters.is_empty() || filters.iter().any(|filter| filter.matches(event));
        let events = self.engine.task_events.subscribe();
        let events = events.map(|event| event.map(|event| Envelope::from(&event)));
        Ok(Response::new(Box::pin(events.filter(move |event| event.as_ref().map_or(true, &is_selected)))))
    }
}
