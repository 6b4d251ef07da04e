//! Runs the command: arguments → config → runtime → command. The exit code is 0 after success, 1
//! after a failure while running, and 2 after wrong usage or configuration.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use probeshim::app;
use probeshim::cli::{self, Cli, CliCommand, CliError};
use probeshim::config::{Environment, PlaySettings, RuntimeSettings, Settings};
use probeshim::memory;
use probeshim::procrun::{self, monitor};
use probeshim::telemetry;
use probeshim::terminal::{harmless_text, print};

/// Begin of a line with a remedy, which follows the lines with errors.
const HINT: &str = "hint: ";

/// Counts allocations, so that the heap is trimmed after much memory was freed.
#[cfg(target_env = "gnu")]
#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

fn main() -> ExitCode {
    // clap itself exits with 2 on wrong usage, and with 0 on --help and --version.
    let command = Cli::parse().command;
    match dispatch(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError::Usage(reason)) => {
            complain(&reason);
            ExitCode::from(2)
        }
        Err(CliError::Failed(error)) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: CliCommand) -> Result<(), CliError> {
    if let CliCommand::Monitor { .. } = command {
        // Only a user who starts a monitor by hand sees this error.
        return monitor::run()
            .context("a monitor is started only by `probeshim runtime`")
            .map_err(CliError::from);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    if let CliCommand::Run(_) | CliCommand::Play(_) | CliCommand::Runtime(_) | CliCommand::Demo(_) = command {
        memory::start_trimming().context("cannot start")?;
    }
    match command {
        CliCommand::Run(flags) => {
            let settings = Settings::new(&flags, &Environment::detect())?;
            let _log = telemetry::start(&settings.log).context("cannot start")?;
            runtime.block_on(app::run(settings.shim)).map_err(CliError::from_display)
        }
        CliCommand::Play(flags) => {
            let settings = PlaySettings::new(flags, &Environment::detect())?;
            let _log = telemetry::start(&settings.log).context("cannot start")?;
            runtime.block_on(app::play(settings)).map_err(CliError::from_display)
        }
        CliCommand::Calls(calls) => runtime.block_on(calls.run()),
        CliCommand::Explain(explain) => runtime.block_on(explain.run()),
        CliCommand::Events(events) => runtime.block_on(events.run()),
        CliCommand::Status(status) => runtime.block_on(status.run()),
        CliCommand::Mode(mode) => runtime.block_on(mode.run()),
        CliCommand::Check(check) => check.run(),
        CliCommand::Schema => cli::schema(),
        CliCommand::Bench(bench) => runtime.block_on(bench.run()),
        CliCommand::Runtime(flags) => {
            let settings = RuntimeSettings::new(flags, &Environment::detect())?;
            print(&format!("{}\n", procrun::WARNING))?;
            let _log = telemetry::start(&settings.log).context("cannot start")?;
            runtime.block_on(app::runtime(settings)).map_err(CliError::from_display)
        }
        CliCommand::Demo(demo) => {
            runtime.block_on(app::demo(demo.duration())).map_err(CliError::from_display)
        }
        CliCommand::Monitor { .. } => unreachable!("a monitor runs without an async runtime"),
    }
}

/// Prints an error, in the style of clap. A line that begins with `hint: ` says what to do.
#[expect(clippy::print_stderr, reason = "for the person at the terminal, not for the log")]
fn complain(reason: &str) {
    for line in reason.lines() {
        let label = if line.starts_with(HINT) { "" } else { "error: " };
        eprintln!("{label}{}", harmless_text(line));
    }
}
