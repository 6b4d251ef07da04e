//! Routes of calls: lists, streams and explanations.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use super::{ApiContext, RequestError, array_of, follow_permit, lines_of, parse_since};
use crate::admin::api::{self, CallsQuery, LogLine};
use crate::admin::slots::ConnectionSlot;
use crate::admin::state::Admin;
use crate::cri::MethodName;
use crate::execsync::{self, CallRecord};
use crate::history::{Filter, FilterValueError, MethodArg, Selection};
use crate::suggest::did_you_mean;

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
    let filter = filter(&query, &admin)?;
    let selection = selection(&query)?;
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
    let filter = filter(&query, &admin)?;
    let permit = follow_permit(&admin, &slot)?;
    let (kept, coming) = admin.state.calls.follow(&filter, selection(&query)?);
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
    let Some(record) = admin.state.calls.get(id) else { return explain_in_flight(&admin, id).await };
    let sentences = execsync::explain(&record);
    let call = api::ListedCall::Ended(Box::new((&*record).into()));
    Ok(Json(api::Explanation { call, sentences }).into_response())
}

/// Explains a call in flight.
async fn explain_in_flight(admin: &Admin, id: u64) -> Result<Response, RequestError> {
    let call = admin.state.in_flight.list().await.into_iter().find(|call| call.info.id == id);
    let call = call.ok_or_else(|| {
        RequestError::BadRequest(format!(
            "call {id} is neither recorded nor in flight; `probeshim calls` shows the calls"
        ))
    })?;
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
    Ok(Json(api::Explanation { call, sentences }).into_response())
}

fn selection(query: &CallsQuery) -> Result<Selection, RequestError> {
    match (query.last, query.slowest) {
        (None, None) => Ok(Selection::All),
        (Some(last), None) => Ok(Selection::Last(last)),
        (None, Some(slowest)) => Ok(Selection::Slowest(slowest)),
        (Some(_), Some(_)) => Err(RequestError::BadRequest("last and slowest exclude each other".to_owned())),
    }
}

/// Returns the filter of a query.
pub(super) fn filter(query: &CallsQuery, admin: &Admin) -> Result<Filter, RequestError> {
    let method = query.method.as_deref().map(|name| method(name, admin)).transpose()?;
    let probe = query.probe.as_deref().map(|name| parse("probe", name)).transpose()?;
    let code = query.code.as_deref().map(|name| parse("code", name)).transpose()?;
    let CallsQuery { namespace, pod, container, peer, failed, this_run, .. } = query.clone();
    let since = query.since_ms.map(parse_since);
    Ok(Filter { this_run, method, since, namespace, pod, container, probe, peer, code, failed })
}

/// Parses the value of a filter.
fn parse<T: FromStr<Err = FilterValueError>>(field: &str, text: &str) -> Result<T, RequestError> {
    text.parse().map_err(|error| RequestError::BadRequest(format!("{field} {text:?} {error}")))
}

/// Returns the method with this name or path: a method of the CRI, or another one that was called.
fn method(name: &str, admin: &Admin) -> Result<MethodName, RequestError> {
    let MethodArg(method) = parse("method", name)?;
    if matches!(method, MethodName::Known(_)) || admin.state.calls.has(&method) {
        return Ok(method);
    }
    let called = admin.state.calls.other_methods();
    let hint = did_you_mean(name, called.iter().map(|path| &**path));
    Err(RequestError::BadRequest(format!(
        "method {name:?} is not a method of the CRI, and no call to it is recorded{hint}"
    )))
}
