//! Standard output: its width, its colours, and the detection of a closed pipe.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::os::fd::AsFd;

use super::{is_no_color, shortened};

/// Environment variables that select the character set, the strongest first.
const LOCALE_VARIABLES: [&str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];

/// Characters of probeshim's own texts outside ASCII, with their replacements.
const ASCII_REPLACEMENTS: [(char, &str); 14] = [
    ('…', "..."),
    ('µ', "u"),
    ('×', "x"),
    ('–', "-"),
    ('→', "->"),
    ('█', "#"),
    ('▉', "#"),
    ('▊', "#"),
    ('▋', "#"),
    ('▌', "#"),
    ('▍', "#"),
    ('▎', "#"),
    ('▏', "#"),
    ('\u{a0}', " "),
];

/// Maximum width of lines, and use of colours and characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Width of the terminal, in columns; `None` for no limit.
    pub(crate) width: Option<usize>,
    /// Whether styles are written.
    pub(crate) colour: bool,
    /// Whether the locale's character set is UTF-8. Otherwise probeshim's own texts are written in
    /// ASCII.
    pub(crate) utf8: bool,
}

impl Screen {
    /// Returns the properties of standard output. Only a terminal has a width limit, and colours
    /// unless `NO_COLOR` or `TERM=dumb` disables them.
    pub(crate) fn stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// Returns a terminal of 80 columns without colours.
    pub(crate) fn narrow() -> Self {
        Self { width: Some(80), colour: false, utf8: true }
    }

    /// Returns the properties of standard error, by the same rules.
    pub(crate) fn stderr() -> Self {
        Self::of(&io::stderr())
    }

    fn of(output: &(impl io::IsTerminal + AsFd)) -> Self {
        let utf8 = is_utf8(|name| std::env::var(name).ok());
        if !output.is_terminal() {
            return Self { width: None, colour: false, utf8 };
        }
        let width = rustix::termios::tcgetwinsize(output).ok().map(|size| usize::from(size.ws_col));
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        // A terminal that does not know its width reports 0.
        Self { width: width.filter(|width| *width > 0), colour: !is_no_color() && !is_dumb, utf8 }
    }

    /// Returns the text, or the longest prefix that fits into this number of columns together with
    /// an ellipsis. [`Self::encode`] does not change the width of the result.
    pub(crate) fn shortened(self, text: &str, columns: usize) -> Cow<'_, str> {
        match shortened(text, columns) {
            Cow::Owned(_) if !self.utf8 => {
                let prefix = shortened(text, columns.saturating_sub(2));
                Cow::Owned([prefix.trim_end_matches('…'), self.ellipsis(columns)].concat())
            }
            shown => shown,
        }
    }

    /// Returns an ellipsis of at most this number of columns.
    pub(crate) fn ellipsis(self, columns: usize) -> &'static str {
        let ellipsis = if self.utf8 { "…" } else { "..." };
        let end = if self.utf8 && columns > 0 { ellipsis.len() } else { columns.min(ellipsis.len()) };
        ellipsis.get(..end).unwrap_or_default()
    }

    /// Returns the text in characters that the locale has: without UTF-8, replaces the characters
    /// that probeshim itself writes. Names and outputs of others keep their characters.
    pub(crate) fn encode(self, text: &str) -> Cow<'_, str> {
        if self.utf8 || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut ascii = String::with_capacity(text.len());
        for c in text.chars() {
            match ASCII_REPLACEMENTS.iter().find(|(known, _)| *known == c) {
                Some((_, replacement)) => ascii.push_str(replacement),
                None => ascii.push(c),
            }
        }
        Cow::Owned(ascii)
    }

    /// Prints lines for people, see [`print()`].
    pub(crate) fn print(self, text: &str) -> anyhow::Result<bool> {
        print(&self.encode(text))
    }
}

/// Returns whether the locale's character set is UTF-8 (POSIX: the first variable that is not empty
/// decides).
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = LOCALE_VARIABLES.into_iter().filter_map(variable).find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Prints lines. Returns `false` once standard output is closed, as in `probeshim calls | head`.
pub fn print(text: &str) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(gone) if gone.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_variable_that_is_not_empty_selects_the_character_set() {
        for (all, ctype, lang, utf8) in [
            ("", "", "en_US.UTF-8", true),
            ("C", "", "en_US.UTF-8", false),
            ("", "C.utf8", "C", true),
            ("", "", "", false),
        ] {
            let value = |name: &str| {
                let value = match name {
                    "LC_ALL" => all,
                    "LC_CTYPE" => ctype,
                    _ => lang,
                };
                Some(value.to_owned())
            };
            assert_eq!(is_utf8(value), utf8, "{all:?} {ctype:?} {lang:?}");
        }
    }

    #[test]
    fn without_utf8_own_characters_are_replaced_and_cut_texts_keep_their_width() {
        let ascii = Screen { width: None, colour: false, utf8: false };
        assert_eq!(ascii.encode("85.3µs  ██▌ größer …"), "85.3us  ### größer ...");
        for (columns, shown) in [(9, "long name"), (8, "long ..."), (3, "..."), (2, ".."), (0, "")] {
            assert_eq!(ascii.shortened("long name", columns), shown, "{columns}");
        }
        let utf8 = Screen { utf8: true, ..ascii };
        assert_eq!((utf8.encode("µ…").as_ref(), utf8.shortened("long name", 8).as_ref()), ("µ…", "long na…"));
    }
}
