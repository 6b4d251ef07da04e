//! The rows of the table of calls.

use anstyle::AnsiColor;
use jiff::Timestamp;

use crate::admin::api::{Call, CallInFlight, Container, Exec, Fault, ListedCall, Peer, Pod};
use crate::cli::table::{Cell, Column, Table};
use crate::cri::error_cause;
use crate::execsync::CallRecord;
use crate::history::MethodArg;
use crate::tap::is_subscription;
use crate::terminal::format;
use crate::terminal::screen::Screen;
use crate::terminal::shortened;

/// Number of characters of an id that are shown, as in crictl.
const SHORT_ID: usize = 13;

/// Maximum width of a subject that the cause of a failure follows.
const MAX_SUBJECT: usize = 60;

/// Returns the table of these calls.
pub(super) fn render(calls: &[ListedCall], screen: Screen, now: Timestamp) -> String {
    let rows: Vec<Vec<Cell>> = calls
        .iter()
        .map(|call| match call {
            ListedCall::Ended(call) => row(call, now),
            ListedCall::InFlight(call) => row_in_flight(call, now),
        })
        .collect();
    Table::new(columns(), screen).render(&rows)
}

pub(super) fn columns() -> [Column; 13] {
    [
        Column::numeric("ID").expected_width("10000"),
        Column::text("TIME (UTC)").expected_width("13:09:32.123"),
        Column::text("METHOD").expected_width("PodSandboxStatus"),
        Column::text("CODE"),
        Column::numeric("DURATION"),
        Column::text("EXIT").omit_empty(),
        Column::numeric("SENT").expected_width("1.50 KiB").optional().omit_empty(),
        Column::numeric("RECEIVED").optional().omit_empty(),
        Column::text("PEER").expected_width("kubelet[12345]").optional(),
        Column::numeric("MARGIN").optional().omit_empty(),
        Column::text("SLOWEST PHASE").expected_width("start 88 %").optional().omit_empty(),
        Column::text("AFFECTED BY").omit_empty(),
        Column::text("SUBJECT").expected_width("0123456789abc timeout 1s"),
    ]
}

pub(super) fn row(call: &Call, now: Timestamp) -> Vec<Cell> {
    // Internal calls, and calls of which no message was forwarded, have no sizes.
    let size = |bytes: u64| match (call.request_bytes, call.response_bytes) {
        (0, 0) => String::new(),
        _ => format::size(bytes),
    };
    vec![
        Cell::new(call.id.to_string()),
        Cell::new(format::recent_time(&call.start, now)),
        Cell::new(&call.method),
        code(call),
        Cell::new(format::milliseconds(call.duration_ms)),
        exit(call),
        Cell::new(size(call.request_bytes)),
        Cell::new(size(call.response_bytes)),
        Cell::new(peer(call.peer.as_ref())),
        margin(call),
        Cell::new(dominant_phase(call)),
        affected_by(&call.faults, &call.policy),
        Cell::new(subject_and_cause(call)),
    ]
}

/// Returns the subject of a call, and the cause of its failure as its message names it.
fn subject_and_cause(call: &Call) -> String {
    let objects = subject(call.pod.as_ref(), call.container.as_ref(), call.exec.as_ref());
    let parts = [Some(objects), call.image.clone()].into_iter().flatten().filter(|part| !part.is_empty());
    let subject = parts.collect::<Vec<_>>().join(" ");
    match call.message.as_deref().map(error_cause).filter(|cause| !cause.is_empty()) {
        // A long command leaves room for the cause.
        Some(cause) if subject.is_empty() => cause.to_owned(),
        Some(cause) => format!("{}: {cause}", shortened(&subject, MAX_SUBJECT)),
        None => subject,
    }
}

/// Returns the row of a call in flight: its age as its duration, and its phase so far.
fn row_in_flight(call: &CallInFlight, now: Timestamp) -> Vec<Cell> {
    let timeout = call.exec.as_ref().map(|exec| exec.timeout_seconds).filter(|timeout| *timeout > 0);
    #[expect(clippy::cast_precision_loss, reason = "timeouts are short")]
    let is_late = timeout.is_some_and(|timeout| call.age_ms > 1e3 * timeout as f64);
    let colour = if is_late { AnsiColor::Red } else { AnsiColor::Cyan };
    vec![
        Cell::new(call.id.to_string()),
        Cell::new(format::recent_time(&call.start, now)),
        Cell::new(&call.method),
        Cell::styled("running", colour.on_default()),
        Cell::new(format::milliseconds(call.age_ms)),
        Cell::new(""),
        Cell::new(""),
        Cell::new(""),
        Cell::new(peer(call.peer.as_ref())),
        Cell::new(""),
        Cell::new(call.phase.as_deref().unwrap_or_default()),
        affected_by(&call.faults, &call.policy),
        Cell::new(subject(call.pod.as_ref(), call.container.as_ref(), call.exec.as_ref())),
    ]
}

