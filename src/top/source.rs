//! Reads what `top` shows from a running probeshim, and reconnects to it.

use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::Sender;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::event::{InspectRequest, Inspected, PeriodReport, TopEffect, TopEvent};
use crate::admin::Client;
use crate::admin::api::{Call, CallsQuery, LogLine, Pause, PauseReport, Status, TimelineQuery};
use crate::history::json::time;
use crate::history::timeline::TimelineReader;
use crate::lint::lint_selected;
use crate::report::{Report, ReportInput, Selection, report};

/// Time between two queries of the status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two queries of the period, and multiple of the duration of a query: queries
/// of a large period keep probeshim busy for at most a twentieth of the time.
const MIN_PERIOD_INTERVAL: Duration = Duration::from_secs(3);
const PERIOD_FACTOR: u32 = 20;

/// Number of past calls from which the last results are known at the start.
const PAST_CALLS: usize = 500;

/// Queries the status once per second, until `top` ends.
pub(super) async fn watch_status(client: Client, events: Sender<TopEvent>) {
    loop {
        let event = match client.status().await {
            Err(error) => TopEvent::Disconnected(error.to_string()),
            Ok(answer) => match serde_json::from_slice::<Status>(&answer) {
                Ok(status) => TopEvent::Status(Box::new(status), SystemTime::now()),
                Err(error) => TopEvent::Disconnected(format!("the response is not a status: {error}")),
            },
        };
        if events.send(event).await.is_err() {
            return;
        }
        sleep(STATUS_INTERVAL).await;
    }
}

/// Queries the results of the period before the present again and again. An error is shown by
/// [`watch_status`].
pub(super) async fn watch_period(client: Client, length: Duration, events: Sender<TopEvent>) {
    loop {
        let started = Instant::now();
        if let Some(report) = query_period(&client, length).await
            && events.send(TopEvent::Period(PeriodReport(Box::new(report)))).await.is_err()
        {
            return;
        }
        sleep((started.elapsed() * PERIOD_FACTOR).max(MIN_PERIOD_INTERVAL)).await;
    }
}

async fn query_period(client: &Client, length: Duration) -> Option<Report> {
    let to = SystemTime::now();
    let from = to.checked_sub(length)?;
    let [since, until] = [from, to].map(time);
    let lines = client.timeline(&TimelineQuery { since, until }).await.ok()?;
    let read = spawn_blocking(move || {
        let mut reader = TimelineReader::new(from, to);
        lines.split(|byte| *byte == b'\n').for_each(|line| reader.add_line(line));
        let period = reader.finish();
        let source = "a running probeshim".to_owned();
        // A finding opens its probe, so each container has its own.
        let (selection, findings) = (Selection::default(), lint_selected(&period, |_| true));
        report(&period, ReportInput { generated: to, source, selection, findings })
    });
    read.await.ok()
}

/// Follows the ExecSyncs, and connects again when the connection ends.
pub(super) async fn follow_calls(client: Client, events: Sender<TopEvent>) {
    let query = CallsQuery {
        method: Some("ExecSync".to_owned()),
        this_run: true,
        last: Some(PAST_CALLS),
        ..CallsQuery::default()
    };
    loop {
        if let Ok(mut lines) = client.follow(&query).await {
            while let Some(line) = lines.line().await {
                let event = match serde_json::from_slice::<LogLine>(&line) {
                    Ok(LogLine::Call(call)) => TopEvent::Call(call),
                    Ok(LogLine::Missed { missed }) => TopEvent::Missed(missed),
                    Err(_) => continue,
                };
                if events.send(event).await.is_err() {
                    return;
                }
            }
        }
        sleep(STATUS_INTERVAL).await;
    }
}

/// Sends the requests of an effect. Returns the answer.
pub(super) async fn request(client: Client, effect: TopEffect) -> Option<TopEvent> {
    match effect {
        TopEffect::Inspect(request) => Some(TopEvent::Inspected(Box::new(inspect(&client, *request).await))),
        TopEffect::Pause(body) => {
            let answer = client.begin_pause(&body).await.map_err(|error| error.to_string());
            Some(TopEvent::Answered(answer.and_then(|answer| {
                let report: PauseReport =
                    serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
                let containers = report.containers.len();
                let pause = report.pause;
                Ok(format!("{} pauses {containers} container(s) until {}", pause.name, pause.expires))
            })))
        }
        TopEffect::Resume(body) => {
            let answer = client.resume(&body).await.map_err(|error| error.to_string());
            Some(TopEvent::Answered(answer.and_then(|answer| {
                let ended: Vec<Pause> = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
                let names: Vec<String> = ended.into_iter().map(|pause| pause.name).collect();
                Ok(if names.is_empty() {
                    "the pause had ended before".to_owned()
                } else {
                    format!("ended: {}", names.join(", "))
                })
            })))
        }
        TopEffect::Quit | TopEffect::Suspend => None,
    }
}

/// Queries the last calls of a probe, and the explanation of one. A probe without recorded calls,
/// such as an HTTP probe, has none.
async fn inspect(client: &Client, request: InspectRequest) -> Inspected {
    let InspectRequest { key, explain, calls } = request;
    let answer = client.calls(&calls).await.ok();
    let calls: Vec<Call> = answer.and_then(|answer| serde_json::from_slice(&answer).ok()).unwrap_or_default();
    let call = explain.or_else(|| calls.last().map(|call| call.id));
    let explanation = match call {
        Some(call) => client.explain(call).await.ok().and_then(|answer| serde_json::from_slice(&answer).ok()),
        None => None,
    };
    Inspected { key, explanation, calls }
}
