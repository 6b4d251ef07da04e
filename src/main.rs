//! Arguments → config → runtime → command, and the exit codes: 0 done, 1 failed while running, 2 wrong usage or
//! configuration.

use std::process::ExitCode;

use clap::Parser as _;
use probeshim::cli::{Cli, Command, Failure};
use probeshim::config::{Settings, Surroundings};
use probeshim::{app, telemetry};

const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    // clap itself ends with 2 on wrong usage, and with 0 on --help and --version.
    match Cli::parse().command {
        Command::Run(run) => match Settings::new(&run.into(), &Surroundings::here()) {
            Ok(settings) => serve(settings),
            Err(problems) => {
                complain(&problems);
                ExitCode::from(WRONG_USAGE)
            }
        },
        Command::Calls(calls) => ask(calls.run()),
        Command::Status(status) => ask(status.run()),
    }
}

/// Runs a command that asks a running probeshim.
fn ask(command: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match runtime.block_on(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(usage @ Failure::Usage(_)) => {
            complain(&usage);
            ExitCode::from(WRONG_USAGE)
        }
        Err(other) => failed(&other),
    }
}

fn serve(settings: Settings) -> ExitCode {
    let _log = telemetry::start(&settings.log);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match runtime.block_on(app::run(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    complain(error);
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "for the person at the terminal, not for the log")]
fn complain(error: &dyn std::error::Error) {
    for line in error.to_string().lines() {
        eprintln!("probeshim: {line}");
    }
}
