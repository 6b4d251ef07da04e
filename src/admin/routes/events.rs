//! Routes of events: lists and streams.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use super::{ApiContext, RequestError, array_of, follow_permit, lines_of};
use crate::admin::api::{self, EventLine, EventsQuery};
use crate::admin::queries::time_before;
use crate::admin::slots::ConnectionSlot;
use crate::events::{EventFilter, EventType};

type QueryOfEvents = Result<Query<EventsQuery>, QueryRejection>;

pub(super) async fn events(State(admin): ApiContext, query: QueryOfEvents) -> Result<Response, RequestError> {
    let Query(query) = query?;
    let events = admin.state.events.select(&event_filter(query)?);
    Ok(array_of(events, |event| api::Event::from(event)))
}

/// Streams the events of the history, then each event as it happens, with one line per event.
pub(super) async fn follow(
    State(admin): ApiContext,
    Extension(slot): Extension<Arc<ConnectionSlot>>,
    query: QueryOfEvents,
) -> Result<Response, RequestError> {
    let Query(query) = query?;
    let filter = event_filter(query)?;
    let permit = follow_permit(&admin, &slot)?;
    let (kept, coming) = admin.state.events.follow(&filter);
    let coming = BroadcastStream::new(coming).filter_map(move |next| match next {
        Ok(event) => filter.lets_through(&event).then(|| EventLine::Event((&*event).into())),
        Err(BroadcastStreamRecvError::Lagged(missed)) => Some(EventLine::Missed { missed }),
    });
    let lines = tokio_stream::iter(kept).map(|event| EventLine::Event((&*event).into())).chain(coming);
    Ok(lines_of(lines, permit))
}

/// Validates the type of events.
fn event_filter(query: EventsQuery) -> Result<EventFilter, RequestError> {
    let EventsQuery { since_ms, namespace, pod, r#type, reason } = query;
    let severity = match r#type.as_deref() {
        None => None,
        Some("Normal") => Some(EventType::Normal),
        Some("Warning") => Some(EventType::Warning),
        Some(other) => {
            return Err(RequestError::BadRequest(format!("type {other:?} must be Normal or Warning")));
        }
    };
    Ok(EventFilter { since: since_ms.map(time_before), namespace, pod, severity, reason })
}
