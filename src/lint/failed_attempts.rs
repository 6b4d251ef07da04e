//! How the attempts of a probe failed, in a sentence with their output.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{PeriodFacts, ProbeFacts, has_verdict, ids};
use crate::events::reason;
use crate::execsync::{CallRecord, ExecVerdict};
use crate::history::timeline::ProbeSeries;
use crate::tap::ExecCall;
use crate::terminal::format::{counted, duration};

/// Maximum number of characters of a line of the output that is quoted.
const MAX_LINE: usize = 160;

/// Number of exit codes that are named.
const MAX_CODES: usize = 3;

/// How the attempts of a probe failed.
#[derive(Debug)]
pub(super) struct FailedAttempts {
    /// The failures as part of a sentence: `21 of 42 attempts exited with 1: "cat: …"`.
    pub(super) text: String,
    /// The first and the last line of the most frequent output.
    pub(super) output: Option<String>,
    /// Whether most of the failures are because of the timeout.
    pub(super) is_timeout: bool,
    /// Ids of some of the failed calls.
    pub(super) calls: Vec<u64>,
    /// Whether some of the failures are because of the timeout.
    has_timeouts: bool,
    /// Whether the output is longer than its part that is kept.
    is_output_cut: bool,
}

impl FailedAttempts {
    /// Returns how the attempts of a probe failed; `None` if none is counted.
    pub(super) fn new(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>) -> Option<Self> {
        let total = &probe.attempts.total;
        let (failures, timeouts) = (probe.attempts.own_failures(), total.timeouts);
        let with = |verdict| {
            let is_it =
                move |call: &&CallRecord| has_verdict(call, verdict) && !call.has_ended_with_container();
            probe.attempts.calls.iter().copied().filter(is_it).collect::<Vec<_>>()
        };
        let (failed, timed_out) = (with(ExecVerdict::Failure), with(ExecVerdict::TimedOut));
        let output = most_frequent_output(&failed).or_else(|| event_output(facts, probe, "failed"));
        let quoted = output.as_ref().map(|output| format!(": {output:?}")).unwrap_or_default();
        let exited = how(&failed);
        let timeout = probe.series.timeout.map(|timeout| format!(" of {}", duration(timeout)));
        let late = format!("failed because of the timeout{}", timeout.unwrap_or_default());
        let all = counted(total.attempts(), "attempt");
        let text = match (failures, timeouts) {
            (0, 0) => return None,
            (_, 0) => format!("{failures} of {all} {exited}{quoted}"),
            (0, _) => format!("{timeouts} of {all} {late}"),
            _ => format!("of {all}, {timeouts} {late} and {failures} {exited}{quoted}"),
        };
        let is_timeout = timeouts > failures;
        let calls = if is_timeout { ids(&timed_out) } else { ids(&failed) };
        let calls = if calls.is_empty() { total.failed_calls.clone() } else { calls };
        let cut = failed.iter().filter(|call| call.call.exec.as_deref().is_some_and(ExecCall::is_output_cut));
        let is_output_cut = 2 * cut.count() > failed.len();
        Some(Self { text, output, is_timeout, calls, has_timeouts: timeouts > 0, is_output_cut })
    }

    /// Returns the remedy against the failures.
    pub(super) fn remedy(&self, series: &ProbeSeries) -> String {
        let faster = too_slow(series.timeout);
        if self.is_timeout {
            return faster;
        }
        let fix = if self.is_output_cut {
            "Run the command in the container to see its whole output: only the beginning is kept"
        } else {
            handler_remedy(&series.handler, self.output.as_deref())
        };
        if self.has_timeouts {
            return format!("{fix}; against the timeouts, {}", without_capital(&faster));
        }
        fix.to_owned()
    }
}

/// Returns the exit codes of calls as a verb with its object.
fn how(calls: &[&CallRecord]) -> String {
    let mut codes: BTreeMap<i32, u32> = BTreeMap::new();
    for code in calls.iter().filter_map(|call| Some(call.call.exec.as_deref()?.result?.exit_code)) {
        *codes.entry(code).or_default() += 1;
    }
    let codes: Vec<String> = codes.keys().map(ToString::to_string).collect();
    match &codes[..] {
        [] => "failed".to_owned(),
        [only] => format!("exited with {only}"),
        [first @ .., last] if codes.len() <= MAX_CODES => {
            format!("exited with {} or {last}", first.join(", "))
        }
        _ => "exited with several codes".to_owned(),
    }
}

/// Returns the first and the last line of the output that most calls have.
fn most_frequent_output(calls: &[&CallRecord]) -> Option<String> {
    let mut outputs: BTreeMap<String, u32> = BTreeMap::new();
    let outputs_of_calls = calls.iter().filter_map(|call| call.call.exec.as_deref()?.output.as_deref());
    for line in outputs_of_calls.filter_map(in_short) {
        *outputs.entry(line).or_default() += 1;
    }
    outputs.into_iter().max_by_key(|(_, count)| *count).map(|(line, _)| line)
}

/// Returns the first and the last line of the last failure of the probe that an event reports with
/// a verb: the output, or the error of a handler that is no command.
pub(super) fn event_output(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>, verb: &str) -> Option<String> {
    let container = probe.attempts.subject.clone().into_container();
    let types: Vec<String> =
        probe.series.probe.split(" or ").map(|name| format!("{name} probe {verb}")).collect();
    let is_it =
        |message: &str| types.iter().any(|text| message.to_ascii_lowercase().starts_with(text.as_str()));
    let events = facts.period.events.iter().rev();
    let mut unhealthy = events.filter(|event| event.reason == reason::UNHEALTHY && is_it(&event.message));
    let event = unhealthy.find(|event| super::LintSubject::for_event(event) == container)?;
    in_short(event.message.split_once(": ")?.1)
}

