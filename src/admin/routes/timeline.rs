//! Route of the results of probes over time.

use std::io;
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use super::{ApiContext, RequestError};
use crate::admin::api::TimelineQuery;
use crate::history::recorder::Timeline;
use crate::history::timeline::Line;

/// Size of the pieces of a response, in bytes.
const CHUNK_BYTES: usize = 1 << 18;

/// Time after which a client that does not read its response loses its permit.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends the lines of a response in pieces.
struct LineSender {
    chunks: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    pending: Vec<u8>,
}

/// Streams the recorded lines of a period.
pub(super) async fn timeline(
    State(admin): ApiContext,
    query: Result<Query<TimelineQuery>, QueryRejection>,
) -> Result<Response, RequestError> {
    let Query(TimelineQuery { since, until }) = query?;
    let (from, to) = (parse("since", &since)?, parse("until", &until)?);
    // Each request reads all recorded results.
    let permit = admin.timeline_readers.clone().try_acquire_owned();
    let permit = permit.map_err(|_| RequestError::TooManyTimelineReaders)?;
    let (chunks, received) = mpsc::channel(2);
    let timeline = admin.state.timeline.clone();
    spawn_blocking(move || {
        let mut sender = LineSender { chunks, runtime: Handle::current(), pending: Vec::new() };
        // An error means that the client has disconnected, or that the response ends incomplete.
        if let Err(error) = send_lines(&timeline, from, to, &mut sender) {
            let _ = sender.chunks.try_send(Err(error));
        }
        drop(permit);
    });
    let body = Body::from_stream(ReceiverStream::new(received));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

fn send_lines(
    timeline: &Timeline,
    from: SystemTime,
    to: SystemTime,
    sender: &mut LineSender,
) -> io::Result<()> {
    let mut redactor = timeline.redactor();
    let mut send = |line: &[u8]| {
        if !Line::is_needed(line, from, to) {
            return Ok(());
        }
        match &mut redactor {
            None => sender.push(line),
            Some(redactor) => redactor.redact(line).map_or(Ok(()), |line| sender.push(&line)),
        }
    };
    timeline.recorded_lines(SystemTime::now(), Instant::now()).for_each(&mut send)?;
    sender.flush()
}

impl LineSender {
    fn push(&mut self, line: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(line);
        self.pending.push(b'\n');
        if self.pending.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = Bytes::from(std::mem::take(&mut self.pending));
        let sent = self.runtime.block_on(self.chunks.send_timeout(Ok(chunk), STALL_TIMEOUT));
        sent.map_err(|error| match error {
            SendTimeoutError::Timeout(_) => io::ErrorKind::TimedOut.into(),
            SendTimeoutError::Closed(_) => io::ErrorKind::BrokenPipe.into(),
        })
    }
}

fn parse(field: &str, text: &str) -> Result<SystemTime, RequestError> {
    text.parse::<Timestamp>().map(SystemTime::from).map_err(|_| {
        RequestError::BadRequest(format!(
            "{field} {text:?} must be a time in RFC 3339, such as 2026-11-27T10:00:00Z"
        ))
    })
}
