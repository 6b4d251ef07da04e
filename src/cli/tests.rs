//! Tests of invalid values of arguments.

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory as _};

use super::*;

/// A value that is invalid for every type: it is not a name, a number, a supported URI, a selector
/// or a log filter.
const INVALID: &str = "tcp://wrong=a=b";

/// Arguments that clap does not validate: paths, and texts that a running probeshim or a runtime
/// validates.
const UNCHECKED: [&str; 24] = [
    "command",
    "config",
    "container",
    "dir",
    "file",
    "filenames",
    "kubelet_kubeconfig",
    "manifests",
    "metrics_client_ca",
    "metrics_tls_cert",
    "metrics_tls_key",
    "metrics_token_review",
    "name",
    "names",
    "namespace",
    "paths",
    "peer",
    "pod",
    "pod_logs",
    "pods",
    "records",
    "root",
    "rule",
    "state_dir",
];

/// Returns the leaf subcommands, each with its path of names.
fn leaves(command: &Command, prefix: &[String]) -> Vec<(Vec<String>, Command)> {
    let below = |command: &Command| [prefix, &[command.get_name().to_owned()]].concat();
    let subcommands = command.get_subcommands().filter(|command| command.get_name() != "help");
    let found: Vec<_> = subcommands.flat_map(|command| leaves(command, &below(command))).collect();
    if found.is_empty() { vec![(prefix.to_vec(), command.clone())] } else { found }
}

fn error(prefix: &[String], argument: String) -> clap::Error {
    let arguments = [&["probeshim".to_owned()], prefix, &[argument]].concat();
    Cli::try_parse_from(arguments).expect_err("the value is wrong")
}

#[test]
fn an_invalid_flag_value_is_reported_with_the_flag_and_the_allowed_values() {
    let (mut cli, mut checked) = (Cli::command(), 0);
    cli.build();
    for (prefix, command) in leaves(&cli, &[]) {
        let takes_value =
            |arg: &&Arg| arg.get_action().takes_values() && !UNCHECKED.contains(&arg.get_id().as_str());
        for arg in command.get_arguments().filter(takes_value) {
            let argument =
                arg.get_long().map_or_else(|| INVALID.to_owned(), |long| format!("--{long}={INVALID}"));
            let error = error(&prefix, argument);
            let message = error.to_string();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation),
                "{message}"
            );
            assert_eq!(error.exit_code(), 2);
            assert!(
                message.contains(&format!("invalid value '{INVALID}' for '{arg}'")),
                "{prefix:?}: {message}"
            );
            let allowed = ["must be ", "; write ", "such as ", "[possible values: "];
            assert!(allowed.iter().any(|begin| message.contains(begin)), "{prefix:?}: {message}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn error_messages_of_flags_state_the_expected_format() {
    for (line, expected) in [
        (
            "run --listen=unix:/a",
            "'--listen <URI>': is not a unix URI; write it with three slashes, unix:///path, or as a bare path",
        ),
        (
            "run --http=0.0.0.0:9754",
            "'--http <ADDRESS>': must be a loopback address and a port, such as 127.0.0.1:9754, [::1]:9754 or 9754, or off",
        ),
        (
            "run --max-kills=0/1h",
            "'--max-kills <N/DURATION>': must be a count from 1 and a duration from 1s to 24h, such as 5/1h, or off",
        ),
        (
            "run --record-limit=64",
            "'--record-limit <SIZE>': must be a size from 1MiB to 1TiB, such as 64MiB or 1GiB, or off",
        ),
        (
            "run --otlp-endpoint=https://a:1",
            "'--otlp-endpoint <URL>': must be on, or http://HOST:PORT of a collector, such as http://127.0.0.1:4317, or off",
        ),
        ("run --never-kill=pod=", "label.NAME; * matches any text, and ? one character; pod has no pattern"),
        ("run --watch-runtime=no", "'--watch-runtime <on|off>'\n  [possible values: on, off]"),
        ("play a --enforce=kill", "'--enforce <MODE>'\n  [possible values: off, dry-run, restart]"),
        (
            "play a --timeout=0s",
            "'--timeout <DURATION>': must be a duration from 1s to 24h, such as 30s or 1m30s",
        ),
        (
            "runtime --exec-timeout-kills=all",
            "'--exec-timeout-kills <SCOPE>'\n  [possible values: process, group]",
        ),
        ("mode shoot", "'[MODE]'\n  [possible values: off, dry-run, kill, restart]"),
    ] {
        let (prefix, argument) = line.rsplit_once(' ').unwrap();
        let prefix: Vec<String> = prefix.split(' ').map(str::to_owned).collect();
        let message = error(&prefix, argument.to_owned()).to_string();
        assert!(message.contains(expected), "{line}: {message}");
    }
}

#[test]
fn flag_values_of_enforcement_modes_are_the_names_of_the_modes() {
    for mode in EnforcementMode::value_variants() {
        assert_eq!(mode.to_possible_value().unwrap().get_name(), mode.name());
    }
}
