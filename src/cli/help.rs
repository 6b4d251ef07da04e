//! The help of the program, with its subcommands in groups.

use clap::Command;

use crate::terminal::format::wrapped_from;

/// Width of the help if standard output is no terminal, as clap has it.
const DEFAULT_WIDTH: usize = 100;

/// Maximum width of the help.
pub(super) const MAX_WIDTH: usize = 110;

/// Width of the column with the names of subcommands.
const NAME_WIDTH: usize = 12;

/// Column in which the descriptions of subcommands begin.
const INDENT: usize = 2 + NAME_WIDTH;

/// Description of the subcommand that clap adds.
const HELP: (&str, &str) = ("help", "Print the help of a subcommand");

/// The groups of subcommands. Within a group, what is needed first comes first.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "See what probes and calls do",
        &[
            "status", "explain", "lint", "top", "probes", "calls", "events", "pods", "describe", "get",
            "logs", "report",
        ],
    ),
    ("Pause probes, and cause faults", &["pause", "resume", "mode", "fault"]),
    ("Run pods without a cluster", &["play", "wait", "exec", "delete", "check", "runtime", "demo"]),
    (
        "Serve between the kubelet or crictl and the runtime",
        &["run", "install", "confirm", "uninstall", "doctor"],
    ),
    ("Record, repeat and measure calls", &["capture", "replay", "bench"]),
    ("Other", &["version", "completion", "schema", HELP.0]),
];

/// Returns the program's command line, whose help shows the subcommands in groups.
pub(super) fn with_groups(command: Command) -> Command {
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let width = if width == 0 { DEFAULT_WIDTH } else { width.min(MAX_WIDTH) };
    let groups = GROUPS.map(|(heading, names)| {
        let lines: String = names.iter().map(|name| line(&command, name, width)).collect();
        format!("{heading}:\n{lines}")
    });
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\nOptions:\n{{options}}",
        groups.join("\n")
    ))
}

/// Returns the line of a subcommand, which may continue below.
fn line(command: &Command, name: &str, width: usize) -> String {
    let found = command.find_subcommand(name);
    let about = found.and_then(Command::get_about).map_or_else(|| HELP.1.to_owned(), ToString::to_string);
    let alias = found.and_then(|found| found.get_visible_aliases().next());
    let about = alias.map_or_else(|| about.clone(), |alias| format!("{about} [alias: {alias}]"));
    format!("  {name:<NAME_WIDTH$}{}\n", wrapped_from(&about, INDENT, INDENT, width))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    #[test]
    fn each_subcommand_is_in_one_group() {
        let names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let unique: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(unique.len(), names.len());
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let known: BTreeSet<&str> = shown.map(Command::get_name).chain([HELP.0]).collect();
        assert_eq!(unique, known);
    }

    #[test]
    fn the_help_has_each_subcommand_with_its_description() {
        let help = with_groups(Cli::command()).render_help().to_string();
        assert!(help.starts_with("Why was my exec probe slow"), "{help}");
        assert!(
            help.contains("\nRun pods without a cluster:\n  play        Run pods from manifests"),
            "{help}"
        );
        assert!(help.contains("[alias: ps]") && help.contains("\nOptions:\n  -V, --version"), "{help}");
        assert!(help.lines().all(|line| line.len() <= MAX_WIDTH), "{help}");
    }
}
