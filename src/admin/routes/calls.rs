//! Routes of calls: lists, streams and explanations.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use super::{ApiContext, RequestError, array_of, follow_permit, lines_of};
use crate::admin::api::{self, CallsQuery, LogLine};
use crate::admin::slots::ConnectionSlot;
use crate::admin::state::Admin;
use crate::execsync::{self, CallRecord};

type QueryOfCalls = Result<Query<CallsQuery>, QueryRejection>;

/// A call to be listed.
enum CallItem {
    Ended(Arc<CallRecord>),
    /// A call as it was at the time of the request, however slowly the client reads.
    InFlight(Box<api::CallInFlight>),
}

impl From<&CallItem> for api::ListedCall {
    fn from(item: &CallItem) -> Self {
        match item {
            CallItem::Ended(record) => Self::Ended(Box::new((&**record).into())),
            CallItem::InFlight(call) => Self::InFlight(call.clone()),
        }
    }
}

pub(super) async fn calls(State(admin): ApiContext, query: QueryOfCalls) -> Result<Response, RequestError> {
    let Query(query) = query?;
    let filter = admin.call_filter(&query).map_err(RequestError::BadRequest)?;
    let selection = query.selection().map_err(RequestError::BadRequest)?;
    if query.settled {
        admin.state.in_flight.wait_for_records().await;
    }
    // A call that ends while the calls in flight are listed may be recorded by then. A call that
    // has ended and is still being analyzed is in neither list.
    let mut in_flight = if query.in_flight { admin.state.in_flight.list().await } else { Vec::new() };
    let calls = admin.state.calls.select(&filter, selection);
    if !in_flight.is_empty() {
        let recorded = admin.state.calls.ids();
        in_flight.retain(|call| filter.matches_in_flight(call) && !recorded.contains(&call.info.id));
    }
    let ended = calls.into_iter().map(CallItem::Ended);
    let in_flight = in_flight.iter().map(|call| CallItem::InFlight(Box::new(call.into())));
    let items = ended.chain(in_flight).map(Arc::new).collect();
    Ok(array_of(items, |item: &CallItem| api::ListedCall::from(item)))
}

/// Streams the calls of the history, then each call as it ends, with one line per call.
pub(super) async fn follow(
    State(admin): ApiContext,
    Extension(slot): Extension<Arc<ConnectionSlot>>,
    query: QueryOfCalls,
) -> Result<Response, RequestError> {
    let Query(query) = query?;
    if query.slowest.is_some() {
        return Err(RequestError::BadRequest("slowest and follow exclude each other".to_owned()));
    }
    let filter = admin.call_filter(&query).map_err(RequestError::BadRequest)?;
    let permit = follow_permit(&admin, &slot)?;
    let (kept, coming) =
        admin.state.calls.follow(&filter, query.selection().map_err(RequestError::BadRequest)?);
    let coming = BroadcastStream::new(coming).filter_map(move |next| match next {
        Ok(record) => filter.matches(&record).then(|| LogLine::from(&*record)),
        Err(BroadcastStreamRecvError::Lagged(missed)) => Some(LogLine::Missed { missed }),
    });
    let lines = tokio_stream::iter(kept).map(|record| LogLine::from(&*record)).chain(coming);
    Ok(lines_of(lines, permit))
}

/// Returns a call with its explanation.
pub(super) async fn explain(
    State(admin): ApiContext,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Response, RequestError> {
    let Path(id) =
        id.map_err(|_| RequestError::BadRequest("the id of a call must be a number".to_owned()))?;
    let mut record = admin.state.calls.get(id);
    if record.is_none() {
        if let Some(answer) = explain_in_flight(&admin, id).await {
            return Ok(answer);
        }
        // The call may have ended, and wait for its record.
        admin.state.in_flight.wait_for_records().await;
        record = admin.state.calls.get(id);
    }
    let record = record.ok_or_else(|| {
        RequestError::BadRequest(format!(
            "call {id} is neither recorded nor in flight; `probeshim calls` shows the calls; after a restart, ids begin thousands higher"
        ))
    })?;
    let sentences = admin.explain(&record, &record);
    let call = api::ListedCall::Ended(Box::new((&*record).into()));
    Ok(Json(api::Explanation { call, sentences }).into_response())
}

/// Explains a call, if it is in flight.
async fn explain_in_flight(admin: &Admin, id: u64) -> Option<Response> {
    let call = admin.state.in_flight.list().await.into_iter().find(|call| call.info.id == id)?;
    let session = call.details.progress.filter(|progress| progress.exited.is_some());
    let session = session.and_then(|progress| progress.pid);
    let container = call.details.container.as_ref().and_then(|container| container.id.clone());
    let processes = match session.zip(container) {
        // Reading all processes takes milliseconds on a large node.
        Some((pid, container)) => {
            let redact = admin.state.redact;
            let read = move || execsync::session_processes(&container, pid, redact);
            tokio::task::spawn_blocking(read).await.unwrap_or_default()
        }
        None => Vec::new(),
    };
    let sentences = execsync::explain_in_flight(&call, Instant::now(), &processes);
    let call = api::ListedCall::InFlight(Box::new((&call).into()));
    Some(Json(api::Explanation { call, sentences }).into_response())
}
