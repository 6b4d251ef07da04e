//! Updates of the page as server-sent events: results, events, and what changes results.
//!
//! Each message has an id. A browser that reconnects sends the last one, and gets what has happened
//! since. A response ends after a while, which makes the browser reconnect: a connection to the
//! loopback address may not last longer, and a browser that is gone is noticed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::PageError;
use super::query::{PageRequest, PageSelection};
use super::state::PageState;
use super::strip_text::mark;
use crate::admin::Admin;
use crate::history::json::{Event, time};
use crate::history::recorder::{LiveResult, LiveResults};
use crate::history::timeline::redacted_message;
use crate::overview::{ProbeKey, RowResult, StripMark};
use crate::report::{LifecycleKind, ResultKind, StoppedContainers};

/// Time between two messages.
const INTERVAL: Duration = Duration::from_millis(500);

/// Duration of a response. It is shorter than the longest connection to the loopback address.
const MAX_DURATION: Duration = Duration::from_secs(15);

/// Time after which a browser reconnects, in milliseconds.
const RETRY_MS: u32 = 250;

/// Id of an update: the run of probeshim, and the numbers of the next result and event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpdateId {
    run: u32,
    result: u64,
    event: u64,
}

/// A result as the page gets it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdatedResult {
    #[serde(flatten)]
    probe: ProbeKey,
    result: ResultKind,
    /// The result in a few words.
    text: String,
    is_bad: bool,
    /// Character of the result in a strip.
    mark: char,
    /// Id of the ExecSync; null for other handlers.
    call: Option<u64>,
    time: String,
    /// Number of the result. The id of a view has the number of the first result after it.
    number: u64,
}

/// An event as the page gets it.
#[derive(Debug, Serialize)]
struct UpdatedEvent {
    #[serde(flatten)]
    event: Event,
    /// Change of a container that the event reports; null if it reports none.
    kind: Option<LifecycleKind>,
    /// Types of the probes because of which a container was killed, or would have been.
    because: Vec<&'static str>,
}

/// Reads the updates of one browser.
struct UpdateReader {
    admin: Arc<Admin>,
    selection: PageSelection,
    last: UpdateId,
    state: Option<PageState>,
    stopped: StoppedContainers,
}

