//! Lints about errors that the kubelet discards.

use std::collections::BTreeMap;

use super::facts::{MIN_AFFECTED, PeriodFacts, ProbeFacts, has_verdict, ids, part};
use super::failed_attempts::{event_output, handler_remedy, too_slow};
use super::finding::{LintFinding, Severity, as_sentence};
use super::names::{DISCARDED_ERRORS, LARGE_OUTPUT};
use crate::cri::error_cause;
use crate::execsync::{CallRecord, ExecVerdict, cause_name, cause_names, remedy};

/// Maximum number of kinds of errors that are named.
const MAX_KINDS: usize = 3;

/// Returns the findings about errors.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    facts.probes.iter().filter_map(|probe| discarded_errors(facts, probe)).collect()
}

/// Attempts ended with an error, which the kubelet does not count.
fn discarded_errors(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let attempts = &probe.attempts;
    let total = &attempts.total;
    let left_out = [cause_name::OWN_ERROR, cause_name::EXPLAINED_ERROR].map(|name| attempts.with_cause(name));
    let errors = total.errors.saturating_sub(left_out[0].saturating_add(left_out[1]));
    let has_result = [total.successes, total.failures, total.timeouts].into_iter().any(|count| count > 0);
    if !probe.has_kubelet_rules() || errors == 0 || (has_result && errors < MIN_AFFECTED) {
        return None;
    }
    let calls: Vec<&CallRecord> = attempts
        .calls
        .iter()
        .copied()
        .filter(|call| has_verdict(call, ExecVerdict::Error) && !is_left_out(call))
        .collect();
    let (severity, sentence) = if has_result {
        let errors = part(errors, total.attempts(), "attempts");
        (
            Severity::Warning,
            format!(
                "{errors} ended with an error, which the kubelet counts neither as success nor as failure."
            ),
        )
    } else {
        (
            Severity::Error,
            format!(
                "The probe has no result: {} ended with an error, which the kubelet discards{}.",
                part(errors, total.attempts(), "attempts"),
                consequence(&probe.series.probe)
            ),
        )
    };
    let refused = calls.iter().filter(|call| is_output_refused(call)).count();
    if 2 * refused > calls.len() {
        return Some(refused_output(probe, errors, has_result, &calls));
    }
    Some(LintFinding {
        lint: DISCARDED_ERRORS,
        severity,
        subject: attempts.subject.clone(),
        sentence,
        evidence: kinds(&calls).or_else(|| event_error(facts, probe)).into_iter().collect(),
        remedy: known_remedy(facts, probe, &calls).unwrap_or_else(|| {
            "Remove the cause of the errors; `probeshim explain` names it for each call. The kubelet tries \
             three times before it discards an attempt."
                .to_owned()
        }),
        affected: errors,
        calls: if calls.is_empty() { total.failed_calls.clone() } else { ids(&calls) },
    })
}

/// Returns a sentence with the kinds of errors and exit codes, and their numbers.
pub(super) fn kinds(calls: &[&CallRecord]) -> Option<String> {
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for call in calls {
        let kind = match (exit_code(call), call.call.message.as_deref().map(error_cause)) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(cause)) if !cause.is_empty() => format!("{}: {cause}", call.call.ending.label()),
            (None, _) => call.call.ending.label().to_string(),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let mut kinds: Vec<(u32, String)> = kinds.into_iter().map(|(kind, count)| (count, kind)).collect();
    kinds.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let named: Vec<String> =
        kinds.iter().take(MAX_KINDS).map(|(count, kind)| format!("{kind} ({count})")).collect();
    let more = kinds.len().saturating_sub(MAX_KINDS);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("Results of the recorded calls: {}{more}.", named.join("; ")))
}

/// Returns a sentence with the last error of a handler that is no command.
fn event_error(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>) -> Option<String> {
    Some(format!("The last error: {}.", event_output(facts, probe, "errored")?))
}

/// Returns the remedy against errors whose cause is known.
fn known_remedy(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>, calls: &[&CallRecord]) -> Option<String> {
    let is_of_directory = |call: &&&CallRecord| cause_names(call).contains(&cause_name::MISSING_DIRECTORY);
    if 2 * calls.iter().filter(is_of_directory).count() > calls.len() {
        return Some(as_sentence(&remedy::missing_directory("the container")));
    }
    handler_error_remedy(facts, probe)
}

/// Returns the remedy against the last error of a handler that is no command.
fn handler_error_remedy(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>) -> Option<String> {
    let error = event_output(facts, probe, "errored").filter(|_| probe.series.command.is_empty())?;
    let port = error.split_once("parsing \"").and_then(|(_, rest)| rest.split_once("\": invalid syntax"));
    Some(if let Some((port, _)) = port {
        format!(
            "Name a port of the container {port}, or correct the port of the probe: there is no port {port}."
        )
    } else if error.contains("deadline exceeded") || error.contains("imeout") {
        format!("{}.", too_slow(probe.series.timeout))
    } else {
        format!("{}.", handler_remedy(&probe.series.handler, Some(&error)))
    })
}

