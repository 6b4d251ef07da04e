//! The command line: one file a subcommand.

mod run;

use clap::{Parser, Subcommand};

pub use run::Run;

/// A CRI proxy that forwards every call byte for byte.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub enum Command {
    /// Listen on a unix socket and forward every call to the runtime, until SIGTERM or SIGINT
    ///
    /// With LISTEN_FDS set (systemd socket activation), the socket passed there is served and --listen is not used.
    Run(Run),
}
