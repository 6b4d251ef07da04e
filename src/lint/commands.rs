//! Lints about the commands of probes: two probes with one command, and needless shells.

use super::facts::{PeriodFacts, ProbeFacts};
use super::finding::{LintFinding, Severity};
use super::names::{SAME_COMMAND, SHELL_FOR_ONE_PROGRAM};
use crate::history::timeline::ProbeSeries;
use crate::terminal::format::{self, counted};

/// Names of shells.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// Commands that shells execute themselves, and keywords.
const BUILTINS: [&str; 37] = [
    ".", ":", "[", "[[", "alias", "break", "case", "cd", "command", "continue", "echo", "eval", "exec",
    "exit", "export", "false", "for", "if", "kill", "printf", "pwd", "read", "return", "set", "shift",
    "source", "test", "time", "times", "trap", "true", "type", "ulimit", "umask", "unset", "until", "while",
];

/// Characters of the syntax of a shell.
const SYNTAX: &str = "|&;<>()$`\\\"'*?[]#~{}!\n\r\t";

/// Returns the findings about commands.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let shells = facts.probes.iter().filter_map(shell_for_one_program);
    shells.chain(facts.probes.iter().filter_map(|probe| same_command(facts, probe))).collect()
}

/// Returns whether a program is a shell, by its name.
pub(super) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program.rsplit('/').next().unwrap_or(program))
}

/// The liveness probe and the readiness probe of a container have the same handler. A startup probe
/// does not count: it may have the handler of the liveness probe, and never runs together with it.
fn same_command(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let series = probe.series;
    let other = match series.probe.as_str() {
        "liveness" => facts
            .probes
            .iter()
            .find(|other| other.series.probe == "readiness" && has_same(series, other.series)),
        label => {
            let types: Vec<&str> = label.split(" or ").collect();
            (types.contains(&"liveness") && types.contains(&"readiness")).then_some(probe)
        }
    }?;
    let attempts = |probe: &ProbeFacts<'_>| probe.attempts.total.attempts();
    let (affected, evidence) = if std::ptr::eq(other, probe) {
        let text =
            format!("Both have the same timeout too, and made {}.", counted(attempts(probe), "attempt"));
        (attempts(probe), text)
    } else {
        let [liveness, readiness] = [attempts(probe), attempts(other)];
        let text =
            format!("The liveness probe made {liveness} attempts, and the readiness probe {readiness}.");
        (liveness + readiness, text)
    };
    Some(LintFinding {
        lint: SAME_COMMAND,
        severity: Severity::Info,
        subject: probe.attempts.subject.clone(),
        sentence: format!(
            "The liveness probe and the readiness probe have the same handler, {}: the container is restarted for \
             what should only stop its traffic.",
            series.handler
        ),
        evidence: vec![evidence],
        remedy: "Let the liveness probe check only whether a restart helps, or give it a higher failureThreshold; \
                 remove it if it checks nothing else."
            .to_owned(),
        affected,
        calls: Vec::new(),
    })
}

fn has_same(one: &ProbeSeries, other: &ProbeSeries) -> bool {
    let key = |series: &ProbeSeries| {
        let ProbeSeries { namespace, pod, container, prober, handler, .. } = series.clone();
        (namespace, pod, container, prober, handler)
    };
    key(one) == key(other)
}

/// An exec probe starts a shell that only starts one program.
fn shell_for_one_program(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let argv = program_in_shell(&probe.series.command).filter(|_| probe.is_probe())?;
    let affected = probe.attempts.total.attempts();
    let command: Vec<String> = argv.iter().map(|argument| (*argument).to_owned()).collect();
    Some(LintFinding {
        lint: SHELL_FOR_ONE_PROGRAM,
        severity: Severity::Info,
        subject: probe.attempts.subject.clone(),
        sentence: format!("Each attempt starts a shell to run one program: {}.", probe.series.handler),
        evidence: vec![format!("{} did so.", counted(affected, "attempt"))],
        remedy: format!("Run the program directly: `command: {}`.", yaml_list(&command)),
        affected,
        calls: Vec::new(),
    })
}

/// Returns the arguments of the only command in `sh -c COMMAND`, if it has no syntax of a shell and
/// is no builtin.
fn program_in_shell(command: &[String]) -> Option<Vec<&str>> {
    let [shell, option, script] = command else { return None };
    let argv: Vec<&str> = script.split(' ').filter(|argument| !argument.is_empty()).collect();
    let program = argv.first()?;
    let is_program = !BUILTINS.contains(program) && !program.contains('=');
    (is_shell(shell) && option == "-c" && is_program && !script.contains(|c| SYNTAX.contains(c)))
        .then_some(argv)
}

/// Returns a list in the flow style of YAML.
fn yaml_list(items: &[String]) -> String {
    serde_json::to_string(items)
        .map_or_else(|_| format::command(items), |list| list.replace("\",\"", "\", \""))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;

    #[test]
    fn a_liveness_probe_with_the_handler_of_the_readiness_probe_is_found() {
        let found = |facts| only(super::lint, facts, "same-command");
        let two = |first, second, command: &str| {
            let facts = Fixture::new().probe(first, |_| {}).attempts(20, 10).probe(second, |probe| {
                probe.command = vec![command.to_owned()];
                probe.handler = command.to_owned();
                probe.timeout = None;
            });
            facts.attempts(10, 10)
        };
        assert_eq!(found(two("liveness", "readiness", "ready")), None);
        assert_eq!(found(two("startup", "liveness", "check")), None, "startup probes may have the same");
        assert_eq!(found(Fixture::new().probe("startup or liveness", |_| {}).attempts(1, 10)), None);
        let separate = found(two("liveness", "readiness", "check")).unwrap();
        assert_eq!(separate.evidence, ["The liveness probe made 20 attempts, and the readiness probe 10."]);
        assert_eq!((separate.affected, separate.severity), (30, Severity::Info));
        let equal = Fixture::new().probe("liveness or readiness", |_| {}).attempts(20, 10);
        assert_eq!(found(equal).unwrap().evidence, ["Both have the same timeout too, and made 20 attempts."]);
    }

    #[test]
    fn a_shell_that_only_runs_one_program_is_found() {
        let found = |command: &[&str]| {
            only(super::lint, Fixture::new().command(command).attempts(2, 10), "shell-for-one-program")
        };
        let program = found(&["/bin/sh", "-c", "pg_isready  -U postgres"]).unwrap();
        assert_eq!(
            program.remedy,
            r#"Run the program directly: `command: ["pg_isready", "-U", "postgres"]`."#
        );
        assert_eq!(
            program.sentence,
            "Each attempt starts a shell to run one program: /bin/sh -c 'pg_isready  -U postgres'."
        );
        for script in
            ["test -f /tmp/ok", "a && b", "a $HOME", "A=1 a", "exec a", "cat *", "", "a 'b'", "a\nb"]
        {
            assert_eq!(found(&["sh", "-c", script]), None, "{script}");
        }
        assert_eq!(found(&["pg_isready"]), None);
        assert_eq!(found(&["python", "-c", "print"]), None);
        assert_eq!(found(&["sh", "-ec", "pg_isready"]), None);
        let of_client = Fixture::new().probe("unknown", |probe| {
            probe.command = ["sh", "-c", "ls"].map(str::to_owned).into();
        });
        assert_eq!(only(super::lint, of_client.attempts(2, 10), "shell-for-one-program"), None);
    }
}
