//! Lints about programs that cannot be started.

use super::commands::is_shell;
use super::errors::{exit_code, kinds};
use super::facts::{PeriodFacts, ProbeFacts, ids, part};
use super::failed_attempts::output_sentence;
use super::finding::{LintFinding, Severity, as_sentence};
use super::names::{MISSING_PROGRAM, NOT_EXECUTABLE};
use crate::execsync::remedy::ExecNames;
use crate::execsync::{CallRecord, ExecFailure, FailedProgram};
use crate::terminal::format;

/// Returns the findings about programs.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let findings = |probe| [MISSING_PROGRAM, NOT_EXECUTABLE].map(|cause| not_started(probe, cause));
    facts.probes.iter().flat_map(findings).flatten().collect()
}

/// The program of a command, or a program that it calls, does not exist or cannot be executed.
/// `cause` is the name of the cause and of the lint.
fn not_started(probe: &ProbeFacts<'_>, cause: &'static str) -> Option<LintFinding> {
    let total = &probe.attempts.total;
    let affected = probe.attempts.with_cause(cause);
    // A command of a person with a wrong name is no finding.
    if affected == 0 || !probe.is_probe() {
        return None;
    }
    let calls = probe.attempts.calls_with_cause(cause);
    let (failure, failed) = failure(&calls).unwrap_or(match cause {
        MISSING_PROGRAM => (ExecFailure::NoProgram, FailedProgram::Unknown),
        _ => (ExecFailure::Unknown, FailedProgram::Unknown),
    });
    let output = output_sentence(&calls);
    let names = ExecNames {
        container: "the container",
        command: "the command",
        program: probe.series.command.first().map(String::as_str),
        is_probe: true,
        has_output: output.is_some(),
    };
    let is_certain = failure != ExecFailure::Unknown || total.successes == 0;
    Some(LintFinding {
        lint: cause,
        severity: if is_certain { Severity::Error } else { Severity::Warning },
        subject: probe.attempts.subject.clone(),
        sentence: format!(
            "{}: {} failed.",
            sentence(probe, &calls, failure, failed),
            part(affected, total.attempts(), "attempts")
        ),
        evidence: [kinds(&calls), output].into_iter().flatten().collect(),
        remedy: as_sentence(&failure.remedy(failed, names)),
        affected,
        calls: ids(&calls),
    })
}

/// Returns the last known reason of calls, with the program that could not be executed; that of the
/// last call if none is known.
fn failure(calls: &[&CallRecord]) -> Option<(ExecFailure, FailedProgram)> {
    let failures = || calls.iter().rev().filter_map(|record| ExecFailure::with_program(&record.call));
    failures().find(|(failure, _)| *failure != ExecFailure::Unknown).or_else(|| failures().next())
}

/// Describes a reason in a sentence, without its end.
fn sentence(
    probe: &ProbeFacts<'_>,
    calls: &[&CallRecord],
    failure: ExecFailure,
    failed: FailedProgram,
) -> String {
    let program = format::command(probe.series.command.get(..1).unwrap_or_default());
    let subject = match failed {
        FailedProgram::Own => format!("the program {program}"),
        FailedProgram::Called => "a program that the command calls".to_owned(),
        FailedProgram::Unknown => "the command, or of a program that it calls,".to_owned(),
    };
    match (failure, failed) {
        (ExecFailure::NoProgram, FailedProgram::Own) => {
            format!(
                "The container has no {} {program}",
                if is_shell_command(probe) { "shell" } else { "program" }
            )
        }
        (ExecFailure::NoProgram, FailedProgram::Called) => {
            "A program that the command calls does not exist".to_owned()
        }
        (ExecFailure::NoProgram, FailedProgram::Unknown) => {
            "The program of the command, or one that it calls, does not exist".to_owned()
        }
        (ExecFailure::NoProgramOrInterpreter, _) => {
            "A program that the command calls, or its interpreter, does not exist".to_owned()
        }
        (ExecFailure::NoInterpreter, _) => {
            format!("The interpreter or dynamic loader of {subject} does not exist")
        }
        (ExecFailure::NoLibrary, _) => format!("A shared library of {subject} does not exist"),
        (ExecFailure::UnknownFormat, _) => format!("The format of {subject} is unknown"),
        (ExecFailure::NoPermission, _) => format!("The user of the container may not execute {subject}"),
        (ExecFailure::Unknown, _) => {
            let code = calls.iter().rev().find_map(|call| exit_code(call));
            let code = code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            format!("A program could not be executed{code}")
        }
    }
}

/// Returns whether the command is one of a shell.
fn is_shell_command(probe: &ProbeFacts<'_>) -> bool {
    probe.series.command.first().is_some_and(|program| is_shell(program))
}

