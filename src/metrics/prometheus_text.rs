//! The text format of Prometheus, version 0.0.4, from OpenMetrics. The library of metrics encodes
//! only OpenMetrics.

use std::fmt::{self, Write};

/// Converts lines of OpenMetrics to the text format of Prometheus, and writes them. The samples of
/// both are equal; the comments before them are not.
#[derive(Debug)]
pub(super) struct PrometheusText<W> {
    writer: W,
    /// Beginning of a line whose end is not written yet.
    line: String,
    /// Text of the last `# HELP`, which has the name of the family, and is written with its type.
    help: String,
}

impl<W: Write> PrometheusText<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { writer, line: String::new(), help: String::new() }
    }

    fn write_line(&mut self) -> fmt::Result {
        let Self { writer, line, help } = self;
        if let Some(text) = line.strip_prefix("# HELP ") {
            text.clone_into(help);
        } else if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.trim_end().rsplit_once(' ').unwrap_or((family, "unknown"));
            let (suffix, kind) = prometheus_type(kind);
            if let Some(help) = help.strip_prefix(name) {
                write!(writer, "# HELP {name}{suffix}{help}")?;
            }
            writeln!(writer, "# TYPE {name}{suffix} {kind}")?;
            help.clear();
        } else if !line.starts_with("# UNIT ") && !line.starts_with("# EOF") {
            writer.write_str(line)?;
        }
        line.clear();
        Ok(())
    }
}

/// Returns the suffix that a family has in the text format of Prometheus, where its name is that of
/// its samples, and its type there.
fn prometheus_type(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "stateset" => ("", "gauge"),
        "unknown" => ("", "untyped"),
        "gaugehistogram" => ("", "histogram"),
        other => ("", other),
    }
}

impl<W: Write> Write for PrometheusText<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive('\n') {
            self.line.push_str(part);
            if part.ends_with('\n') {
                self.write_line()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples_and_types_of_prometheus() {
        let open_metrics = "\
# HELP p_build Version.
# TYPE p_build info
p_build_info{version=\"1\"} 1
# HELP p_calls Calls by # EOF.
# TYPE p_calls counter
p_calls_total{path=\"# HELP\"} 2
# HELP p_took_seconds Duration.
# TYPE p_took_seconds histogram
# UNIT p_took_seconds seconds
p_took_seconds_bucket{le=\"+Inf\"} 1
# HELP p_open Open streams.
# TYPE p_open gauge
p_open 3
# HELP p_x Unknown.
# TYPE p_x unknown
p_x 4
# EOF
";
        let mut text = PrometheusText::new(String::new());
        // Lines arrive in parts.
        for character in open_metrics.chars() {
            text.write_char(character).unwrap();
        }
        let expected = "\
# HELP p_build_info Version.
# TYPE p_build_info gauge
p_build_info{version=\"1\"} 1
# HELP p_calls_total Calls by # EOF.
# TYPE p_calls_total counter
p_calls_total{path=\"# HELP\"} 2
# HELP p_took_seconds Duration.
# TYPE p_took_seconds histogram
p_took_seconds_bucket{le=\"+Inf\"} 1
# HELP p_open Open streams.
# TYPE p_open gauge
p_open 3
# HELP p_x Unknown.
# TYPE p_x untyped
p_x 4
";
        assert_eq!(text.writer, expected);
    }
}
