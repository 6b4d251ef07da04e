//! Calls, and the explanation of one.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use serde::Serialize;

use super::answer::{PageError, json};
use super::empty_list::KnownPods;
use super::period::with_period;
use super::query::{PageRequest, PageSelection};
use crate::admin::Admin;
use crate::execsync::{CallRecord, explain};
use crate::history::{Counts, Filter, Selection, json as history_json};

/// Calls of a period.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageCalls {
    /// Source of the calls: `history` for all calls that are still in memory, `records` for the
    /// slow and failed calls that are recorded for each minute.
    source: &'static str,
    calls: Vec<history_json::Call>,
    /// Reason why there are no calls; null if there are some.
    empty_because: Option<String>,
}

/// A call with its explanation.
#[derive(Debug, Serialize)]
struct ExplainedCall {
    call: history_json::Call,
    sentences: Vec<String>,
}

/// Returns the calls of a period: those in memory if they begin before it, otherwise those that are
/// recorded.
pub(super) async fn calls(request: PageRequest) -> Result<Response, PageError> {
    let PageRequest { admin, headers, selection, .. } = request;
    let PageSelection { from, to, order, .. } = selection;
    if !selection.is_live && !covers(&admin, from) {
        let of_admin = admin.clone();
        let found = with_period(admin, from, to, move |mut period| {
            let is_empty = !period.calls.iter().any(|record| selection.has_call(record));
            let empty_because = is_empty.then(|| {
                let mut pods = KnownPods::current(&of_admin, &selection);
                pods.add_period(&period);
                pods.empty_reason("calls", selection.is_filtered)
            });
            period.calls.retain(|record| selection.has_call(record));
            period.calls.sort_by_key(|record| end_of(record));
            let calls = order.select(period.calls).iter().map(|record| (&**record).into()).collect();
            PageCalls { source: "records", calls, empty_because }
        });
        return json(&headers, &found.await?);
    }
    let since = Filter { since: Some(from), ..Filter::default() };
    let mut of_period = admin.state.calls.select(&since, Selection::All);
    of_period.retain(|record| end_of(record) <= to);
    let (found, others): (Vec<_>, Vec<_>) =
        of_period.into_iter().partition(|record| selection.has_call(record));
    let empty_because = found.is_empty().then(|| {
        let mut pods = KnownPods::current(&admin, &selection);
        for record in &others {
            pods.add_call(record);
        }
        pods.empty_reason("calls", selection.is_filtered)
    });
    let found = order.select(found);
    let calls = found.iter().map(|record| (&*shown(&admin, record)).into()).collect();
    json(&headers, &PageCalls { source: "history", calls, empty_because })
}

/// Returns whether all calls since a time are in memory.
fn covers(admin: &Admin, from: SystemTime) -> bool {
    let Counts { seen, retained } = admin.state.calls.counts();
    let is_complete = admin.info.started <= from && retained as u64 >= seen;
    is_complete || admin.state.calls.oldest().is_some_and(|record| end_of(&record) <= from)
}

fn end_of(record: &CallRecord) -> SystemTime {
    record.call.start + record.call.duration
}

/// Returns a call with its explanation. A call that is no longer in memory is looked for in the
/// records of the period.
pub(super) async fn call(
    id: Result<Path<u64>, PathRejection>,
    request: PageRequest,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::BadRequest("the id of a call must be a number".to_owned()))?;
    let PageRequest { admin, headers, selection, .. } = request;
    let in_memory = admin.state.calls.get(id).filter(|_| selection.is_live || covers(&admin, selection.from));
    if let Some(record) = in_memory {
        let shown = shown(&admin, &record);
        let sentences = admin.explain(&record, &shown);
        return json(&headers, &ExplainedCall { call: (&*shown).into(), sentences });
    }
    let recorded = with_period(admin, selection.from, selection.to, move |period| {
        let record = period.calls.iter().find(|record| record.call.id == id)?;
        Some(ExplainedCall { call: (&**record).into(), sentences: explain(record) })
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
