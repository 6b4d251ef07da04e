//! Events of a period.

use axum::response::Response;
use serde::Serialize;

use super::answer::{PageError, json};
use super::period::with_period;
use super::query::PageRequest;
use crate::history::json::Event;

/// Maximum number of events in an answer: the last ones.
const MAX_EVENTS: usize = 1_000;

/// Events of a period.
#[derive(Debug, Serialize)]
struct PageEvents {
    /// Number of events of the period.
    total: usize,
    /// The last of them, the newest first.
    events: Vec<Event>,
}

/// Returns the events of a period.
pub(super) async fn events(request: PageRequest) -> Result<Response, PageError> {
    let PageRequest { admin, headers, selection, .. } = request;
    let found = with_period(admin, selection.from, selection.to, move |mut period| {
        selection.apply(&mut period);
        let total = period.events.len();
        period.events.sort_by(|one, other| other.time.cmp(&one.time));
        period.events.truncate(MAX_EVENTS);
        PageEvents { total, events: period.events }
    });
    json(&headers, &found.await?)
}
