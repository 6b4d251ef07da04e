//! `probeshim demo`

use std::time::Duration;

use clap::Args;

use crate::config::BoundedDuration;

/// Flags of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Duration of the demo, 1s to 24h
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", allow_hyphen_values = true)]
    lasts: BoundedDuration<1>,
}

impl Demo {
    /// Returns the duration of the demo.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.lasts.into()
    }
}
