//! Formats numbers and texts for people.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use jiff::Timestamp;

use super::{MAX_NAME_WIDTH, is_printable, shortened, width as columns};

/// Formats a duration with three digits: `850µs`, `35.2ms`, `1.25s`, `2m05s`, `3h02m`.
pub(crate) fn duration(duration: Duration) -> String {
    milliseconds(duration.as_secs_f64() * 1e3)
}

/// Formats a number of milliseconds like [`duration`].
pub(crate) fn milliseconds(milliseconds: f64) -> String {
    let seconds = milliseconds / 1e3;
    if seconds >= 3599.5 {
        let minutes = (seconds / 60.0).round();
        format!("{}h{:02}m", (minutes / 60.0).floor(), minutes % 60.0)
    } else if seconds >= 99.95 {
        let seconds = seconds.round();
        format!("{}m{:02}s", (seconds / 60.0).floor(), seconds % 60.0)
    } else if milliseconds >= 999.5 {
        format!("{}s", digits(seconds))
    } else if milliseconds >= 0.9995 {
        format!("{}ms", digits(milliseconds))
    } else {
        format!("{}µs", digits(milliseconds * 1e3))
    }
}

/// Formats a number of things: `1 call`, `2 calls`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// Formats a size: `0 B`, `512 B`, `1.50 KiB`, `16.0 MiB`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{} {unit}", digits(value)) }
}

/// Formats a number below a thousand with three digits.
fn digits(value: f64) -> String {
    let decimals = if value >= 99.95 || value == 0.0 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

/// Formats an RFC 3339 time: the time of day, after the date if that is not the date of `now`;
/// returns any other text unchanged. Dates are in UTC.
pub(crate) fn recent_time(text: &str, now: Timestamp) -> String {
    let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
    let has_same = |format: &str| time.strftime(format).to_string() == now.strftime(format).to_string();
    let format = match (has_same("%F"), has_same("%Y")) {
        (true, _) => "%H:%M:%S%.3f",
        (false, true) => "%b %d %H:%M:%S",
        (false, false) => "%F %H:%M:%S",
    };
    time.strftime(format).to_string()
}

/// Wraps a text at blanks into lines of at most `width` columns. Lines after the first are indented
/// by two. A word that is longer than any Kubernetes name is shortened, so that the text after it
/// stays readable.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    wrapped_from(text, 0, 2, width)
}

