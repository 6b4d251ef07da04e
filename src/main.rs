//! Runs the command: arguments → config → runtime → command. The exit code is 0 after success, 1
//! after a failure while running, and 2 after wrong usage or configuration. `play` and `demo` exit
//! with 130 after SIGINT and 143 after SIGTERM, because their work is then incomplete; services
//! (`run`, `runtime`) exit with 0, because a signal is their normal end.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use probeshim::app;
use probeshim::cli::{self, Cli, CliCommand, CliError};
use probeshim::config::{Environment, PlaySettings, RuntimeSettings, Settings};
use probeshim::memory;
use probeshim::procrun::{self, monitor};
use probeshim::telemetry;
use probeshim::terminal::{harmless_text, print};
use tokio::runtime::{Builder, Runtime};

/// Begin of a line with a remedy, which follows the lines with errors.
const HINT: &str = "hint: ";

/// Counts allocations, so that the heap is trimmed after much memory was freed.
#[cfg(target_env = "gnu")]
#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

fn main() -> ExitCode {
    let mut line: Vec<_> = std::env::args_os().collect();
    if line.len() == 1 && std::io::stdout().is_terminal() {
        line.push("overview".into());
    }
    // clap itself exits with 2 on wrong usage, and with 0 on --help and --version.
    let command = Cli::parse_line(&line).unwrap_or_else(|error| error.exit()).command;
    match dispatch(command) {
        Ok(code) => ExitCode::from(code),
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

/// Runs a subcommand. Returns the exit code.
fn dispatch(command: CliCommand) -> Result<u8, CliError> {
    match command {
        CliCommand::Play(flags) => {
            let (runtime, settings) = (runtime()?, PlaySettings::new(flags, &Environment::detect())?);
            memory::start_trimming().context("cannot start")?;
            let _log = telemetry::start(&settings.log).context("cannot start")?;
            runtime.block_on(app::play(settings)).or_else(|error| match error.exit_code() {
                1 => Err(CliError::from_display(error)),
                code => {
                    complain(&error.to_string());
                    Ok(code)
                }
            })
        }
        CliCommand::Demo(demo) => {
            memory::start_trimming().context("cannot start")?;
            let demo = app::demo(demo.settings()?, cli::demo_results);
            runtime()?.block_on(demo).map_err(CliError::from_display)
        }
        CliCommand::Exec(exec) => runtime()?.block_on(exec.run()),
        command => run(command).map(|()| 0),
    }
}

/// Returns the async runtime of a subcommand.
fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start")
}

/// Runs a subcommand that has no exit codes of its own.
fn run(command: CliCommand) -> Result<(), CliError> {
    if let CliCommand::Monitor { .. } = command {
        // Only a user who starts a monitor by hand sees this error.
        return monitor::run()
            .context("a monitor is started only by `probeshim runtime`")
            .map_err(CliError::from);
    }
    let runtime = runtime()?;
    if let CliCommand::Run(_) | CliCommand::Runtime(_) = command {
        memory::start_trimming().context("cannot start")?;
    }
    match command {
        CliCommand::Run(flags) => {
            let settings = Settings::new(&flags, &Environment::detect())?;
            let _log = telemetry::start(&settings.log).context("cannot start")?;
            runtime.block_on(app::run(settings.shim)).map_err(CliError::from_display)
        }
        CliCommand::Calls(calls) => runtime.block_on(calls.run()),
        CliCommand::Capture(capture) => runtime.block_on(capture.run()),
        CliCommand::Replay(replay) => runtime.block_on(replay.run()),
        CliCommand::Explain(explain) => runtime.block_on(explain.run()),
        CliCommand::Lint(lint) => runtime.block_on(lint.run()),
        CliCommand::Events(events) => runtime.block_on(events.run()),
        CliCommand::Pods(pods) => runtime.block_on(pods.run()),
        CliCommand::Probes(probes) => runtime.block_on(probes.run()),
        CliCommand::Describe(describe) => runtime.block_on(describe.run()),
        CliCommand::Top(top) => runtime.block_on(top.run()),
        CliCommand::Get(get) => runtime.block_on(get.run()),
        CliCommand::Status(status) => runtime.block_on(status.run()),
        CliCommand::Report(report) => runtime.block_on(report.run()),
        CliCommand::Wait(wait) => runtime.block_on(wait.run()),

        CliCommand::Logs(logs) => runtime.block_on(logs.run()),
        CliCommand::Delete(delete) => runtime.block_on(delete.run()),
        CliCommand::Mode(mode) => runtime.block_on(mode.run()),
        CliCommand::Fault(fault) => runtime.block_on(fault.run()),
        CliCommand::Pause(pause) => runtime.block_on(pause.run()),
        CliCommand::Resume(resume) => runtime.block_on(resume.run()),
        CliCommand::Check(check) => check.run(),
        CliCommand::Schema => cli::schema(),
        CliCommand::Install(install) => runtime.block_on(install.run()),
        CliCommand::Confirm(confirm) => confirm.run(),
        CliCommand::Uninstall(uninstall) => runtime.block_on(uninstall.run()),
        CliCommand::Doctor(doctor) => runtime.block_on(doctor.run()),
        CliCommand::Version(version) => runtime.block_on(version.run()),
        CliCommand::Completion(completion) => completion.run(),
        CliCommand::Man(man) => man.run(),
        CliCommand::Overview(overview) => runtime.block_on(overview.run()),
        CliCommand::Bench(bench) => runtime.block_on(bench.run()),
        CliCommand::Runtime(flags) => {
            let settings = RuntimeSettings::new(flags, &Environment::detect())?;
            print(&format!("{}\n", procrun::WARNING))?;
            let _log = telemetry::start(&settings.log).context("cannot start")?;
            runtime.block_on(app::runtime(settings)).map_err(CliError::from_display)
        }
        CliCommand::Play(_) | CliCommand::Demo(_) | CliCommand::Exec(_) | CliCommand::Monitor { .. } => {
            unreachable!("the command was run before")
        }
    }
}

/// Prints an error, in the style of clap. A line that begins with `hint: ` says what to do. An
/// indented line has details of the line before.
#[expect(clippy::print_stderr, reason = "for the person at the terminal, not for the log")]
fn complain(reason: &str) {
    for line in reason.lines() {
        let label = if line.starts_with(HINT) || line.starts_with("  ") { "" } else { "error: " };
        eprintln!("{label}{}", harmless_text(line));
    }
}
