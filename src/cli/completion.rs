//! `probeshim completion` and `probeshim man`

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _, ValueEnum};
use clap_complete::Shell;
use clap_complete::aot::generate;

use super::{Cli, CliError};
use crate::terminal::screen::print;

/// Arguments of `completion`.
#[derive(Debug, Args)]
pub struct CompletionCommand {
    /// Shell that completes the commands
    #[arg(value_name = "SHELL", value_enum)]
    shell: CompletionShell,
}

/// Shells with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManCommand {
    /// Directory in which the pages are written
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl CompletionCommand {
    /// Prints the script that completes the commands.
    pub fn run(self) -> Result<(), CliError> {
        let shell = match self.shell {
            CompletionShell::Bash => Shell::Bash,
            CompletionShell::Zsh => Shell::Zsh,
            CompletionShell::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut public(), env!("CARGO_PKG_NAME"), &mut script);
        print(&String::from_utf8_lossy(&script))?;
        Ok(())
    }
}

impl ManCommand {
    /// Writes the man pages: one for the program, and one for each subcommand.
    pub fn run(self) -> Result<(), CliError> {
        let written = clap_mangen::generate_to(public(), &self.dir);
        written.with_context(|| self.dir.display().to_string())?;
        Ok(())
    }
}

/// Returns the commands without those that users do not run.
fn public() -> Command {
    let all = Cli::command();
    let (program, subcommands) =
        (all.clone(), all.get_subcommands().filter(|command| !command.is_hide_set()));
    let bare = Command::new(env!("CARGO_PKG_NAME")).version(env!("CARGO_PKG_VERSION"));
    let about = program.get_about().cloned().unwrap_or_default();
    bare.about(about).subcommands(subcommands.cloned())
}
