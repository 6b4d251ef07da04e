//! Redaction of series and events that were recorded without it.

use super::series::ProbeSeries;
use crate::redact::{path_without_query, without_queries};
use crate::terminal::format;

impl ProbeSeries {
    /// Returns the series with only the program of its command, and without the query of its URL.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.command.truncate(1);
        self.handler = match self.command.first() {
            Some(_) => format::command(&self.command),
            None => path_without_query(&self.handler).into_owned(),
        };
        self
    }
}

/// Returns the message of an event without what follows its first colon, which may be the output
/// of a command or a command, and without queries of URLs.
#[must_use]
pub fn redacted_message(message: &str) -> String {
    let text = message.split_once(": ").map_or(message, |(text, _)| text);
    without_queries(text).into_owned()
}
