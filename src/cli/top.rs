//! `probeshim top`

use std::time::Duration;

use clap::Args;

use super::CliError;
use super::admin_args::AdminArgs;
use crate::config::BoundedDuration;
use crate::top::{TopError, check_terminal, run};

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopCommand {
    #[command(flatten)]
    admin: AdminArgs,

    /// Length of the period before the present whose results are shown, 1m to 24h
    #[arg(long, value_name = "DURATION", default_value = "1h", allow_hyphen_values = true)]
    since: BoundedDuration<60>,
}

impl TopCommand {
    /// Shows the probes until a key or a signal ends it.
    pub async fn run(self) -> Result<(), CliError> {
        check_terminal().map_err(|error| CliError::Usage(error.to_string()))?;
        let client = self.admin.client()?;
        // Without a probeshim, the error is on the terminal as it was.
        client.status().await?;
        run(client, Duration::from(self.since)).await.map_err(|error: TopError| CliError::from_display(error))
    }
}
