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
/// of a command or a command, and without queries of URLs. Brackets that the text before the colon
/// opens are closed, and the label of the size of a pulled image is left out with the size.
#[must_use]
pub fn redacted_message(message: &str) -> String {
    let Some((text, _)) = message.split_once(": ") else { return without_queries(message).into_owned() };
    let text = text.strip_suffix(". Image size").unwrap_or(text);
    let mut text = without_queries(text).into_owned();
    let brackets = |text: &str, bracket| text.matches(bracket).count();
    if brackets(&text, '(') > brackets(&text, ')') {
        text.push(')');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_message_is_a_complete_sentence() {
        for (message, redacted) in [
            ("Liveness probe failed: secret", "Liveness probe failed"),
            (
                "Container main failed liveness probe, will be restarted",
                "Container main failed liveness probe, will be restarted",
            ),
            (
                "Container main failed liveness probe, will be killed (not stopped: it matches --never-kill)",
                "Container main failed liveness probe, will be killed (not stopped)",
            ),
            (
                "Successfully pulled image \"web:1\" in 2s (3s including waiting). Image size: 17 bytes.",
                "Successfully pulled image \"web:1\" in 2s (3s including waiting)",
            ),
        ] {
            assert_eq!(redacted_message(message), redacted);
        }
    }
}
