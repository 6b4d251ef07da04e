//! Formats texts, durations and errors as Go does, so that messages equal those of the kubelet and
//! of containerd.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tonic::{Code, Status};

/// Quotes a text as Go's `%q` does.
#[must_use]
pub fn quote(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Quotes bytes, which may not be UTF-8, as Go's `%q` does.
#[must_use]
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        quoted += &escaped(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(quoted, r"\x{byte:02x}");
        }
    }
    quoted + "\""
}

/// Returns a text with the escape sequences of Go's `%q`.
fn escaped(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
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
            other if !is_printable(other) => {
                let code = u32::from(other);
                let _ = if code < 0x10000 {
                    write!(quoted, r"\u{code:04x}")
                } else {
                    write!(quoted, r"\U{code:08x}")
                };
            }
            other => quoted.push(other),
        }
    }
    quoted
}

/// Returns whether Go prints a character as it is (`strconv.IsPrint`): all but control and format
/// characters, private use, unassigned ones, and separators other than the space. The standard
/// library has the same rule, with a newer version of Unicode than the 15.0 of Go 1.26.
fn is_printable(letter: char) -> bool {
    // Escapes combining characters only at the start of a text.
    let mut text = [b'a'; 5];
    let length = 1 + letter.encode_utf8(&mut text[1..]).len();
    let escaped = str::from_utf8(&text[..length]).map(|text| text.escape_debug().nth(1));
    matches!(letter, '"' | '\'' | '\\') || escaped == Ok(Some(letter))
}

/// Formats a duration of a millisecond or more as `time.Duration` does: `200ms`, `1.5s`, `1m30s`,
/// `1h0m0s`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let total_seconds = duration.as_secs();
    let (hours, minutes) = (total_seconds / 3600, total_seconds / 60 % 60);
    let below_a_minute = duration.saturating_sub(Duration::from_secs(total_seconds / 60 * 60));
    let seconds = decimal(below_a_minute.as_secs(), below_a_minute.subsec_nanos(), 9);
    match (hours, minutes) {
        (0, 0) if total_seconds == 0 && !duration.is_zero() => {
            let nanoseconds = duration.subsec_nanos();
            format!("{}ms", decimal(u64::from(nanoseconds / 1_000_000), nanoseconds % 1_000_000, 6))
        }
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Formats a number with a fraction of this many digits, without zeros at its end.
fn decimal(whole: u64, fraction: u32, digits: usize) -> String {
    let number = format!("{whole}.{fraction:0digits$}");
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Joins errors, each different one once (apimachinery: `util/errors/errors.go`: `aggregate`).
#[must_use]
pub fn aggregate(errors: &[String]) -> String {
    let mut different: Vec<&str> = Vec::new();
    for error in errors {
        if !different.contains(&error.as_str()) {
            different.push(error);
        }
    }
    match different.as_slice() {
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Formats a system error as Go does: without its number, and with a lower-case first letter.
#[must_use]
pub fn system_error(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Formats a gRPC error as grpc-go does.
#[must_use]
pub fn rpc_error(status: &Status) -> String {
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
    fn text_is_quoted_as_by_go() {
        assert_eq!(quote("a \"b\" \\ \n\u{1b}ö"), r#""a \"b\" \\ \n\x1bö""#);
        assert_eq!(quote("\0\u{7}\u{8}\u{c}\r\t\u{b}\u{7f}"), r#""\x00\a\b\f\r\t\v\x7f""#);
        for (printed, escaped) in [
            // Letters, marks, numbers, punctuation and symbols.
            ("'é\u{301}٣—€\u{fffd}𝒳👍🏽", ""),
            // Control and format characters, and separators.
            ("", r"\u0085\u00a0\u00ad\u200b\u200d\u2028\u202e\u3000\ufeff\U000e0041"),
            // Private use, and unassigned ones.
            ("", r"\ue000\U0010ffff\u0378\uffff"),
        ] {
            let codes = escaped.split(['\\', 'u', 'U']).filter(|code| !code.is_empty());
            let letters = codes.map(|code| char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
            let text: String = printed.chars().chain(letters).collect();
            assert_eq!(quote(&text), format!("\"{printed}{escaped}\""));
        }
    }

    #[test]
    fn durations_are_formatted_as_by_go() {
        for (milliseconds, text) in [
            (0, "0s"),
            (200, "200ms"),
            (1000, "1s"),
            (1118, "1.118s"),
            (1500, "1.5s"),
            (60_000, "1m0s"),
            (90_000, "1m30s"),
            (3_600_000, "1h0m0s"),
            (7_265_000, "2h1m5s"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn errors_are_joined_without_repetition() {
        for (errors, expected) in
            [(&["a"][..], "a"), (&["a", "b"], "[a, b]"), (&["a", "a"], "a"), (&["a", "b", "a"], "[a, b]")]
        {
            let errors: Vec<String> = errors.iter().map(|&error| error.to_owned()).collect();
            assert_eq!(aggregate(&errors), expected);
        }
    }

    #[test]
    fn grpc_errors_are_formatted_as_by_grpc_go() {
        let error = rpc_error(&Status::cancelled("context canceled"));
        assert_eq!(error, "rpc error: code = Canceled desc = context canceled");
    }
}