/// Returns whether most of the failed attempts of a probe failed because a program is missing or
/// cannot be executed.
pub(super) fn cannot_start(probe: &ProbeFacts<'_>) -> bool {
    let attempts = &probe.attempts;
    let affected = [MISSING_PROGRAM, NOT_EXECUTABLE].map(|cause| attempts.with_cause(cause));
    affected[0].max(affected[1]) > attempts.total.failed() / 2
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::cri::Code;

    const NO_PROGRAM: &str =
        "failed to exec in container: exec: \"check\": executable file not found in $PATH: unknown";
    const NO_SHELL: &str = "exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown";

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    fn errors(facts: Fixture, count: u32, message: &'static str) -> Fixture {
        facts.calls(count, 100, move |call| call.fail(Code(2), message))
    }

    /// Returns two attempts of a command that exited with a code. Without an output, none is kept.
    fn exits(command: &[&str], code: i32, output: Option<&'static str>) -> Fixture {
        Fixture::new().command(command).calls(2, 10, move |call| {
            call.exit(code);
            call.exec.output = output.map(Into::into);
        })
    }

    #[test]
    fn a_missing_program_or_shell_is_named() {
        let shell = &["/bin/sh", "-c", "check"];
        let rejected = |message| errors(Fixture::new().command(shell), 2, message);
        let not_found = || exits(shell, 127, Some("/bin/sh: 1: check: not found"));
        for (facts, expected) in [
            (rejected(NO_SHELL), "The container has no shell /bin/sh"),
            (errors(Fixture::new(), 2, NO_PROGRAM), "The container has no program check"),
            (not_found(), "A program that the command calls does not exist"),
        ] {
            let found = found(facts, "missing-program").unwrap();
            let expected = format!("{expected}: 2 of 2 attempts (100 %) failed.");
            assert_eq!((found.severity, found.sentence), (Severity::Error, expected));
        }
        assert_eq!(
            found(not_found(), "missing-program").unwrap().remedy,
            "Correct the command, or add the program that it calls to the image of the container."
        );
        assert_eq!(found(exits(shell, 1, None), "missing-program"), None);
        assert_eq!(found(rejected("container not running"), "missing-program"), None);
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_named() {
        let late = "exec /bin/check: no such file or directory";
        let late_shell = "exec /bin/sh: exec format error";
        for (facts, expected) in [
            (
                errors(Fixture::new(), 2, "exec: \"check\": permission denied"),
                "The user of the container may not execute the program check",
            ),
            (
                exits(&["check"], 1, Some(late)),
                "The interpreter or dynamic loader of the program check does not exist",
            ),
            (
                exits(&["/bin/sh", "-c", "check"], 255, Some(late_shell)),
                "The format of the program /bin/sh is unknown",
            ),
            (
                exits(&["/probe.sh"], 126, Some("/probe.sh: line 2: /check: Permission denied")),
                "The user of the container may not execute a program that the command calls",
            ),
            (
                exits(
                    &["timeout", "5", "/check"],
                    126,
                    Some("timeout: can't execute '/check': Permission denied"),
                ),
                "The user of the container may not execute a program that the command calls",
            ),
            (
                exits(
                    &["/check"],
                    127,
                    Some("/check: error while loading shared libraries: libz.so.1: cannot open"),
                ),
                "A shared library of the program /check does not exist",
            ),
        ] {
            let found = found(facts, "not-executable").unwrap();
            let expected = format!("{expected}: 2 of 2 attempts (100 %) failed.");
            assert_eq!((found.severity, found.sentence), (Severity::Error, expected));
        }
        assert!(found(exits(&["check"], 1, Some(late)), "not-executable").unwrap().remedy.contains("(CRLF)"));
    }

    #[test]
    fn an_exit_code_of_a_shell_without_a_known_output_has_no_reason() {
        for code in [126, 127] {
            let silent = || exits(&["sh", "-c", "check"], code, None);
            assert_eq!(found(silent(), "missing-program"), None);
            let without_success = found(silent(), "not-executable").unwrap();
            let expected = format!(
                "A program could not be executed (exit code {code}): 2 of 2 attempts (100 %) failed."
            );
            assert_eq!((without_success.severity, without_success.sentence), (Severity::Error, expected));
            assert_eq!(
                without_success.remedy,
                "Run the command in the container to see why a program could not be executed."
            );
            let succeeds = found(silent().attempts(8, 10), "not-executable").unwrap();
            assert_eq!(succeeds.severity, Severity::Warning, "the program exists");
        }
        let busy = exits(&["sh", "-c", "/check"], 126, Some("sh: 1: /check: Text file busy"));
        let busy = found(busy, "not-executable").unwrap();
        assert!(busy.sentence.starts_with("A program could not be executed (exit code 126)"), "{busy:?}");
        assert!(busy.remedy.starts_with("Fix the cause that the output names"), "{busy:?}");
    }
}
