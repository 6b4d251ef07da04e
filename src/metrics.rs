//! Registry of metrics, and its text formats.

mod format;
mod prometheus_text;

use std::fmt;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::build_info::{COMMIT, VERSION};
pub use format::MetricsFormat;
use prometheus_text::PrometheusText;

/// Returns a registry with the metric `probeshim_build_info`. Each module registers its own
/// families. All names begin with `probeshim_`.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::with_prefix("probeshim");
    let labels = [("version", VERSION), ("commit", COMMIT.unwrap_or("unknown"))];
    registry.register("build", "Version and commit of probeshim", Info::new(labels.to_vec()));
    registry
}

/// Encodes a registry.
#[must_use]
pub fn encode(registry: &Registry, format: MetricsFormat) -> String {
    encode_chunks(registry, format).concat() + format.end()
}

/// Encodes a registry without [`MetricsFormat::end`], because more registries may follow. The text
/// may be large, so that it is returned in chunks.
#[must_use]
pub fn encode_chunks(registry: &Registry, format: MetricsFormat) -> Vec<String> {
    let mut chunks = Chunks(Vec::new());
    // Writing to a string does not fail.
    let _ = match format {
        MetricsFormat::OpenMetrics => encode_registry(&mut chunks, registry),
        MetricsFormat::Prometheus => encode_registry(&mut PrometheusText::new(&mut chunks), registry),
    };
    chunks.0
}

/// Length in bytes at which a new chunk is started.
const CHUNK_BYTES: usize = 64 << 10;

/// A text in chunks. A full chunk is never copied to make room for more.
struct Chunks(Vec<String>);

impl fmt::Write for Chunks {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(chunk) = self.0.last_mut().filter(|chunk| chunk.len() + text.len() <= CHUNK_BYTES) {
            chunk.push_str(text);
        } else {
            let mut chunk = String::with_capacity(CHUNK_BYTES.max(text.len()));
            chunk.push_str(text);
            self.0.push(chunk);
        }
        Ok(())
    }
}
