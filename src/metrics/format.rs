//! Formats of metrics, and the choice between them.

use std::cmp::Ordering;

/// Content type of the text format of Prometheus.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Last line of the OpenMetrics text format.
const EOF_MARKER: &str = "# EOF\n";

/// Versions of OpenMetrics that a client may request for the one that is written.
const OPEN_METRICS_VERSIONS: [&str; 2] = ["0.0.1", "1.0.0"];

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4, which every reader understands.
    Prometheus,
    /// The OpenMetrics text format, version 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// Returns the format that a client prefers: OpenMetrics only if its `Accept` header names it,
    /// and rates it at least as high as `text/plain`. Without the header it is that of Prometheus,
    /// as for a kubelet, containerd and the node exporter.
    #[must_use]
    pub fn negotiated(accept: Option<&str>) -> Self {
        let (mut text, mut open_metrics) = (0.0, 0.0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let value = |name: &str| {
                let found = parameters.iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim().trim_matches('"'))
            };
            let quality: f64 = value("q").map_or(1.0, |quality| quality.parse().unwrap_or(0.0));
            let is_known = value("version").is_none_or(|it| OPEN_METRICS_VERSIONS.contains(&it));
            match media.as_str() {
                "application/openmetrics-text" if is_known => open_metrics = quality.max(open_metrics),
                "text/plain" | "text/*" => text = quality.max(text),
                _ => {}
            }
        }
        match open_metrics.total_cmp(&0.0_f64.max(text)) {
            Ordering::Less => Self::Prometheus,
            _ if open_metrics <= 0.0 => Self::Prometheus,
            _ => Self::OpenMetrics,
        }
    }

    /// Returns the content type of the format.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => PROMETHEUS,
            Self::OpenMetrics => OPEN_METRICS,
        }
    }

    /// Returns the last line of the format; empty if it has none.
    #[must_use]
    pub fn end(self) -> &'static str {
        match self {
            Self::Prometheus => "",
            Self::OpenMetrics => EOF_MARKER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_written_only_for_a_client_that_requests_it() {
        use MetricsFormat::{OpenMetrics, Prometheus};
        // The header of Prometheus 2.42 and 3.
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (None, Prometheus),
            (Some(""), Prometheus),
            (Some("*/*"), Prometheus),
            (Some("text/plain;version=0.0.4"), Prometheus),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), Prometheus),
            (Some("application/openmetrics-text"), OpenMetrics),
            (Some("Application/OpenMetrics-Text; version=\"1.0.0\""), OpenMetrics),
            (Some("application/openmetrics-text;version=2.0.0"), Prometheus),
            (Some("application/openmetrics-text;q=0"), Prometheus),
            (Some("application/openmetrics-text;q=0.2,text/plain;q=0.3"), Prometheus),
            (Some(prometheus_2), OpenMetrics),
            (Some(prometheus_3), OpenMetrics),
        ] {
            assert_eq!(MetricsFormat::negotiated(accept), format, "{accept:?}");
        }
    }
}
