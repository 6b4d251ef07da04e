//! What is answered to which path.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use super::server::Admin;
use super::shape::{self, CallsQuery, Line, Refusal};
use crate::cri::Method;
use crate::metrics;
use crate::record::{Filter, Order};
use crate::tap::MethodName;

type Shared = State<Arc<Admin>>;

/// What everyone on this machine may read.
pub(super) fn public() -> Router<Arc<Admin>> {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .fallback(nothing_here)
}

/// What only the admin socket serves.
pub(super) fn private() -> Router<Arc<Admin>> {
    Router::new().route("/v1/status", get(status)).route("/v1/calls", get(calls))
}

async fn nothing_here() -> Response {
    refusal(StatusCode::NOT_FOUND, "there is nothing here".to_owned())
}

async fn readyz(State(admin): Shared) -> Response {
    let upstream = admin.upstream.state().await;
    match upstream.error {
        None => "ok\n".into_response(),
        Some(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{}: {error}\n", upstream.socket)).into_response()
        }
    }
}

async fn metrics_text(State(admin): Shared) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], admin.metrics.text())
}

async fn status(State(admin): Shared) -> Json<shape::Status> {
    let (observed, kept) = admin.calls.counts();
    Json(shape::Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: "off".to_owned(),
        pid: std::process::id(),
        started: shape::time(admin.facts.started),
        listen: admin.facts.listen.clone(),
        http: admin.facts.http.map(|address| format!("http://{address}")),
        upstream: admin.upstream.state().await,
        connections: shape::Connections {
            open: admin.relay.connections_open(),
            total: admin.relay.connections(),
        },
        calls: shape::CallCounts {
            in_flight: admin.relay.streams_open(),
            observed,
            kept,
            dropped: admin.tap.observations_dropped(),
        },
    })
}

async fn calls(State(admin): Shared, query: Result<Query<CallsQuery>, QueryRejection>) -> Response {
    let read = query
        .map_err(|error| error.body_text())
        .and_then(|Query(query)| read(&query, &admin).map(|read| (query, read)));
    let (query, (filter, order)) = match read {
        Ok(read) => read,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason),
    };
    if query.follow {
        let lines = follow(&admin, filter, order);
        return ([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response();
    }
    let calls = admin.calls.select(&filter, order);
    Json(calls.iter().map(|call| shape::Call::from(&**call)).collect::<Vec<_>>()).into_response()
}

/// Turns a query into what it means, or says what it must not be.
fn read(query: &CallsQuery, admin: &Admin) -> Result<(Filter, Order), String> {
    let order = match (query.last, query.slowest) {
        (None, None) => Order::Time,
        (Some(last), None) => Order::Last(last),
        (None, Some(slowest)) if !query.follow => Order::Slowest(slowest),
        (None, Some(_)) => return Err("slowest cannot be followed".to_owned()),
        (Some(_), Some(_)) => return Err("last and slowest exclude each other".to_owned()),
    };
    let method = query.method.as_deref().map(|name| method(name, admin)).transpose()?;
    let since = query.since_ms.map(|since| {
        SystemTime::now().checked_sub(Duration::from_millis(since)).unwrap_or(SystemTime::UNIX_EPOCH)
    });
    Ok((Filter { method, since }, order))
}

/// The method of this name or path: one of the interface, or another that was called.
fn method(name: &str, admin: &Admin) -> Result<MethodName, String> {
    let known = Method::named(name).or_else(|| Method::at(name)).map(MethodName::Known);
    let called = || Some(MethodName::of_path(name)).filter(|method| admin.calls.has(method));
    known.or_else(called).ok_or_else(|| {
        let names: Vec<&str> = Method::all().map(Method::name).collect();
        format!(
            "method {name:?} is neither one of the CRI nor the path of a call that is kept; the CRI has {}",
            names.join(", ")
        )
    })
}

/// What is kept, and then every call as it ends, a line each.
fn follow(admin: &Admin, filter: Filter, order: Order) -> Body {
    let (kept, coming) = admin.calls.follow(&filter, order);
    let coming = BroadcastStream::new(coming).filter_map(move |next| match next {
        Ok(call) => filter.lets_through(&call).then(|| Line::from(&*call)),
        Err(BroadcastStreamRecvError::Lagged(missed)) => Some(Line::Missed { missed }),
    });
    let kept = tokio_stream::iter(kept).map(|call| Line::from(&*call));
    Body::from_stream(kept.chain(coming).map(|line| {
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(line)
    }))
}

fn refusal(status: StatusCode, error: String) -> Response {
    (status, Json(Refusal { error })).into_response()
}
