//! `probeshim mode`

use anyhow::Context as _;
use clap::Args;

use super::CliError;
use super::admin_args::AdminArgs;
use crate::admin::api::ModeBody;
use crate::prober::EnforcementMode;
use crate::terminal::harmless_text;
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
    /// Changes the enforcement mode if one is given, and prints the change in a sentence. Without
    /// one, prints only the current mode, for scripts.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let before = mode(&client.mode().await?)?;
        let text = match &self.to {
            Some(to) => change(&before, &mode(&client.switch_mode(to.name()).await?)?),
            None => before,
        };
        print(&(harmless_text(&text) + "\n"))?;
        Ok(())
    }
}

fn mode(answer: &[u8]) -> Result<String, CliError> {
    let ModeBody { mode } = serde_json::from_slice(answer).context("the response is not a mode")?;
    Ok(mode)
}

/// Returns a sentence about the change of the mode, with the effect of the new one.
fn change(before: &str, now: &str) -> String {
    let effect = match now {
        "off" => ": probes do not run, and nothing is killed",
        "dry-run" => ": probes run, and nothing is killed",
        "kill" => ": probes run, and containers are killed for them",
        "restart" => ": probes run, and containers are killed for them and restarted",
        _ => "",
    };
    if before == now {
        return format!("mode is {now} already{effect}");
    }
    format!("mode is now {now} (was {before}){effect}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_mode_is_reported_with_the_mode_before_and_the_effect() {
        for (before, now, sentence) in [
            ("restart", "off", "mode is now off (was restart): probes do not run, and nothing is killed"),
            ("off", "off", "mode is off already: probes do not run, and nothing is killed"),
            (
                "off",
                "restart",
                "mode is now restart (was off): probes run, and containers are killed for them and restarted",
            ),
        ] {
            assert_eq!(change(before, now), sentence);
        }
    }
}
