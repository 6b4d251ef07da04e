//! The registry of metrics, and the text that Prometheus reads.

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A registry that knows this build. Each module registers its own families; their names will begin with `probeshim_`.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::with_prefix("probeshim");
    let build = [("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "What was built", Info::new(build.to_vec()));
    registry
}

/// Everything in a registry, in the OpenMetrics text format.
#[must_use]
pub fn text(registry: &Registry) -> String {
    part(registry) + END
}

/// What ends the text.
pub const END: &str = "# EOF\n";

/// The same without its end: more registries may follow.
#[must_use]
pub fn part(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode_registry(&mut text, registry);
    text
}