/// Returns the names of the fault rules and policies that affected a call.
fn affected_by(faults: &[Fault], policies: &[String]) -> Cell {
    let faults = faults.iter().map(|fault| fault.name.as_str());
    let mut names: Vec<&str> = faults.chain(policies.iter().map(String::as_str)).collect();
    names.dedup();
    Cell::styled(names.join(" "), AnsiColor::Magenta.on_default())
}

/// Returns the code of a call, in red if it is that of a failure. A subscription that its client
/// ended has none.
fn code(call: &Call) -> Cell {
    let is_reset = ["client-reset", "client-gone"].contains(&call.code.as_str());
    match call.code.as_str() {
        "OK" => Cell::new("OK"),
        _ if is_reset && is_subscription(&MethodArg::method_of(&call.method)) => Cell::new("ended"),
        code => Cell::styled(code, AnsiColor::Red.on_default()),
    }
}

/// Returns the exit code of an ExecSync; with `late` if the call ended after its timeout, and `?`
/// if the response was too long to be decoded.
fn exit(call: &Call) -> Cell {
    let Some(exec) = &call.exec else { return Cell::new("") };
    let is_late = exec.margin_ms.is_some_and(|margin| margin < 0.0);
    match exec.exit_code {
        Some(0) if !is_late => Cell::new("0"),
        Some(code) if is_late => Cell::styled(format!("{code} late"), AnsiColor::Yellow.on_default()),
        Some(code) => Cell::styled(code.to_string(), AnsiColor::Yellow.on_default()),
        None if call.code == "OK" => Cell::new("?"),
        None => Cell::new(""),
    }
}

/// Returns the timeout margin of an ExecSync, in red if it is negative.
fn margin(call: &Call) -> Cell {
    match call.exec.as_ref().and_then(|exec| exec.margin_ms) {
        None => Cell::new(""),
        Some(late) if late < 0.0 => {
            Cell::styled(format!("-{}", format::milliseconds(-late)), AnsiColor::Red.on_default())
        }
        Some(margin) => Cell::new(format::milliseconds(margin)),
    }
}

/// Returns the phase that took most of the time of an ExecSync until its result was certain, or the
/// reason for which the phases are unknown. A runtime that does not report phases has none.
fn dominant_phase(call: &Call) -> String {
    let Some(phases) = call.exec.as_ref().and_then(|exec| exec.phases.as_ref()) else {
        return String::new();
    };
    match phases.state.as_str() {
        "complete" => {}
        "unsupported" => return String::new(),
        unknown => return unknown.to_owned(),
    }
    let record = CallRecord::try_from(call.clone()).ok();
    let most = record.and_then(|record| record.counted_phases()?.slowest());
    most.map_or_else(String::new, |(name, time)| {
        let share = 1e3 * time.as_secs_f64() / call.duration_ms.max(f64::MIN_POSITIVE);
        format!("{name} {:.0} %", 100.0 * share)
    })
}

/// Returns the peer as `kubelet[4711]`, with `?` for an unknown program.
fn peer(peer: Option<&Peer>) -> String {
    let Some(peer) = peer else { return "?".to_owned() };
    let program = peer.program.as_deref().unwrap_or("?");
    peer.pid.map_or_else(|| program.to_owned(), |pid| format!("{program}[{pid}]"))
}

