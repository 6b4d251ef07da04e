//! Lints about programs that cannot be started.

use super::commands::is_shell;
use super::errors::{exit_code, kinds};
use super::facts::{PeriodFacts, ProbeFacts, ids, part};
use super::failed_attempts::output_sentence;
use super::finding::{LintFinding, Severity};
use crate::execsync::{ExecFailure, cause_name};
use crate::terminal::format;

/// Returns the findings about programs.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let findings = |probe| [missing_program(probe), not_executable(probe)];
    facts.probes.iter().flat_map(findings).flatten().collect()
}

/// The program of a command, or a program that a shell calls, does not exist.
fn missing_program(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let program = program(probe);
    let is_shell = is_shell_command(probe);
    let (sentence, remedy) = match failure(probe, cause_name::MISSING_PROGRAM) {
        Some(ExecFailure::NoProgramOrInterpreter) => (
            "A program that the command calls, or its interpreter, does not exist".to_owned(),
            "Correct the command, or add the program that it calls to the image; if it is there as a script, add the \
             interpreter that its first line names (`#!`)."
                .to_owned(),
        ),
        _ if has_exited(probe, cause_name::MISSING_PROGRAM) => (
            "A program that the command calls does not exist".to_owned(),
            "Correct the command, or add the program that it calls to the image.".to_owned(),
        ),
        _ => (
            format!("The container has no {} {program}", if is_shell { "shell" } else { "program" }),
            format!(
                "Correct the command{}, add {program} to the image, or use an httpGet, tcpSocket or grpc probe.",
                search_path(probe)
            ),
        ),
    };
    not_started(probe, cause_name::MISSING_PROGRAM, &sentence, remedy)
}

