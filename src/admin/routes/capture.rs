//! Route of captures.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use tokio_stream::StreamExt as _;

use super::{ApiContext, RequestError, follow_permit};
use crate::admin::api::CaptureQuery;
use crate::admin::readiness;
use crate::admin::slots::ConnectionSlot;
use crate::build_info;
use crate::capture::{CaptureHeader, CaptureRuntime, CaptureTerms, FORMAT_VERSION, capture_lines};
use crate::cri::Redaction;
use crate::history::json::{milliseconds, time};

/// Longest capture.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// Streams calls with their messages as they end, without secrets, for a limited time.
pub(super) async fn capture(
    State(admin): ApiContext,
    Extension(slot): Extension<Arc<ConnectionSlot>>,
    query: Result<Query<CaptureQuery>, QueryRejection>,
) -> Result<Response, RequestError> {
    let Query(query) = query?;
    let duration = Duration::from_millis(query.for_ms);
    if duration.is_zero() || duration > MAX_DURATION {
        let reason = format!("for_ms {} must be from 1 to {}", query.for_ms, MAX_DURATION.as_millis());
        return Err(RequestError::BadRequest(reason));
    }
    let filter = admin.call_filter(&query.calls()).map_err(RequestError::BadRequest)?;
    let permit = follow_permit(&admin, &slot)?;
    let upstream = readiness::check_upstream(&admin.state.runtime).await;
    let session = admin.state.captures.start(filter)?;
    let redact_commands = query.redact_commands || admin.state.redact;
    let runtime = upstream.runtime.zip(upstream.version);
    let header = CaptureHeader {
        probeshim_capture: FORMAT_VERSION,
        version: build_info::full_version().to_owned(),
        started: time(SystemTime::now()),
        for_ms: milliseconds(duration),
        runtime: runtime.map(|(name, version)| CaptureRuntime { name, version }),
        redact_commands,
    };
    let redaction = if redact_commands { Redaction::SecretsAndCommands } else { Redaction::Secrets };
    let tap = admin.state.metrics.tap.clone();
    let lines = capture_lines(session, CaptureTerms { header, duration, redaction, tap });
    let lines = lines.map(move |lines| {
        let _ = &permit;
        Ok::<_, std::convert::Infallible>(lines)
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}
