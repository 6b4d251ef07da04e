//! Events of a period.

use axum::response::Response;
use serde::Serialize;

use super::answer::{PageError, json};
use super::empty_list::KnownPods;
use super::period::with_period;
use super::query::PageRequest;
use crate::history::json::Event;

/// Maximum number of events in an answer: the last ones.
const MAX_EVENTS: usize = 1_000;

/// Events of a period.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageEvents {
    /// Number of events of the period.
    total: usize,
    /// The last of them, the newest first.
    events: Vec<Event>,
    /// Reason why there are no events; null if there are some.
    empty_because: Option<String>,
}

/// Returns the events of a period.
pub(super) async fn events(request: PageRequest) -> Result<Response, PageError> {
    let PageRequest { admin, headers, selection, .. } = request;
    let of_admin = admin.clone();
    let found = with_period(admin, selection.from, selection.to, move |mut period| {
        let is_empty = !period.events.iter().any(|event| selection.has_event(event));
        let empty_because = is_empty.then(|| {
            let mut pods = KnownPods::current(&of_admin, &selection);
            pods.add_period(&period);
            pods.empty_reason("events", selection.is_filtered)
        });
        selection.apply(&mut period);
        let total = period.events.len();
        period.events.sort_by(|one, other| other.time.cmp(&one.time));
        period.events.truncate(MAX_EVENTS);
        PageEvents { total, events: period.events, empty_because }
    });
    json(&headers, &found.await?)
}
