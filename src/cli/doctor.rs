//! `probeshim doctor`

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::value::to_raw_value;

use super::CliError;
use super::admin_args::OutputFormat;
use super::findings::findings_table;
use crate::install::{Finding, Paths, Systemd, diagnose};
use crate::terminal::screen::print;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorCommand {
    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl DoctorCommand {
    /// Prints the findings. Fails if a check failed.
    pub async fn run(self) -> Result<(), CliError> {
        let findings = diagnose(&Paths::of_node(), &Systemd).await?;
        let text = match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                let values: Result<Vec<_>, _> = findings.iter().map(to_raw_value).collect();
                let values = values.context("the findings cannot be written as JSON")?;
                self.output.list(&values.iter().map(|value| &**value).collect::<Vec<_>>())?
            }
            _ => findings_table(&findings),
        };
        print(&text)?;
        if Finding::any_failed(&findings) {
            return Err(CliError::Failed(anyhow!("a check failed")));
        }
        Ok(())
    }
}
