//! Hints about probes that are valid, and do something else than their author expects.

use serde_json::Value;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::document::CONTAINER_FIELDS;
use crate::manifest::probe::{Probe, ProbeType};
use crate::manifest::reader::probe::probe;
use crate::manifest::source::Source;

/// Time in seconds after the start of a container in which a kill is probably a mistake.
const EARLY: u32 = 30;

/// Shells, whose option `-c` takes one text.
const SHELLS: [&str; 6] = ["ash", "bash", "dash", "ksh", "sh", "zsh"];

const WHOLE_LINE: &str = "the whole string, with its blanks, is the name of the program; without such a program each attempt \
                          errors, and an error never kills; write one string for each argument";

const SEVERAL_SCRIPTS: &str =
    "the shell executes only the string after -c, and takes the next ones as its parameters $0, $1, …";

const DEFAULT_TIMEOUT: &str = "timeoutSeconds is not set, so the command may take 1s";

const LONG_TIMEOUT: &str =
    "the timeout is longer than periodSeconds, so an attempt that takes that long delays the next ones";

const SAME_AS_READINESS: &str = "the handler is that of the readinessProbe, and fails no later: a container that is unready, \
                                 for example because of load, is killed as well";

/// Returns the hints about the probes of a pod or a pod template. Probes with errors have none.
pub(super) fn hints(template: &Cursor<'_>) -> Vec<Violation> {
    let containers = CONTAINER_FIELDS.into_iter().flat_map(|field| template.items(&["spec", field]));
    containers.flat_map(|container| hints_of_container(&container)).collect()
}

fn hints_of_container(container: &Cursor<'_>) -> Vec<Violation> {
    let read = |probe_type: ProbeType| {
        let node = container.field(probe_type.field())?;
        let read = probe(probe_type, &node, Source::Manifest, &mut Vec::new())?;
        Some((node, read))
    };
    let [startup, readiness, liveness] = ProbeType::ALL.map(read);
    let mut hints = Vec::new();
    for (node, probe) in [&startup, &readiness, &liveness].into_iter().flatten() {
        hints.extend(command_hint(node));
        if node.field("exec").is_some() && node.field("timeoutSeconds").is_none() {
            hints.extend(node.field("exec").map(|exec| exec.repeated_remark(DEFAULT_TIMEOUT)));
        }
        if probe.timeout > probe.period {
            hints.extend(node.field("timeoutSeconds").map(|at| at.repeated_remark(LONG_TIMEOUT)));
        }
    }
    if let Some((node, liveness)) = &liveness {
        let kill = liveness.initial_delay.saturating_add(time_to_fail(liveness));
        if startup.is_none() && kill < EARLY {
            hints.push(node.remark(&format!(
                "without a startupProbe, this kills a container that does not respond within {kill}s of its start"
            )));
        }
        if let Some((_, readiness)) = &readiness
            && readiness.handler == liveness.handler
            && time_to_fail(liveness) <= time_to_fail(readiness)
        {
            hints.push(node.repeated_remark(SAME_AS_READINESS));
        }
    }
    hints
}

/// Returns the time in seconds that a probe fails before it has failed.
fn time_to_fail(probe: &Probe) -> u32 {
    probe.failure_threshold.saturating_mul(probe.period)
}

/// Returns the hint about a command that is one string with several words, or a script of several
/// strings.
fn command_hint(probe: &Cursor<'_>) -> Option<Violation> {
    let command = probe.at(&["exec", "command"])?;
    let arguments: Vec<&str> = command.value().as_array()?.iter().filter_map(Value::as_str).collect();
    match arguments.as_slice() {
        [line] if line.trim().contains(char::is_whitespace) => {
            let [item] = &command.items(&[])[..] else { return None };
            Some(item.repeated_remark(WHOLE_LINE))
        }
        [shell, option, script, ..] if arguments.len() > 3 && is_script(shell, option, script) => {
            Some(command.repeated_remark(SEVERAL_SCRIPTS))
        }
        _ => None,
    }
}

/// Returns whether a command is a script of a shell that does not use its parameters.
fn is_script(shell: &str, option: &str, script: &str) -> bool {
    let name = shell.rsplit('/').next().unwrap_or(shell);
    let is_option = option.strip_prefix('-').is_some_and(|letters| letters.ends_with('c'));
    let takes_parameters = script.match_indices('$').any(|(place, _)| {
        let rest = script[place + 1..].trim_start_matches('{');
        rest.starts_with(|next: char| next.is_ascii_digit() || "@*#".contains(next))
    });
    SHELLS.contains(&name) && is_option && !takes_parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fields of a container about which there are hints.
    fn hinted(container: &str) -> Vec<(String, String)> {
        let text = format!("{{spec: {{containers: [{{name: a, {container}}}]}}}}");
        let template: Value = serde_saphyr::from_str(&text).unwrap();
        let hints = hints(&Cursor::root("", &template));
        let field = |hint: &Violation| hint.path().trim_start_matches("spec.containers[0].").to_owned();
        hints.iter().map(|hint| (field(hint), hint.text())).collect()
    }

    #[test]
    fn probes_that_do_something_else_than_expected_have_hints() {
        let slow = "failureThreshold: 9, timeoutSeconds: 1";
        for (container, field, text) in [
            (
                format!("livenessProbe: {{exec: {{command: [curl -f localhost]}}, {slow}}}"),
                "livenessProbe.exec.command[0]",
                WHOLE_LINE,
            ),
            (
                format!("readinessProbe: {{exec: {{command: [/bin/sh, -ec, test, -f, /x]}}, {slow}}}"),
                "readinessProbe.exec.command",
                SEVERAL_SCRIPTS,
            ),
            ("readinessProbe: {exec: {command: [a]}}".to_owned(), "readinessProbe.exec", DEFAULT_TIMEOUT),
            (
                "readinessProbe: {tcpSocket: {port: 1}, timeoutSeconds: 11}".to_owned(),
                "readinessProbe.timeoutSeconds",
                LONG_TIMEOUT,
            ),
            (
                "livenessProbe: {tcpSocket: {port: 1}, failureThreshold: 2, initialDelaySeconds: 5}"
                    .to_owned(),
                "livenessProbe",
                "without a startupProbe, this kills a container that does not respond within 25s of its start",
            ),
            (
                "livenessProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}}".to_owned(),
                "livenessProbe",
                SAME_AS_READINESS,
            ),
        ] {
            let [(found, hint)] = &hinted(&container)[..] else {
                panic!("{container}: {:?}", hinted(&container))
            };
            assert_eq!(found, field, "{container}");
            assert!(hint.ends_with(text), "{container}: {hint}");
        }
    }

    #[test]
    fn common_probes_have_no_hints() {
        for container in [
            "livenessProbe: {exec: {command: [sh, -c, 'test -f $1', sh, /x]}, timeoutSeconds: 5}",
            "livenessProbe: {exec: {command: [sh, -c, test -f /x]}, timeoutSeconds: 5}",
            "livenessProbe: {httpGet: {port: 80}}, readinessProbe: {httpGet: {port: 81}}",
            "livenessProbe: {httpGet: {port: 80}, failureThreshold: 6}, readinessProbe: {httpGet: {port: 80}}",
            "startupProbe: {httpGet: {port: 80}}, livenessProbe: {httpGet: {port: 80}, periodSeconds: 1}",
            "livenessProbe: {httpGet: {}}",
        ] {
            assert_eq!(hinted(container), [], "{container}");
        }
    }
}
