//! The registry of metrics, and the text that Prometheus reads.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every family of metrics; each module registers its own.
#[derive(Debug)]
pub struct Metrics(Registry);

impl Metrics {
    /// A registry that knows this build.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("probeshim");
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "What was built", Info::new(build.to_vec()));
        Self(registry)
    }

    /// Where a module registers its families; their names will begin with `probeshim_`.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.0
    }

    /// Everything, in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.0);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
