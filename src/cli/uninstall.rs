//! `probeshim uninstall`

use std::io::{IsTerminal as _, stdin};

use anyhow::Context as _;
use clap::Args;

use super::CliError;
use super::findings::print_line;
use super::install::require_root;
use crate::install::{Paths, Systemd, Uninstaller, is_installed};
use crate::terminal::screen::print;

/// Arguments of `uninstall`.
#[derive(Debug, Args)]
pub struct UninstallCommand {
    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Also remove the configuration in /etc/probeshim and the recorded calls and state in
    /// /var/lib/probeshim
    #[arg(long)]
    purge: bool,
}

impl UninstallCommand {
    /// Points the kubelet at the runtime, and removes what `install` wrote.
    pub async fn run(self) -> Result<(), CliError> {
        let paths = Paths::of_node();
        if !is_installed(&paths) && !self.purge {
            print_line("probeshim is not installed as a service; nothing to remove");
            return Ok(());
        }
        require_root("uninstall")?;
        if !self.yes && !is_confirmed(self.purge)? {
            return Err(CliError::Failed(anyhow::anyhow!("nothing was removed")));
        }
        let uninstaller = Uninstaller { paths: &paths, manager: &Systemd, report: &print_line };
        uninstaller.uninstall(self.purge).await?;
        print_line("probeshim is removed");
        Ok(())
    }
}

/// Asks on the terminal whether to remove the installation.
fn is_confirmed(purge: bool) -> Result<bool, CliError> {
    if !stdin().is_terminal() {
        return Err(CliError::Usage("--yes is needed where standard input is not a terminal".to_owned()));
    }
    let state = if purge { ", its configuration and its state" } else { "" };
    print(&format!("Point the kubelet at the runtime, and remove probeshim{state}? [y/N] "))?;
    let mut answer = String::new();
    stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
