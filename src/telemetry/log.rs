//! Logs: text on a terminal, JSON lines otherwise. The program never waits for them.

use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::log_queue::{self, LineWriter, LogGuard};
use crate::terminal::format::harmless_json;
use crate::terminal::is_no_color;

/// Log levels, in the order of increasing detail.
pub const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Configuration of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    filter: String,
}

/// The text is not a log filter.
#[derive(Debug, thiserror::Error)]
#[error("must be off, error, warn, info, debug or trace, or directives such as probeshim::relay=debug: {0}")]
pub struct FilterError(String);

impl Default for LogConfig {
    fn default() -> Self {
        Self::for_level("info")
    }
}

impl LogConfig {
    fn for_level(level: &str) -> Self {
        // h2 warns about any odd client. probeshim itself logs the important ones.
        Self { filter: format!("warn,h2=error,probeshim={level}") }
    }

    fn targets(&self) -> Result<Targets, ParseError> {
        self.filter.parse()
    }
}

impl FromStr for LogConfig {
    type Err = FilterError;

    /// Parses one of [`LEVELS`], which applies to probeshim's own lines, or directives of targets
    /// and levels, such as `probeshim::relay=debug,h2=trace`, which are used unchanged.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        let config = match text {
            "" => return Err(FilterError("the filter is empty".to_owned())),
            "off" | "error" => Self { filter: text.to_owned() },
            level if LEVELS.contains(&level) => Self::for_level(level),
            directives => Self { filter: directives.to_owned() },
        };
        config.targets().map_err(|error| FilterError(error.to_string()))?;
        Ok(config)
    }
}

/// Starts logging to stderr, on a separate thread. Keep the guard until the program ends.
///
/// Returns an error if the thread cannot be started.
pub fn start(settings: &LogConfig) -> io::Result<LogGuard> {
    let (writer, guard) = log_queue::start(io::stderr())?;
    let writer = move || -> LineWriter { writer.clone() };
    let on_terminal = io::stderr().is_terminal();
    let colour = on_terminal && !is_no_color();
    let filtered = tracing_subscriber::registry().with(settings.targets().unwrap_or_default());
    if on_terminal {
        filtered.with(fmt::layer().with_writer(writer).with_ansi(colour).with_target(false)).init();
    } else {
        let json = fmt::layer().json().flatten_event(true);
        filtered.with(json.with_writer(HarmlessJson(writer)).with_ansi(false)).init();
    }
    Ok(guard)
}

/// Makes writers of JSON lines in which control characters of terminals are escaped.
struct HarmlessJson<M>(M);

/// Writes JSON lines in which control characters of terminals are escaped. Each write is one line,
/// because the subscriber writes whole lines.
struct HarmlessLines<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for HarmlessJson<M> {
    type Writer = HarmlessLines<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        HarmlessLines(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for HarmlessLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let end = &text[line.len()..];
        self.0.write_all((harmless_json(line) + end).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_json_line_escapes_terminal_controls_and_keeps_its_meaning() {
        let hostile = "\u{9b}31m \u{202e}abc\u{2066} \u{200b} größer";
        let line = serde_json::json!({"message": hostile, "n": 1}).to_string() + "\n";
        let mut written = HarmlessLines(Vec::new());
        assert_eq!(written.write(line.as_bytes()).unwrap(), line.len());
        let shown = String::from_utf8(written.0).unwrap();
        assert!(
            shown.ends_with("}\n") && shown.contains("\\u009b31m \\u202eabc\\u2066 \\u200b größer"),
            "{shown}"
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap()["message"], hostile);
    }

    #[test]
    fn a_log_level_without_a_target_applies_to_probeshim_only() {
        let filter = |text: &str| text.parse::<LogConfig>().map(|config| config.filter);
        assert_eq!(filter("debug").unwrap(), "warn,h2=error,probeshim=debug");
        assert_eq!(filter("off").unwrap(), "off");
        assert_eq!(filter("h2=trace").unwrap(), "h2=trace");
        assert_eq!(filter("info").unwrap(), LogConfig::default().filter);
        for wrong in ["probeshim=loud", "a=b=c", ""] {
            assert!(filter(wrong).unwrap_err().to_string().starts_with("must be off, error,"), "{wrong}");
        }
    }
}