/// Returns the finding about output that the runtime refused to send.
fn refused_output(
    probe: &ProbeFacts<'_>,
    errors: u32,
    has_result: bool,
    calls: &[&CallRecord],
) -> LintFinding {
    let attempts = &probe.attempts;
    let consequence = if has_result { "" } else { consequence(&probe.series.probe) };
    LintFinding {
        lint: LARGE_OUTPUT,
        severity: Severity::Error,
        subject: attempts.subject.clone(),
        sentence: format!(
            "The command writes more output than the 16 MiB that a message of the runtime may have: {} ended with an \
             error, which the kubelet discards{consequence}.",
            part(errors, attempts.total.attempts(), "attempts")
        ),
        evidence: kinds(calls).into_iter().collect(),
        remedy: "Let the command write less output, for example with `>/dev/null`.".to_owned(),
        affected: errors,
        calls: ids(calls),
    }
}

/// Returns whether the runtime or the client refused a message because of its size.
fn is_output_refused(record: &CallRecord) -> bool {
    record.call.message.as_deref().is_some_and(|message| message.contains("larger than max"))
}

/// Returns the consequence of a probe without results.
fn consequence(probe: &str) -> &'static str {
    match probe {
        "liveness" => ": the container is never restarted because of it",
        "readiness" => ": a container that was not ready stays so",
        "startup" => ": the other probes never start",
        _ => "",
    }
}

/// Returns whether probeshim itself caused the error, or another finding explains it.
fn is_left_out(record: &CallRecord) -> bool {
    cause_name::left_out(record, ExecVerdict::Error).is_some()
}

pub(super) fn exit_code(record: &CallRecord) -> Option<i32> {
    Some(record.call.exec.as_deref()?.result?.exit_code)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CallDraft, Fixture, only};
    use super::*;
    use crate::cri::Code;
    use crate::history::timeline::Prober;
    use crate::relay::{CallMarks, FaultMark};

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    fn errors(facts: Fixture, count: u32, message: &'static str) -> Fixture {
        facts.calls(count, 100, move |call| call.fail(Code(2), message))
    }

    #[test]
    fn errors_that_the_kubelet_discards_are_found_and_a_probe_without_results_is_an_error() {
        let facts = || Fixture::new().attempts(20, 10);
        assert_eq!(found(errors(facts(), 2, "odd"), "discarded-errors"), None, "two may be chance");
        assert_eq!(
            found(facts().calls(9, 10, |call| call.exit(1)), "discarded-errors"),
            None,
            "failures count"
        );
        let of_crictl = Fixture::new().probe("liveness", |probe| probe.prober = Prober::named("crictl"));
        assert_eq!(found(errors(of_crictl, 9, "odd"), "discarded-errors"), None);
        let some = found(errors(facts(), 5, "something: odd"), "discarded-errors").unwrap();
        assert_eq!(
            (some.severity, some.sentence.as_str()),
            (
                Severity::Warning,
                "5 of 25 attempts (20 %) ended with an error, which the kubelet counts neither as success nor as \
                 failure."
            )
        );
        assert_eq!(some.evidence, ["Results of the recorded calls: UNKNOWN: odd (5)."]);
        let all = found(errors(Fixture::new(), 2, "odd"), "discarded-errors").unwrap();
        assert_eq!(
            (all.severity, all.sentence.as_str()),
            (
                Severity::Error,
                "The probe has no result: 2 of 2 attempts (100 %) ended with an error, which the kubelet discards: \
                 the container is never restarted because of it."
            )
        );
    }

    #[test]
    fn errors_with_findings_of_their_own_are_not_counted_again() {
        let frozen = |call: &mut CallDraft| {
            call.fail(Code(2), "cannot exec in a paused container");
        };
        assert_eq!(found(Fixture::new().calls(5, 10, frozen), "discarded-errors"), None);
        let shell = Fixture::new().command(&["sh", "-c", "check"]).calls(8, 10, |call| call.exit(127));
        let both = found(errors(shell, 8, "something: odd"), "discarded-errors").unwrap();
        assert_eq!(both.affected, 8, "exit code 127 is a failure, and no error");
    }

    #[test]
    fn errors_of_faults_and_limits_are_not_those_of_the_runtime() {
        let facts = || Fixture::new().attempts(20, 10);
        let faulty = facts().calls(9, 10, |call| {
            call.fail(Code(2), "odd");
            let mark = FaultMark { name: "rule".into(), action: "abort(UNKNOWN)".into() };
            call.call.marks = Some(Box::new(CallMarks { faults: vec![mark], ..CallMarks::default() }));
        });
        assert_eq!(found(faulty, "discarded-errors"), None);
        let held = facts().calls(50, 2000, |call| {
            call.call.marks =
                Some(Box::new(CallMarks { policies: vec!["limit".into()], ..CallMarks::default() }));
        });
        let found = found(errors(held, 5, "odd"), "discarded-errors").unwrap();
        assert_eq!(found.affected, 5, "calls that a limit held are no errors");
    }
}
