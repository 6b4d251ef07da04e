//! Tips of errors about the command line, for users of kubectl.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use strsim::osa_distance;

/// Maximum number of letters that are wrong, missing, superfluous or swapped in a similar word.
const MAX_DISTANCE: usize = 1;

/// Commands of kubectl, podman and docker that start or end pods.
const OF_OTHERS: [&str; 8] = ["apply", "create", "deploy", "down", "kube", "start", "stop", "up"];

/// Beginnings of formats that select parts of the output.
const SELECTING: [&str; 4] = ["jsonpath", "go-template", "custom-columns", "template"];

/// Returns an error of a command line whose tip helps, or without a tip. Some of clap's tips for
/// subcommands are similar in part only: `confirm`, which confirms an installation, for `config`.
pub(super) fn with_tip(mut error: Error, line: &[OsString]) -> Error {
    let is_play = line.get(1).is_some_and(|first| *first == "play");
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            error.remove(ContextKind::Suggested);
            let word = written(&error, ContextKind::InvalidSubcommand).unwrap_or_default().to_owned();
            if let Some(ContextValue::Strings(mut similar)) = error.remove(ContextKind::SuggestedSubcommand) {
                similar.retain(|known| osa_distance(&word, known) <= MAX_DISTANCE);
                if !similar.is_empty() {
                    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(similar));
                }
            }
            // A subcommand of a subcommand, such as `fault create`, runs no pods.
            let is_first = line.get(1).is_some_and(|first| *first == *word);
            match word.as_str() {
                word if is_first && OF_OTHERS.contains(&word) => {
                    Some("pods are run with `probeshim play pod.yaml`, until Ctrl-C")
                }
                "stats" if is_first => {
                    error.remove(ContextKind::SuggestedSubcommand);
                    Some("`probeshim top` shows probes, and `crictl stats` CPU and memory")
                }
                _ => None,
            }
        }
        ErrorKind::InvalidValue => {
            let value = written(&error, ContextKind::InvalidValue).unwrap_or_default();
            let is_runtime =
                written(&error, ContextKind::InvalidArg).is_some_and(|arg| arg.starts_with("--runtime "));
            if SELECTING.iter().any(|format| value.starts_with(format)) {
                Some("`-o json | jq .` shows the fields, of which jq selects some")
            } else if is_runtime && is_play {
                Some("without --runtime, the pods run on containerd, or on the socket of --upstream")
            } else {
                None
            }
        }
        // clap proposes `-- -c` for a COMMAND without its dashes, which makes -c the COMMAND.
        ErrorKind::UnknownArgument => {
            error.remove(ContextKind::Suggested);
            (is_play && is_in_command(line, written(&error, ContextKind::InvalidArg)))
                .then_some("a COMMAND follows --, as in `probeshim play pod.yaml -- go test`")
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedValue);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// Returns whether an unknown flag of `play` is probably one of a COMMAND: it follows the name of a
/// manifest and another word.
fn is_in_command(line: &[OsString], flag: Option<&str>) -> bool {
    let Some(place) = line.iter().position(|word| Some(word.to_string_lossy().as_ref()) == flag) else {
        return false;
    };
    let before = &line[place.saturating_sub(2)..place];
    place > 3 && before.iter().all(|word| !word.to_string_lossy().starts_with('-'))
}

fn written(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(written) => Some(written),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::Cli;

    fn error_of(arguments: &[&str]) -> String {
        let line: Vec<OsString> = ["probeshim"].iter().chain(arguments).map(OsString::from).collect();
        Cli::parse_line(&line).unwrap_err().to_string()
    }

    #[test]
    fn a_tip_names_what_a_user_of_kubectl_looks_for() {
        for (arguments, tip) in [
            (&["apply", "-f", "pod.yaml"][..], "tip: pods are run with `probeshim play pod.yaml`"),
            (&["up"], "tip: pods are run with `probeshim play pod.yaml`"),
            (&["play", "pod.yaml", "go", "test", "-v"], "tip: a COMMAND follows --"),
            (&["play", "--tiemout", "1s"], "tip: a similar argument exists: '--timeout'"),
            (&["stats"], "tip: `probeshim top` shows probes, and `crictl stats` CPU and memory"),
            (&["explian"], "tip: a similar subcommand exists: 'explain'"),
            (&["fault", "ad"], "tip: a similar subcommand exists: 'add'"),
            (
                &["play", "--runtime", "docker", "pod.yaml"],
                "tip: without --runtime, the pods run on containerd",
            ),
            (&["pods", "-o", "jsonpath={.items}"], "tip: `-o json | jq .` shows the fields"),
        ] {
            let error = error_of(arguments);
            assert!(error.contains(tip) && error.matches("tip:").count() == 1, "{arguments:?}: {error}");
        }
    }

    #[test]
    fn no_tip_is_given_for_a_word_that_is_similar_in_part_only() {
        for line in [
            &["delete", "-f", "x"][..],
            &["play", "pod.yaml", "--nope"],
            &["config"],
            &["cp"],
            &["edit"],
            &["fault", "create"],
        ] {
            let error = error_of(line);
            assert!(!error.contains("tip:") && !error.contains("\n\n\n"), "{error}");
        }
    }
}
