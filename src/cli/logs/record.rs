//! Records of a container's log in the format of the CRI: `TIME STREAM TAGS CONTENT`.

use jiff::Timestamp;

use crate::terminal::is_printable;

/// A line of a log file.
#[derive(Debug, PartialEq, Eq)]
struct Record<'a> {
    time: &'a [u8],
    /// Whether the content continues in the next record of the stream.
    is_partial: bool,
    content: &'a [u8],
}

/// Prints the content of records.
#[derive(Debug)]
pub(super) struct RecordPrinter {
    /// Text before each line.
    prefix: String,
    timestamps: bool,
    /// Whether control characters are escaped, because a terminal would interpret them.
    escape: bool,
    /// Time before which lines are not printed.
    since: Option<Timestamp>,
    /// Whether the last record was partial.
    within_line: bool,
}

impl RecordPrinter {
    pub(super) fn new(prefix: String, timestamps: bool, escape: bool, since: Option<Timestamp>) -> Self {
        Self { prefix, timestamps, escape, since, within_line: false }
    }

    /// Appends the content of a line of the file. A line in another format is printed as it is.
    pub(super) fn print(&mut self, line: &[u8], text: &mut Vec<u8>) {
        let record = Record::parse(line).unwrap_or(Record { time: b"", is_partial: false, content: line });
        if self.since.is_some_and(|since| record.time().is_some_and(|time| time < since)) {
            return;
        }
        if !self.within_line {
            text.extend_from_slice(self.prefix.as_bytes());
        }
        if self.timestamps && !self.within_line && !record.time.is_empty() {
            text.extend_from_slice(record.time);
            text.push(b' ');
        }
        if self.escape {
            text.extend_from_slice(escaped(record.content).as_bytes());
        } else {
            text.extend_from_slice(record.content);
        }
        self.within_line = record.is_partial;
        if !record.is_partial {
            text.push(b'\n');
        }
    }
}

impl<'a> Record<'a> {
    fn time(&self) -> Option<Timestamp> {
        std::str::from_utf8(self.time).ok()?.parse().ok()
    }

    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
        let content = parts.next().unwrap_or_default();
        // Further tags follow after colons.
        let tag = tags.split(|byte| *byte == b':').next()?;
        let is_known = matches!(stream, b"stdout" | b"stderr") && matches!(tag, b"P" | b"F");
        is_known.then_some(Self { time, is_partial: tag == b"P", content })
    }
}

/// Returns a text in which control characters other than tabs are escaped.
fn escaped(content: &[u8]) -> String {
    let mut safe = String::with_capacity(content.len());
    for c in String::from_utf8_lossy(content).chars() {
        if is_printable(c) || c == '\t' {
            safe.push(c);
        } else {
            safe.extend(c.escape_debug());
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(lines: &[&[u8]], timestamps: bool, escape: bool) -> Vec<u8> {
        let (mut printer, mut text) =
            (RecordPrinter::new(String::new(), timestamps, escape, None), Vec::new());
        for line in lines {
            printer.print(line, &mut text);
        }
        text
    }

    #[test]
    fn records_are_printed_without_their_head_and_partial_ones_are_joined() {
        let lines: [&[u8]; 5] = [
            b"2026-01-02T03:04:05.1Z stdout F one",
            b"2026-01-02T03:04:06.1Z stderr P two, ",
            b"2026-01-02T03:04:07.1Z stderr F and more",
            b"2026-01-02T03:04:08.1Z stdout F ",
            b"not a record",
        ];
        assert_eq!(printed(&lines, false, false), b"one\ntwo, and more\n\nnot a record\n");
        let times = "2026-01-02T03:04:05.1Z one\n2026-01-02T03:04:06.1Z two, and more\n2026-01-02T03:04:08.1Z \nnot a record\n";
        assert_eq!(String::from_utf8(printed(&lines, true, false)).unwrap(), times);
    }

    #[test]
    fn lines_before_a_time_are_not_printed() {
        let since = Some("2026-01-02T03:04:06Z".parse().unwrap());
        let (mut printer, mut text) = (RecordPrinter::new(String::new(), false, false, since), Vec::new());
        let lines: [&[u8]; 4] = [
            b"2026-01-02T03:04:05.999Z stdout P old, ",
            b"2026-01-02T03:04:05.999Z stdout F and more",
            b"2026-01-02T05:04:06.5+02:00 stdout F new",
            b"not a record",
        ];
        for line in lines {
            printer.print(line, &mut text);
        }
        assert_eq!(text, b"new\nnot a record\n");
    }

    #[test]
    fn a_line_of_several_records_has_one_prefix() {
        let (mut printer, mut text) =
            (RecordPrinter::new("[web] ".to_owned(), true, false, None), Vec::new());
        for line in [&b"1 stdout P one"[..], b"2 stdout F , two", b"3 stdout F three"] {
            printer.print(line, &mut text);
        }
        assert_eq!(String::from_utf8(text).unwrap(), "[web] 1 one, two\n[web] 3 three\n");
    }

    #[test]
    fn control_characters_are_escaped_only_for_a_terminal() {
        let line: &[u8] = b"t stdout F a\tb\x1b[31m\xff";
        assert_eq!(printed(&[line], false, false), b"a\tb\x1b[31m\xff\n");
        assert_eq!(printed(&[line], false, true), "a\tb\\u{1b}[31m\u{fffd}\n".as_bytes());
    }
}