/// Returns the first line of an output, and the last one, since programs may end with the reason.
fn in_short(output: &str) -> Option<String> {
    let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = shortened(lines.next()?);
    let last = lines.next_back().map(|last| format!(" … {}", shortened(last)));
    Some(first + &last.unwrap_or_default())
}

fn shortened(line: &str) -> String {
    let mut shown: String = line.chars().take(MAX_LINE).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    shown
}

/// Returns a sentence as the rest of another one.
pub(super) fn without_capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns the remedy for a handler that takes longer than its timeout.
pub(super) fn too_slow(timeout: Option<Duration>) -> String {
    let now = timeout.map(|timeout| format!(" (now {})", timeout.as_secs())).unwrap_or_default();
    format!("Make the handler faster, or raise timeoutSeconds{now}")
}

/// Returns the most frequent output of calls as a sentence.
pub(super) fn output_sentence(calls: &[&CallRecord]) -> Option<String> {
    Some(format!("Their output: {:?}.", most_frequent_output(calls)?))
}

/// Returns the remedy for a handler that is no command, by its error; otherwise that for a command.
pub(super) fn handler_remedy(handler: &str, error: Option<&str>) -> &'static str {
    let error = error.unwrap_or_default();
    let has = |text: &str| error.to_ascii_lowercase().contains(text);
    let is_network = ["httpGet ", "tcpSocket ", "grpc "].iter().any(|name| handler.starts_with(name));
    match () {
        () if !is_network && error.is_empty() => {
            "Find out why the command fails by running it in the container"
        }
        () if !is_network => "Fix the error that the output reports",
        () if has("connection refused") => {
            "Let the application listen on this port and on all addresses of the pod, or correct the port of the probe"
        }
        () if has("server gave http response to https client") => {
            "Set the scheme of the probe to HTTP: the port has no TLS"
        }
        () if has("http request to an https server") || has("malformed http response") => {
            "Set the scheme of the probe to HTTPS: the port expects TLS"
        }
        () if has("statuscode: 404") => "Correct the path of the probe: the server does not know it",
        () if has("statuscode: 401") || has("statuscode: 403") => {
            "Let the server answer the path of the probe without a login"
        }
        () if has("statuscode: 400") => {
            "Set the scheme of the probe to HTTPS if the port expects TLS, or the header Host in httpHeaders if the \
             server refuses the address of the pod as a host"
        }
        () if has("statuscode: 421") => {
            "Set the header Host in httpHeaders of the probe: the server refuses the address of the pod as a host"
        }
        () if has("statuscode: 5") => {
            "Look in the log of the application: its server reports an error of its own"
        }
        () if has("unknown service") || has("unimplemented") => {
            "Let the server implement the gRPC health service, or correct the service of the probe"
        }
        () if has("no such host") || has("redirect") => {
            "Let the server answer itself, without a redirect to another host"
        }
        () if has("no route to host") || has("i/o timeout") => {
            "Look for a network policy or firewall between the node and the pod"
        }
        () => "Fix the cause that the error names",
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    fn failed(facts: Fixture) -> (FailedAttempts, String) {
        let period = facts.build();
        let facts = PeriodFacts::new(&period);
        let found = FailedAttempts::new(&facts, &facts.probes[0]).unwrap();
        let remedy = found.remedy(facts.probes[0].series);
        (found, remedy)
    }

    fn exits(facts: Fixture, bytes: usize) -> Fixture {
        facts.calls(5, 20, move |call| {
            call.exit(1);
            call.exec.result.as_mut().unwrap().stdout_bytes = bytes;
            call.exec.output = Some("no backend\n".into());
        })
    }

    #[test]
    fn timeouts_and_exits_are_one_sentence_with_both_remedies() {
        let (both, remedy) = failed(exits(Fixture::new().attempts(12, 10).timeouts(3), 11));
        assert_eq!(
            (both.text.as_str(), remedy.as_str()),
            (
                "of 20 attempts, 3 failed because of the timeout of 5.00s and 5 exited with 1: \"no backend\"",
                "Fix the error that the output reports; against the timeouts, make the handler faster, or raise timeoutSeconds \
                 (now 5)"
            )
        );
    }

    #[test]
    fn an_output_that_is_cut_need_not_name_the_reason() {
        let (_, remedy) = failed(exits(Fixture::new(), 200_000));
        assert!(remedy.starts_with("Run the command in the container"), "{remedy}");
    }

    #[test]
    fn an_output_is_shown_with_its_first_and_its_last_line() {
        let shown = |output| in_short(output);
        assert_eq!(shown("\n \n"), None);
        assert_eq!(shown("\nonly \n").as_deref(), Some("only"));
        assert_eq!(
            shown("Traceback:\n  line 1\nKeyError: 'x'\n").as_deref(),
            Some("Traceback: … KeyError: 'x'")
        );
        assert_eq!(shown(&"ä".repeat(200)).unwrap().chars().count(), 161);
    }

    #[test]
    fn a_handler_that_is_no_command_has_a_remedy_for_its_error() {
        let remedy = |error| handler_remedy("httpGet http://:8080/healthz", Some(error));
        for (error, part) in [
            ("dial tcp 10.0.0.1:8080: connect: connection refused", "listen"),
            ("HTTP probe failed with statuscode: 404", "path"),
            ("HTTP probe failed with statuscode: 400", "HTTPS"),
            ("http: server gave HTTP response to HTTPS client", "scheme of the probe to HTTP:"),
            ("rpc error: code = NotFound desc = unknown service", "service"),
        ] {
            assert!(remedy(error).contains(part), "{error}: {}", remedy(error));
        }
        assert!(handler_remedy("cat /tmp/ok", None).contains("command"));
    }
}