/// Returns the subject of a call: pod, container, and for an ExecSync its probe, timeout and
/// command.
pub(in crate::cli) fn subject(
    pod: Option<&Pod>,
    container: Option<&Container>,
    exec: Option<&Exec>,
) -> String {
    let mut parts = Vec::new();
    if let Some(pod) = pod {
        match (&pod.namespace, &pod.name) {
            (Some(namespace), Some(name)) => parts.push(format!("{namespace}/{name}")),
            _ => parts.extend(pod.id.as_deref().map(short)),
        }
    }
    if let Some(container) = container {
        let name = container.name.clone().or_else(|| container.id.as_deref().map(short));
        parts.extend(name);
    }
    if let Some(exec) = exec {
        parts.extend(exec.probe.as_ref().map(|probe| probe.r#type.clone()));
        if exec.timeout_seconds != 0 {
            parts.push(format!("timeout {}s", exec.timeout_seconds));
        }
        parts.push(format::command(&exec.command));
        if exec.command_truncated {
            parts.push("…".to_owned());
        }
    }
    parts.join(" ")
}

fn short(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::snapshots::assert_screens;

    /// Time at which the calls are listed: the day of the samples, or a later day.
    const TODAY: &str = "2026-11-21T20:15:00Z";
    const TOMORROW: &str = "2026-11-22T00:00:01Z";

    fn samples(lines: &[usize]) -> Vec<Call> {
        let all: Vec<&str> = include_str!("../../history/json/samples.jsonl").lines().collect();
        lines.iter().map(|line| serde_json::from_str(all[*line]).unwrap()).collect()
    }

    #[test]
    fn calls_have_columns_for_exit_codes_phases_and_margins() {
        let mut calls = samples(&[0, 1, 4, 5, 6, 7, 9, 10]);
        calls[6].exec.as_mut().unwrap().margin_ms = Some(-24.3);
        let ended = calls.iter().cloned().map(|call| ListedCall::Ended(Box::new(call)));
        let held = CallInFlight {
            id: 45,
            start: "2026-11-21T20:14:48.800Z".to_owned(),
            method: "ExecSync".to_owned(),
            in_flight: true,
            age_ms: 11_200.0,
            ended_at: None,
            duration_ms: None,
            code: None,
            peer: calls[2].peer.clone(),
            pod: calls[2].pod.clone(),
            container: calls[2].container.clone(),
            exec: calls[2].exec.clone(),
            phase: Some("drain".to_owned()),
            pid: Some(4711),
            faults: Vec::new(),
            policy: Vec::new(),
        };
        let text = serde_json::to_string(&held).unwrap();
        assert!(matches!(serde_json::from_str(&text).unwrap(), ListedCall::InFlight(_)), "{text}");
        let calls: Vec<ListedCall> = ended.chain([ListedCall::InFlight(Box::new(held))]).collect();
        assert_screens("calls", |screen| render(&calls, screen, TODAY.parse().unwrap()));
    }

    #[test]
    fn the_last_column_names_the_image_and_the_cause_of_a_failure() {
        let mut pull = samples(&[0]).remove(0);
        (pull.pod, pull.container, pull.exec) = (None, None, None);
        pull.image = Some("registry.test/nope:1".to_owned());
        pull.message = Some("failed to pull and unpack image \"registry.test/nope:1\": not found".to_owned());
        assert_eq!(subject_and_cause(&pull), "registry.test/nope:1: not found");
        pull.message = None;
        assert_eq!(subject_and_cause(&pull), "registry.test/nope:1");
    }

    #[test]
    fn a_subscription_that_its_client_ended_has_no_code_of_a_failure() {
        let mut stream = samples(&[0]).remove(0);
        stream.code = "client-reset".to_owned();
        for (method, shown) in [
            ("GetContainerEvents", "ended"),
            ("/containerd.services.events.v1.Events/Subscribe", "ended"),
            ("ExecSync", "client-reset"),
        ] {
            method.clone_into(&mut stream.method);
            assert!(format!("{:?}", code(&stream)).contains(&format!("{shown:?}")), "{method}");
        }
    }

    #[test]
    fn calls_of_a_runtime_without_phases_and_of_another_day_have_the_columns_that_they_need() {
        let mut calls = samples(&[4, 5]);
        for call in &mut calls {
            (call.request_bytes, call.response_bytes) = (0, 0);
            if let Some(phases) = call.exec.as_mut().and_then(|exec| exec.phases.as_mut()) {
                phases.state = "unsupported".to_owned();
            }
        }
        let calls: Vec<ListedCall> =
            calls.into_iter().map(|call| ListedCall::Ended(Box::new(call))).collect();
        let now = TOMORROW.parse().unwrap();
        assert_screens("calls_without_phases", |screen| render(&calls, screen, now));
    }
}
