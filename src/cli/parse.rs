//! Parses the command line and the environment variables of flags.

use std::ffi::OsString;

use clap::error::{Error, ErrorKind};
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use super::Cli;
use super::help::with_groups;
use super::tips::with_tip;

impl Cli {
    /// Parses a command line. A flag takes precedence over an environment variable that conflicts
    /// with it. An error shows the usage of flags that were written, and not of variables.
    pub fn parse_line(line: &[OsString]) -> Result<Self, Error> {
        Self::parse_without_tips(line).map_err(|error| with_tip(error, line))
    }

    fn parse_without_tips(line: &[OsString]) -> Result<Self, Error> {
        let error = match parse(Self::command(), line) {
            Ok(cli) => return Ok(cli),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::ArgumentConflict
            && let Ok(cli) = parse(ignore_upstream(Self::command()), line)
        {
            return Ok(cli);
        }
        match parse(ignore_environment(with_groups(Self::command())), line) {
            Err(written) if written.kind() == error.kind() => Err(written),
            _ => Err(error),
        }
    }
}

fn parse(command: Command, line: &[OsString]) -> Result<Cli, Error> {
    command.try_get_matches_from(line).and_then(|matches| Cli::from_arg_matches(&matches))
}

/// Returns the command without the variable of `play --upstream`, with which `--runtime` conflicts.
fn ignore_upstream(command: Command) -> Command {
    command.mut_subcommand("play", |play| play.mut_arg("upstream", without_variable))
}

/// Returns the command and its subcommands without the variables of their flags.
fn ignore_environment(command: Command) -> Command {
    command.mut_args(without_variable).mut_subcommands(ignore_environment)
}

fn without_variable(arg: Arg) -> Arg {
    arg.env(None::<&'static str>)
}
