//! The registry of metrics, and the text that Prometheus reads.

use std::fmt;

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
    pieces(registry).concat() + END
}

/// What ends the text.
pub const END: &str = "# EOF\n";

/// The same without its end, since more registries may follow, and in pieces: some are large.
#[must_use]
pub fn pieces(registry: &Registry) -> Vec<String> {
    let mut pieces = Chunks(Vec::new());
    // Writing to strings does not fail.
    let _ = encode_registry(&mut pieces, registry);
    pieces.0
}

/// How long a piece may be, in bytes.
const PIECE: usize = 64 << 10;

/// A text in pieces: none is ever copied to make room for more.
struct Chunks(Vec<String>);

impl fmt::Write for Chunks {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(piece) = self.0.last_mut().filter(|piece| piece.len() + text.len() <= PIECE) {
            piece.push_str(text);
        } else {
            let mut piece = String::with_capacity(PIECE.max(text.len()));
            piece.push_str(text);
            self.0.push(piece);
        }
        Ok(())
    }
}
