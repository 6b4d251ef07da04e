//! `probeshim mode`

use anyhow::Context as _;
use clap::Args;

use super::CliError;
use super::admin_args::AdminArgs;
use crate::admin::api::ModeBody;
use crate::prober::EnforcementMode;
use crate::terminal::screen::print;

/// Arguments of `mode`.
#[derive(Debug, Args)]
pub struct ModeCommand {
    /// Enforcement mode to set. Without it, the current mode is shown
    #[arg(value_name = "MODE", value_enum)]
    to: Option<EnforcementMode>,

    #[command(flatten)]
    at: AdminArgs,
}

impl ModeCommand {
    /// Changes the enforcement mode if one is given, and prints the current mode.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let answer = match &self.to {
            Some(to) => client.switch_mode(to.name()).await?,
            None => client.mode().await?,
        };
        let now: ModeBody = serde_json::from_slice(&answer).context("the response is not a mode")?;
        print(&(now.mode + "\n"))?;
        Ok(())
    }
}
