//! The command line: one file a subcommand.

#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
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
pub enum Command {
    /// Stand on a unix socket in front of a container runtime
    Run(Run),
}
