//! `probeshim demo`

use std::time::Duration;

use clap::Args;

use crate::config::{BoundedDuration, FaultFlag, PolicySettings, Problems};

/// Flags of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Duration of the demo, 1s to 24h
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", allow_hyphen_values = true)]
    lasts: BoundedDuration<1>,

    /// Fault to inject into calls, in the form METHOD KEY=VALUE…: TERM -> TERM…, such as "ExecSync
    /// client=probeshim pod=demo/steady: 3*off -> exit(1)". All calls of the demo are those of the
    /// client probeshim. May be repeated
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    fault: Vec<FaultFlag>,
}

impl Demo {
    /// Returns the duration and the fault rules of the demo. The error has all problems.
    pub fn settings(self) -> Result<(Duration, PolicySettings), Problems> {
        Ok((self.lasts.into(), PolicySettings::of_flags(self.fault)?))
    }
}