/// Wraps a text as [`wrapped`] does. `used` columns of the first line are in use, and the lines
/// after it are indented by `indent`.
pub(crate) fn wrapped_from(text: &str, used: usize, indent: usize, width: usize) -> String {
    let (mut wrapped, mut used, start) = (String::with_capacity(text.len()), used, used);
    for word in text.split(' ') {
        let word = shortened(word, MAX_NAME_WIDTH);
        let length = columns(&word);
        let is_first = wrapped.is_empty() && used == start;
        if !is_first && used + 1 + length > width {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else if !is_first {
            wrapped.push(' ');
            used += 1;
        }
        wrapped.push_str(&word);
        used += length;
    }
    wrapped
}

/// Formats how often something happened: `once`, `twice`, `3 times`.
pub(crate) fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// Returns a text with a capital letter at its beginning.
pub(crate) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Formats a command with the quoting of a shell.
pub(crate) fn command(args: &[String]) -> String {
    let quoted: Vec<String> = args.iter().map(|arg| quote(arg)).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns equivalent JSON without characters that control a terminal. JSON itself requires only
/// the first 32 characters to be escaped.
pub(crate) fn harmless_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if is_printable(c) {
            safe.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    safe
}

/// Returns equivalent JSON with a line for each member and item, indented by two. The order of
/// members is kept.
pub(crate) fn indented_json(json: &str) -> String {
    let (mut text, mut depth, mut in_string, mut is_escaped) = (String::new(), 0_usize, false, false);
    let mut characters = json.chars().peekable();
    let break_line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = characters.next() {
        if in_string {
            in_string = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            text.push(c);
            continue;
        }
        match c {
            '{' | '[' => {
                text.push(c);
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    break_line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                break_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                in_string = c == '"';
                text.push(c);
            }
        }
    }
    text
}

/// Formats the age of an RFC 3339 time, as `30s` or `2d`; returns any other text unchanged.
pub(crate) fn age(text: &str, now: Timestamp) -> String {
    let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
    let seconds = now.duration_since(time).as_secs().max(0);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Formats the time until an RFC 3339 time like [`duration`]; returns any other text unchanged.
pub(crate) fn time_until(text: &str, now: Timestamp) -> String {
    let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
    duration(Duration::try_from(time.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_json_is_equivalent_and_has_the_order_of_its_members() {
        let json = r#"{"b":{"x":[1,{"y":"a\\\",: []{}\\\\"}],"e":[ ],"o":{}},"a":null}"#;
        let text = indented_json(json);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&text), value(json));
        let expected = "{\n  \"b\": {\n    \"x\": [\n      1,\n      {\n        \"y\": ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("],\n    \"e\": [],\n    \"o\": {}\n  },\n  \"a\": null\n}"), "{text}");
    }

    #[test]
    fn a_time_of_another_day_is_shown_with_its_date() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        for (time, shown) in [
            ("2026-01-02T00:00:00.123Z", "00:00:00.123"),
            ("2026-01-01T23:59:59.999Z", "Jan 01 23:59:59"),
            ("2025-12-31T23:59:59.999Z", "2025-12-31 23:59:59"),
            ("unknown", "unknown"),
        ] {
            assert_eq!(recent_time(time, now), shown);
        }
    }

    #[test]
    fn durations_are_shown_with_three_digits() {
        for (milliseconds, shown) in [
            (0.0, "0µs"),
            (0.0853, "85.3µs"),
            (0.85, "850µs"),
            (0.9999, "1.00ms"),
            (35.21, "35.2ms"),
            (999.4, "999ms"),
            (999.6, "1.00s"),
            (1250.0, "1.25s"),
            (99_949.0, "99.9s"),
            (99_951.0, "1m40s"),
            (125_000.0, "2m05s"),
            (3_599_600.0, "1h00m"),
            (10_920_000.0, "3h02m"),
        ] {
            assert_eq!(super::milliseconds(milliseconds), shown, "{milliseconds}");
        }
    }

    #[test]
    fn sizes_are_shown_with_units() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (1536, "1.50 KiB"),
            (16 << 20, "16.0 MiB"),
            (5 << 40, "5.00 TiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn ages_are_shown_with_one_unit() {
        let now = "2026-11-21T13:09:32Z".parse().unwrap();
        for (then, shown) in
            [("2026-11-21T13:09:02Z", "30s"), ("2026-11-21T12:00:00Z", "1h"), ("2026-11-19T12:00:00Z", "2d")]
        {
            assert_eq!(age(then, now), shown);
        }
    }

    #[test]
    fn long_texts_are_broken_at_blanks() {
        assert_eq!(wrapped("one two three", 100), "one two three");
        assert_eq!(wrapped("one two three four", 8), "one two\n  three\n  four");
        assert_eq!(wrapped("a-word-that-is-too-long x", 8), "a-word-that-is-too-long\n  x");
        let long = format!("pod {} was slow", "p".repeat(1_000_000));
        assert_eq!(wrapped(&long, 80), format!("pod\n  {}…\n  was slow", "p".repeat(MAX_NAME_WIDTH - 1)));
    }

    #[test]
    fn a_capital_letter_changes_only_the_beginning_of_a_text() {
        assert_eq!(["", "änder it", "a B c"].map(capitalized), ["", "Änder it", "A B c"]);
    }

    #[test]
    fn shown_commands_are_quoted_for_the_shell() {
        let args = ["sh", "-c", "test -f /tmp/it's", ""].map(str::to_owned);
        assert_eq!(command(&args), r"sh -c 'test -f /tmp/it'\''s' ''");
    }

    #[test]
    fn escaped_json_keeps_its_meaning() {
        let hostile = "it's \u{1b}[31m \u{7f}\u{9b}31m \u{202e} \u{e0001} größer 日本";
        let json = serde_json::to_string(hostile).unwrap();
        let safe = harmless_json(&json);
        assert_eq!(safe, r#""it's \u001b[31m \u007f\u009b31m \u202e \udb40\udc01 größer 日本""#);
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
    }
}
