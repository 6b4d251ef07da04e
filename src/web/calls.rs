//! Calls, and the explanation of one.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::answer::{PageError, json};
use super::period::with_period;
use super::query::{PageQuery, PageSelection};
use crate::admin::Admin;
use crate::execsync::{CallRecord, explain};
use crate::history::{Filter, json as history_json};

/// Calls of a period.
#[derive(Debug, Serialize)]
struct PageCalls {
    /// Source of the calls: `history` for all calls that are still in memory, `records` for the
    /// slow and failed calls that are recorded for each minute.
    source: &'static str,
    calls: Vec<history_json::Call>,
}

/// A call with its explanation.
#[derive(Debug, Serialize)]
struct ExplainedCall {
    call: history_json::Call,
    sentences: Vec<String>,
}

/// Returns the calls of a period: those in memory if it ends now, otherwise those that are
/// recorded.
pub(super) async fn calls(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    let Query(query) = query.map_err(|error| PageError::BadRequest(error.body_text()))?;
    let selection = query.select(&admin)?;
    let PageSelection { from, to, order, .. } = selection;
    if !selection.is_live {
        let found = with_period(admin, from, to, move |mut period| {
            period.calls.retain(|record| selection.has_call(record));
            period.calls.sort_by_key(|record| record.call.start + record.call.duration);
            let calls = order.select(period.calls).iter().map(|record| (&**record).into()).collect();
            PageCalls { source: "records", calls }
        });
        return json(&headers, &found.await?);
    }
    let filter = Filter { since: Some(from), ..selection.filter };
    let found = admin.state.calls.select(&filter, order);
    let calls = found.iter().map(|record| (&*shown(&admin, record)).into()).collect();
    json(&headers, &PageCalls { source: "history", calls })
}

/// Returns a call with its explanation. A call that is no longer in memory is looked for in the
/// records of the period.
pub(super) async fn call(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
    id: Result<Path<u64>, PathRejection>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::BadRequest("the id of a call must be a number".to_owned()))?;
    let Query(query) = query.map_err(|error| PageError::BadRequest(error.body_text()))?;
    let selection = query.select(&admin)?;
    if let Some(record) = admin.state.calls.get(id).filter(|_| selection.is_live) {
        return json(&headers, &ExplainedCall::of(&shown(&admin, &record)));
    }
    let recorded = with_period(admin, selection.from, selection.to, move |period| {
        period.calls.iter().find(|record| record.call.id == id).map(|record| ExplainedCall::of(record))
    });
    let found = recorded.await?.ok_or_else(|| {
        PageError::NotFound(format!(
            "call {id} is neither in memory nor among the slow and failed calls that are recorded in this period"
        ))
    })?;
    json(&headers, &found)
}

/// Returns a call as the page shows it.
fn shown(admin: &Admin, record: &Arc<CallRecord>) -> Arc<CallRecord> {
    if admin.shows_commands() { record.clone() } else { Arc::new(CallRecord::clone(record).redacted()) }
}

impl ExplainedCall {
    fn of(record: &CallRecord) -> Self {
        Self { call: record.into(), sentences: explain(record) }
    }
}
