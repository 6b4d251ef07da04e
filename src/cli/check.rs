//! `probeshim check` and `probeshim schema`

use std::path::PathBuf;

use clap::Args;

use super::CliError;
use super::stderr::note;
use super::table::{Cell, Column, Table};
use crate::config::{self, CheckReport, EmbeddedRuntimeName, Environment, FilenameArg};
use crate::probe::DescribedProbe;
use crate::terminal::screen::{Screen, print};

/// Minimum width of handlers. In a narrower column, they are shown below their rows.
const MIN_HANDLER_WIDTH: usize = 24;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckCommand {
    /// Files and directories of manifests, in YAML or JSON; - for standard input
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    filename: FilenameArg,

    /// Configuration file, whose rules take precedence over manifests [default:
    /// /etc/probeshim/config.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Report fields that a node without a cluster cannot honour, such as volumes of a cluster's
    /// storage, as warnings. Without this flag they are errors, as in play
    #[arg(long)]
    ignore_unsupported: bool,

    /// Runtime of `play --runtime` on which the pods are to run. With procrun, each container must
    /// have a command
    #[arg(long, value_name = "procrun", value_enum)]
    runtime: Option<EmbeddedRuntimeName>,
}

impl CheckCommand {
    /// Reads the files, and prints warnings and the probes in them. The error has all problems, not
    /// only the first.
    pub fn run(self) -> Result<(), CliError> {
        let paths = self.filename.with(self.paths);
        if paths.is_empty() && self.config.is_none() {
            return Err(CliError::Usage(
                "nothing to check: name files, directories or a --config".to_owned(),
            ));
        }
        let (config, around) = (self.config.as_ref(), Environment::detect());
        let CheckReport { specs, warnings } =
            config::check(&paths, config, self.ignore_unsupported, self.runtime, &around);
        warn(&warnings);
        let (described, screen) = (specs?.describe_all(), Screen::stdout());
        screen.print(&table(&described, screen))?;
        Ok(())
    }
}

/// Returns the table of probes for a terminal, for a fuzz target.
pub(crate) fn probe_table(described: &[DescribedProbe]) -> String {
    table(described, Screen::narrow())
}

fn table(described: &[DescribedProbe], screen: Screen) -> String {
    if described.is_empty() {
        return "no errors, and no probes\n".to_owned();
    }
    let rows: Vec<Vec<Cell>> = described.iter().map(row).collect();
    Table::new(columns(), screen).render_complete(&rows, MIN_HANDLER_WIDTH)
}

/// Prints warnings, in the style of errors.
fn warn(warnings: &[String]) {
    for warning in warnings {
        note(&format!("warning: {warning}"));
    }
}

/// Prints the JSON schema of the configuration file.
pub fn schema() -> Result<(), CliError> {
    print(config::SCHEMA)?;
    Ok(())
}

fn columns() -> [Column; 9] {
    [
        Column::text("OWNER"),
        Column::text("CONTAINER"),
        Column::text("PROBE"),
        Column::numeric("DELAY").optional(),
        Column::numeric("PERIOD"),
        Column::numeric("TIMEOUT"),
        Column::numeric("#FAILURE"),
        Column::numeric("#SUCCESS").optional(),
        Column::text("HANDLER"),
    ]
}

fn row(described: &DescribedProbe) -> Vec<Cell> {
    let DescribedProbe { owner, container, probe_type, probe } = described;
    let Some(probe) = probe else {
        let empty = || Cell::new("");
        let mut row = vec![Cell::new(owner), Cell::new(container), Cell::new(probe_type.name())];
        row.extend([empty(), empty(), empty(), empty(), empty(), Cell::new("off")]);
        return row;
    };
    let seconds = |seconds: u32| Cell::new(format!("{seconds}s"));
    vec![
        Cell::new(owner),
        Cell::new(container),
        Cell::new(probe_type.name()),
        seconds(probe.initial_delay),
        seconds(probe.period),
        seconds(probe.timeout),
        Cell::new(probe.failure_threshold.to_string()),
        Cell::new(probe.success_threshold.to_string()),
        Cell::new(probe.handler.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::snapshots::assert_screens;
    use super::*;
    use crate::probe::SpecResolver;

    const MANIFEST: &str = r#"{
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-7d4b9c6f8-x2x9z", "namespace": "shop"},
        "spec": {"containers": [{"name": "main", "image": "web",
            "startupProbe": {"exec": {"command": ["sh", "-c", "test -e /tmp/started"]}, "failureThreshold": 30},
            "readinessProbe": {"httpGet": {"port": 8080, "path": "/healthz"}, "successThreshold": 2},
            "livenessProbe": {"tcpSocket": {"port": "web"}, "initialDelaySeconds": 5, "timeoutSeconds": 3}
        }]}
    }"#;

    #[test]
    fn the_probes_of_checked_manifests_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("web.json"), MANIFEST).unwrap();
        let described = SpecResolver::read(&[dir.path()]).unwrap().describe_all();
        assert_screens("check", |screen| table(&described, screen));
        assert_screens("check_without_probes", |screen| table(&[], screen));
    }
}
