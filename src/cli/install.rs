//! `probeshim install` and `probeshim confirm`

use std::io::{self, IsTerminal as _, stdin};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rustix::termios::{QueueSelector, tcflush};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::CliError;
use super::findings::{findings_table, print_line};
use crate::config::BoundedDuration;
use crate::install::{
    FailedTrial, Finding, InstallOptions, InstallPlan, Installer, Paths, Systemd, TrialDecision, confirm,
    decision_by_others,
};
use crate::socket::SocketPath;
use crate::terminal::harmless_text;
use crate::terminal::screen::print;

/// Default time for the confirmation.
const CONFIRM_WITHIN: Duration = Duration::from_secs(60);

/// Shortest time for the confirmation in seconds. A kubelet needs several to start.
const MIN_CONFIRM: u64 = 10;

/// Arguments of `install`.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct InstallCommand {
    /// Also point the kubelet at probeshim. Reverts itself unless it is confirmed
    #[arg(long)]
    kubelet: bool,

    /// Show the checks and each change with the content of its file, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Confirm the change of the kubelet without a question if the checks pass
    #[arg(long, requires = "kubelet")]
    yes: bool,

    /// Time from the change of the kubelet until it is reverted unless it is confirmed, 10s to 1h
    /// [default: 60s]
    #[arg(long, value_name = "DURATION", requires = "kubelet", value_parser = confirm_time)]
    confirm: Option<Duration>,

    /// Socket of the container runtime [default: upstream in the configuration file, with
    /// --kubelet that of the kubelet, otherwise unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URI", allow_hyphen_values = true)]
    upstream: Option<SocketPath>,
}

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub struct ConfirmCommand {}

impl InstallCommand {
    /// Installs the running program as a service, and points the kubelet at it if that is wanted.
    pub async fn run(self) -> Result<(), CliError> {
        let (paths, manager) = (Paths::of_node(), Systemd);
        let confirm_within = self.confirm.unwrap_or(CONFIRM_WITHIN);
        if !self.dry_run {
            require_root("install")?;
        }
        let options = InstallOptions {
            upstream: self.upstream,
            kubelet: self.kubelet,
            confirm_within,
            dry_run: self.dry_run,
        };
        let program = std::env::current_exe().context("cannot find the running program")?;
        let plan = InstallPlan::new(options, program, &paths, &manager).await?;
        print(&findings_table(plan.findings()))?;
        if self.dry_run {
            print(&format!("\n{}", harmless_lines(&plan.describe(&paths, &manager)?)))?;
        }
        if plan.is_refused() {
            return Err(CliError::from_display("a check failed, and nothing was changed"));
        }
        if self.dry_run {
            return Ok(());
        }
        let installer = Installer { paths: &paths, manager: &manager, report: &print_line };
        installer.install(&plan)?;
        if !self.kubelet {
            return Ok(());
        }
        // From here on a signal reverts the change instead of ending the process.
        let interrupted = interrupted().context("cannot wait for signals")?;
        let show = |findings: &[Finding]| {
            print(&findings_table(findings))?;
            Ok::<(), CliError>(())
        };
        let decide = async || {
            if self.yes { Ok(TrialDecision::Confirm) } else { ask(&paths, &manager, confirm_within).await }
        };
        installer.try_switch(plan, show, decide, interrupted).await.map_err(failure)?;
        print_line("confirmed: the kubelet uses probeshim");
        Ok(())
    }
}

impl ConfirmCommand {
    /// Confirms the change of the kubelet.
    pub fn run(self) -> Result<(), CliError> {
        let Self {} = self;
        require_root("confirm")?;
        confirm(&Paths::of_node(), &Systemd)?;
        print_line("confirmed: the kubelet uses probeshim");
        Ok(())
    }
}

/// Fails unless the process runs as root.
pub(super) fn require_root(command: &str) -> Result<(), CliError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "root is needed to change the services of this node: sudo probeshim {command}"
    )))
}

/// Parses the time for the confirmation.
fn confirm_time(text: &str) -> Result<Duration, String> {
    let duration: BoundedDuration = text.parse().map_err(|error| format!("{error}"))?;
    let duration = Duration::from(duration);
    if (Duration::from_secs(MIN_CONFIRM)..=Duration::from_secs(3600)).contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("expected {MIN_CONFIRM}s to 1h"))
    }
}

/// Returns the error of a change that was not confirmed.
fn failure(failed: FailedTrial<CliError>) -> CliError {
    let cause = failed.cause;
    match failed.reverted {
        Ok(false) => cause,
        Ok(true) => CliError::from_display(format!(
            "{cause}: the kubelet was pointed back at the runtime's own socket"
        )),
        Err(error) => CliError::from_display(format!(
            "{cause}, and the kubelet cannot be pointed back immediately: {error}; see `probeshim doctor`"
        )),
    }
}

/// Registers handlers of SIGINT and SIGTERM, and returns a future that ends at the first signal.
fn interrupted() -> io::Result<impl Future<Output = ()>> {
    let [mut interrupt, mut terminate] = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Waits for Enter, for `probeshim confirm`, or for the revert.
async fn ask(paths: &Paths, manager: &Systemd, within: Duration) -> Result<TrialDecision, CliError> {
    let has_terminal = stdin().is_terminal();
    if has_terminal {
        discard_input(stdin()).context("cannot read the terminal")?;
    }
    let how = if has_terminal { "Press Enter to keep it, or run" } else { "Run" };
    print_line(&format!(
        "The kubelet uses probeshim. {how} `probeshim confirm`; otherwise it is reverted {} s after the change.",
        within.as_secs()
    ));
    let enter = has_terminal.then(enter_pressed);
    tokio::select! {
        () = pressed(enter) => Ok(TrialDecision::Confirm),
        decision = decision_by_others(paths, manager) => Ok(decision?),
    }
}

/// Discards input of a terminal that nothing has read yet: a key that was pressed before the
/// question is not its answer.
fn discard_input(terminal: impl AsFd) -> io::Result<()> {
    Ok(tcflush(terminal, QueueSelector::IFlush)?)
}

/// Reads a line of standard input in a thread of its own, which ends with the process.
fn enter_pressed() -> oneshot::Receiver<()> {
    let (pressed, receiver) = oneshot::channel();
    thread::spawn(move || {
        if stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {
            let _ = pressed.send(());
        }
    });
    receiver
}

/// Waits for Enter. Waits forever without a terminal, or at the end of the input.
async fn pressed(enter: Option<oneshot::Receiver<()>>) {
    if let Some(enter) = enter
        && enter.await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Returns lines in which control characters are escaped.
fn harmless_lines(text: &str) -> String {
    text.lines().map(|line| harmless_text(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::ioctl_fionread;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    #[test]
    fn keys_that_were_pressed_before_the_question_are_discarded() {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let terminal = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let press_enter = || {
            io::Write::write_all(&mut File::from(person.try_clone().unwrap()), b"\n").unwrap();
            poll(&mut [PollFd::new(&terminal, PollFlags::IN)], None).unwrap();
        };
        press_enter();
        discard_input(&terminal).unwrap();
        assert_eq!(ioctl_fionread(&terminal).unwrap(), 0);
        press_enter();
        assert_eq!(ioctl_fionread(&terminal).unwrap(), 1);
    }
}