/// Returns where the runtime looks for the program of a command, unless its path is absolute.
fn search_path(probe: &ProbeFacts<'_>) -> &'static str {
    match probe.series.command.first() {
        Some(program) if program.starts_with('/') => "",
        Some(program) if program.contains('/') => " (its path begins at workingDir)",
        _ => " (it is looked for in $PATH)",
    }
}

/// The program of a command, or a program that a shell calls, cannot be executed.
fn not_executable(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let subject = if has_exited(probe, cause_name::NOT_EXECUTABLE) && is_shell_command(probe) {
        "a program that the command calls".to_owned()
    } else {
        format!("the program {}", program(probe))
    };
    let (sentence, remedy) = match failure(probe, cause_name::NOT_EXECUTABLE) {
        Some(ExecFailure::NoInterpreter) => (
            format!("The interpreter or dynamic loader of {subject} does not exist"),
            "Add the interpreter that the first line of the script names (`#!`), or the dynamic loader of the program, \
             to the image. With Windows line ends (CRLF), the name of the interpreter ends with a carriage return.",
        ),
        Some(ExecFailure::NoLibrary) => (
            format!("A shared library of {subject} does not exist"),
            "Add the library that the output names to the image.",
        ),
        Some(ExecFailure::UnknownFormat) => (
            format!("The format of {subject} is unknown"),
            "Replace the program: it is built for another processor, or is a script without `#!`.",
        ),
        _ => (
            format!("The user of the container may not execute {subject}"),
            "Make the program executable for the user of the container, or correct the command, if it names a \
             directory.",
        ),
    };
    not_started(probe, cause_name::NOT_EXECUTABLE, &sentence, remedy.to_owned())
}

/// Returns whether the command is one of a shell.
fn is_shell_command(probe: &ProbeFacts<'_>) -> bool {
    probe.series.command.first().is_some_and(|program| is_shell(program))
}

/// Returns the reason of the last call with a cause that is kept.
fn failure(probe: &ProbeFacts<'_>, cause: &str) -> Option<ExecFailure> {
    probe.attempts.calls_with_cause(cause).into_iter().rev().find_map(ExecFailure::from_record)
}

/// Returns a finding about attempts with a cause, which is the name of the lint too.
fn not_started(
    probe: &ProbeFacts<'_>,
    cause: &'static str,
    sentence: &str,
    remedy: String,
) -> Option<LintFinding> {
    let affected = probe.attempts.with_cause(cause);
    let calls = probe.attempts.calls_with_cause(cause);
    // A command of a person with a wrong name is no finding.
    (affected > 0 && probe.is_probe()).then(|| LintFinding {
        lint: cause,
        severity: Severity::Error,
        subject: probe.attempts.subject.clone(),
        sentence: format!(
            "{sentence}: {} failed.",
            part(affected, probe.attempts.total.attempts(), "attempts")
        ),
        evidence: [kinds(&calls), output_sentence(&calls)].into_iter().flatten().collect(),
        remedy,
        affected,
        calls: ids(&calls),
    })
}

/// Returns whether most calls with a cause that are kept have an exit code: a shell reported the
/// cause.
fn has_exited(probe: &ProbeFacts<'_>, cause: &str) -> bool {
    let calls = probe.attempts.calls_with_cause(cause);
    let exited = calls.iter().filter(|call| exit_code(call).is_some()).count();
    2 * exited > calls.len()
}

/// Returns whether most of the failed attempts of a probe failed because a program is missing or
/// cannot be executed.
pub(super) fn cannot_start(probe: &ProbeFacts<'_>) -> bool {
    let attempts = &probe.attempts;
    let affected =
        [cause_name::MISSING_PROGRAM, cause_name::NOT_EXECUTABLE].map(|cause| attempts.with_cause(cause));
    affected[0].max(affected[1]) > attempts.total.failed() / 2
}

/// Returns the program of a command, quoted.
fn program(probe: &ProbeFacts<'_>) -> String {
    format::command(probe.series.command.get(..1).unwrap_or_default())
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

    #[test]
    fn a_missing_program_or_shell_is_named() {
        let shell = || Fixture::new().command(&["/bin/sh", "-c", "check"]);
        let exits = |code| shell().calls(2, 10, move |call| call.exit(code));
        for (facts, expected) in [
            (
                errors(shell(), 2, NO_SHELL),
                "The container has no shell /bin/sh: 2 of 2 attempts (100 %) failed.",
            ),
            (
                errors(Fixture::new(), 2, NO_PROGRAM),
                "The container has no program check: 2 of 2 attempts (100 %) failed.",
            ),
            (exits(127), "A program that the command calls does not exist: 2 of 2 attempts (100 %) failed."),
        ] {
            let found = found(facts, "missing-program").unwrap();
            assert_eq!((found.severity, found.sentence.as_str()), (Severity::Error, expected));
        }
        assert_eq!(found(exits(1), "missing-program"), None);
        assert_eq!(found(errors(shell(), 2, "container not running"), "missing-program"), None);
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_named() {
        let exits = |code| {
            let shell = Fixture::new().command(&["sh", "-c", "check"]);
            shell.calls(2, 10, move |call| call.exit(code))
        };
        let writes = |output: &'static str| {
            Fixture::new().calls(1, 10, move |call| {
                call.exit(1);
                call.exec.output = Some(output.into());
            })
        };
        let no_interpreter = found(writes("exec /bin/check: no such file or directory"), "not-executable");
        let no_interpreter = no_interpreter.unwrap();
        assert!(
            no_interpreter.sentence.starts_with("The interpreter or dynamic loader of the program check")
        );
        assert!(no_interpreter.remedy.contains("the first line of the script names"), "{no_interpreter:?}");
        for (facts, expected) in [
            (
                errors(Fixture::new(), 1, "exec: \"check\": permission denied"),
                "The user of the container may not execute the program check: 1 of 1 attempts (100 %) failed.",
            ),
            (
                exits(126),
                "The user of the container may not execute a program that the command calls: 2 of 2 attempts (100 %) failed.",
            ),
        ] {
            assert_eq!(found(facts, "not-executable").unwrap().sentence, expected);
        }
        assert_eq!(found(exits(127), "not-executable"), None);
    }
}
