//! Words as Go writes them: people know them from the kubelet's events, and search for them.

use std::fmt::Write as _;

use tonic::{Code, Status};

/// A text in quotes, as `%q`.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\u{7}' => quoted.push_str(r"\a"),
            '\u{8}' => quoted.push_str(r"\b"),
            '\u{c}' => quoted.push_str(r"\f"),
            '\n' => quoted.push_str(r"\n"),
            '\r' => quoted.push_str(r"\r"),
            '\t' => quoted.push_str(r"\t"),
            '\u{b}' => quoted.push_str(r"\v"),
            // Writing to a string does not fail.
            control if control < ' ' || control == '\u{7f}' => {
                let _ = write!(quoted, r"\x{:02x}", u32::from(control));
            }
            control if control.is_control() => {
                let _ = write!(quoted, r"\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// A duration of whole seconds, as `%v`: `1s`, `1m30s`, `1h0m0s`.
pub(crate) fn format_seconds(seconds: u32) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// An error of gRPC, as grpc-go writes it.
pub(super) fn rpc_error(status: &Status) -> String {
    let code = match status.code() {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_equals_that_of_go() {
        assert_eq!(quote("a \"b\" \\ \n\u{1b}ö"), r#""a \"b\" \\ \n\x1bö""#);
        for (count, text) in [(1, "1s"), (60, "1m0s"), (90, "1m30s"), (3600, "1h0m0s"), (7265, "2h1m5s")] {
            assert_eq!(format_seconds(count), text);
        }
        let error = rpc_error(&Status::cancelled("context canceled"));
        assert_eq!(error, "rpc error: code = Canceled desc = context canceled");
    }
}