/// Streams updates for a while.
pub(super) async fn updates(request: PageRequest) -> Result<Response, PageError> {
    let PageRequest { admin, headers, selection, after } = request;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned).or(after);
    let last = match last.filter(|id| !id.is_empty()) {
        None => UpdateId::now(&admin),
        Some(id) => id.parse().map_err(|()| {
            PageError::BadRequest(format!("after {id:?} must be the id of an update, such as 1-2-3"))
        })?,
    };
    let permit = admin.page_streams.clone().try_acquire_owned().map_err(|_| PageError::TooManyStreams)?;
    let (messages, received) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let mut reader = UpdateReader::new(admin, selection, last);
    tokio::spawn(async move {
        let end = Instant::now() + MAX_DURATION;
        let mut ticks = interval(INTERVAL);
        let mut text = format!("retry: {RETRY_MS}\n\n");
        while Instant::now() < end {
            ticks.tick().await;
            text += &reader.next();
            // A browser that is gone or does not read ends the task, or delays it.
            if !text.is_empty() && messages.send(Ok(std::mem::take(&mut text).into())).await.is_err() {
                return;
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    // The place of a browser that is gone is free at once.
    let body = ReceiverStream::new(received).map(move |message| {
        let _ = &permit;
        message
    });
    Ok((headers, Body::from_stream(body)).into_response())
}

impl UpdateReader {
    fn new(admin: Arc<Admin>, selection: PageSelection, last: UpdateId) -> Self {
        // The kill before an exit may be older than the response.
        let mut stopped = StoppedContainers::default();
        let later = admin.state.events.after(last.event).0.len();
        let (events, _) = admin.state.events.after(0);
        for event in &events[..events.len().saturating_sub(later)] {
            let (Some(pod), Some(container)) = (&event.pod, &event.container) else { continue };
            let names = [&pod.namespace, &pod.name, &container.name];
            let names = names.map(|name| name.as_deref().unwrap_or_default());
            stopped.message(names, event.reason, &event.message);
        }
        Self { admin, selection, last, state: None, stopped }
    }

    /// Returns the messages since the last call; empty if nothing has changed.
    fn next(&mut self) -> String {
        let timeline = &self.admin.state.timeline;
        let mut text = String::new();
        if self.last.run != timeline.run() {
            self.last = UpdateId::now(&self.admin);
            text += &message(self.last, "missed", &"probeshim has restarted");
        }
        let LiveResults { results, next, has_missed } = timeline.results_after(Some(self.last.result));
        let has_missed = has_missed || self.admin.state.events.has_removed_after(self.last.event);
        let (events, next_event) = self.admin.state.events.after(self.last.event);
        self.last = UpdateId { result: next, event: next_event, ..self.last };
        if has_missed {
            text += &message(self.last, "missed", &"results are no longer kept");
        }
        let shows_commands = self.admin.shows_commands();
        let results =
            results.into_iter().map(|result| if shows_commands { result } else { result.redacted() });
        let results = results.filter(|result| self.selection.has_series(&result.series));
        let results: Vec<UpdatedResult> = results.map(UpdatedResult::from).collect();
        if !results.is_empty() {
            text += &message(self.last, "results", &results);
        }
        let events = events.iter().map(|event| Event::from(&**event));
        let events: Vec<Event> = events.filter(|event| self.selection.has_event(event)).collect();
        let events: Vec<UpdatedEvent> = events.into_iter().map(|event| self.updated(event)).collect();
        if !events.is_empty() {
            text += &message(self.last, "events", &events);
        }
        let state = PageState::of(&self.admin);
        if self.state.as_ref() != Some(&state) {
            text += &message(self.last, "state", &state);
            self.state = Some(state);
        }
        text
    }

    fn updated(&mut self, event: Event) -> UpdatedEvent {
        let kind = LifecycleKind::of_event(&event);
        let mut because = vec!["startup", "liveness", "readiness"];
        because.retain(|probe| kind.is_some_and(|kind| kind.is_because_of(&event.message, probe)));
        let shows_commands = self.admin.shows_commands();
        let names = [&event.namespace, &event.pod, &event.container];
        let names = names.map(|name| name.as_deref().unwrap_or_default());
        let message = self.stopped.message(names, &event.reason, &event.message).into_owned();
        let message = if shows_commands { message } else { redacted_message(&message) };
        UpdatedEvent { event: Event { message, ..event }, kind, because }
    }
}

/// Returns a server-sent event.
fn message(id: UpdateId, name: &str, data: &impl Serialize) -> String {
    // JSON has no line breaks, and values of these types can always be written.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

impl UpdateId {
    /// Returns the id of the present: the next update is the first one after it.
    pub(super) fn now(admin: &Admin) -> Self {
        let timeline = &admin.state.timeline;
        let (_, event) = admin.state.events.after(u64::MAX);
        Self { run: timeline.run(), result: timeline.results_after(None).next, event }
    }
}

impl fmt::Display for UpdateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, result, event } = self;
        write!(f, "{run}-{result}-{event}")
    }
}

impl FromStr for UpdateId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let numbers: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
        match numbers.map_err(drop)?[..] {
            [run, result, event] => Ok(Self { run: run.try_into().map_err(drop)?, result, event }),
            _ => Err(()),
        }
    }
}

impl From<LiveResult> for UpdatedResult {
    fn from(result: LiveResult) -> Self {
        let LiveResult { number, series, row, ended, call } = result;
        // A row with an attempt has a result.
        let kind = ResultKind::worst(&row).unwrap_or(ResultKind::NoResult);
        let RowResult { text, is_bad, .. } = RowResult::of_kind(kind);
        Self {
            probe: ProbeKey::from(&series),
            result: kind,
            text,
            is_bad,
            mark: mark(StripMark::Result(kind)),
            call,
            time: time(ended),
            number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_update_is_read_as_it_is_written() {
        let id = UpdateId { run: 7, result: 123, event: u64::MAX };
        assert_eq!(id.to_string().parse(), Ok(id));
        for invalid in ["", "1", "1-2", "1-2-3-4", "a-2-3", "-1-2-3", "4294967296-1-1"] {
            assert_eq!(invalid.parse::<UpdateId>(), Err(()), "{invalid}");
        }
    }

    #[test]
    fn a_message_is_one_line_whatever_its_texts_contain() {
        let id = UpdateId { run: 1, result: 2, event: 3 };
        let text = message(id, "events", &"a\n\nevent: results\ndata: x\r");
        assert_eq!(text.lines().count(), 4);
        assert!(!text.contains('\r'));
        assert!(text.ends_with("\n\n"));
    }
}
