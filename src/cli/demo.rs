//! `probeshim demo`

use std::time::Duration;

use clap::Args;

use crate::config::{Problems, demo_duration};

/// The flags of `demo`, as they were written.
#[derive(Debug, Args)]
pub struct Demo {
    /// How long it lasts, 1s to 24h
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", allow_hyphen_values = true)]
    lasts: String,
}

impl Demo {
    /// How long it lasts.
    pub fn duration(&self) -> Result<Duration, Problems> {
        demo_duration(&self.lasts)
    }
}
