//! `probeshim get`: the commands that list objects, by the names of the objects.

use clap::{Args, Subcommand};

use super::workload_arg::WorkloadArg;
use super::{CallsCommand, CliError, EventsCommand, PodsCommand, ProbesCommand};
use crate::terminal::harmless_name;

/// The objects to show.
#[derive(Debug, Args)]
pub struct GetCommand {
    #[command(subcommand)]
    kind: ObjectKind,
}

#[derive(Debug, Subcommand)]
enum ObjectKind {
    /// Show pods, as `probeshim pods` does
    #[command(visible_aliases = ["pod", "po"])]
    Pods(PodsCommand),

    /// Show probes, as `probeshim probes` does
    #[command(visible_alias = "probe")]
    Probes(ProbesCommand),

    /// Show events, as `probeshim events` does
    #[command(visible_aliases = ["event", "ev"])]
    Events(EventsCommand),

    /// Show calls, as `probeshim calls` does
    #[command(visible_alias = "call")]
    Calls(CallsCommand),

    #[command(external_subcommand)]
    Other(Vec<String>),
}

impl GetCommand {
    /// Runs the command that lists these objects.
    pub async fn run(self) -> Result<(), CliError> {
        match self.kind {
            ObjectKind::Pods(pods) => pods.run().await,
            ObjectKind::Probes(probes) => probes.run().await,
            ObjectKind::Events(events) => events.run().await,
            ObjectKind::Calls(calls) => calls.run().await,
            ObjectKind::Other(arguments) => Err(CliError::Usage(unknown_kind(&arguments))),
        }
    }
}

/// Returns the error for an object that is not shown, with what shows it.
fn unknown_kind(arguments: &[String]) -> String {
    let object = arguments.first().map(String::as_str).unwrap_or_default();
    let (kind, name) = object.split_once('/').unwrap_or((object, ""));
    let shown = harmless_name(object);
    match kind {
        "pod" | "pods" | "po" if !name.is_empty() => {
            format!(
                "{shown} names one pod: write `probeshim pods {name}`, or `probeshim describe {name}`",
                name = harmless_name(name)
            )
        }
        _ if WorkloadArg::parse(&format!("{kind}/")).is_some() => {
            format!(
                "{shown} cannot be shown: probeshim knows the pods of workloads, which `probeshim pods` shows"
            )
        }
        _ => format!("{shown} cannot be shown: get shows pods, probes, events or calls"),
    }
}
