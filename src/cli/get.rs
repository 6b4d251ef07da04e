//! `probeshim get`: the commands that list objects, by the names of the objects.

use clap::{Args, Subcommand};

use super::{CallsCommand, CliError, EventsCommand, PodsCommand, ProbesCommand};

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
}

impl GetCommand {
    /// Runs the command that lists these objects.
    pub async fn run(self) -> Result<(), CliError> {
        match self.kind {
            ObjectKind::Pods(pods) => pods.run().await,
            ObjectKind::Probes(probes) => probes.run().await,
            ObjectKind::Events(events) => events.run().await,
            ObjectKind::Calls(calls) => calls.run().await,
        }
    }
}
