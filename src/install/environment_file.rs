//! Reads and writes environment files of systemd (`EnvironmentFile=` in systemd.exec(5)).

use std::iter::Peekable;
use std::str::Chars;

/// Returns the last value that an environment file gives to a variable.
#[must_use]
pub(super) fn value_in_file(text: &str, variable: &str) -> Option<String> {
    let mut reader = EnvironmentReader { rest: text.chars().peekable() };
    let mut found = None;
    while let Some((name, value)) = reader.assignment() {
        if name == variable {
            found = Some(value);
        }
    }
    found
}

/// Returns the value that `Environment=` gives to a variable: assignments separated by white space,
/// each of them quoted or not.
#[must_use]
pub(super) fn value_in_directive(text: &str, variable: &str) -> Option<String> {
    let mut reader = EnvironmentReader { rest: text.chars().peekable() };
    let mut found = None;
    while let Some(word) = reader.word() {
        if let Some((name, value)) = word.split_once('=')
            && name == variable
        {
            found = Some(value.to_owned());
        }
    }
    found
}

/// Returns an assignment for an environment file. The value has no line breaks.
#[must_use]
pub(super) fn assignment(variable: &str, value: &str) -> String {
    let mut text = format!("{variable}=\"");
    for c in value.chars() {
        if matches!(c, '"' | '\\' | '`' | '$') {
            text.push('\\');
        }
        text.push(c);
    }
    text + "\""
}

struct EnvironmentReader<'a> {
    rest: Peekable<Chars<'a>>,
}

impl EnvironmentReader<'_> {
    /// Returns the next assignment of a file.
    fn assignment(&mut self) -> Option<(String, String)> {
        loop {
            self.skip_white_space();
            match self.rest.peek()? {
                '#' | ';' => self.skip_line(),
                _ => {
                    let mut name = String::new();
                    while let Some(c) = self.rest.next_if(|c| !matches!(c, '=' | '\n')) {
                        name.push(c);
                    }
                    if self.rest.next_if_eq(&'=').is_some() {
                        return Some((name.trim().to_owned(), self.value()));
                    }
                }
            }
        }
    }

    /// Returns a value up to the end of its line.
    fn value(&mut self) -> String {
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        let (mut value, mut is_quoted) = (String::new(), false);
        while let Some(c) = self.rest.next() {
            match c {
                '\n' => break,
                '\'' | '"' => {
                    self.quoted(c, &mut value);
                    is_quoted = true;
                }
                '\\' => value.extend(self.rest.next().filter(|c| *c != '\n')),
                c => value.push(c),
            }
        }
        if is_quoted { value } else { value.trim_end().to_owned() }
    }

    /// Returns the next word.
    fn word(&mut self) -> Option<String> {
        self.skip_white_space();
        self.rest.peek()?;
        let mut word = String::new();
        while let Some(c) = self.rest.next() {
            match c {
                c if c.is_whitespace() => break,
                '\'' | '"' => self.quoted(c, &mut word),
                '\\' => word.extend(self.rest.next()),
                c => word.push(c),
            }
        }
        Some(word)
    }

    /// Appends the text up to the closing quotation mark. Within double quotation marks, a
    /// backslash escapes the characters that are special there.
    fn quoted(&mut self, mark: char, value: &mut String) {
        while let Some(c) = self.rest.next() {
            match c {
                c if c == mark => return,
                '\\' if mark == '"' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(c @ ('"' | '\\' | '`' | '$')) => value.push(c),
                    Some(c) => value.extend(['\\', c]),
                },
                c => value.push(c),
            }
        }
    }

    fn skip_white_space(&mut self) {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
    }

    /// Skips a comment. A backslash at the end of its line continues it.
    fn skip_line(&mut self) {
        while let Some(c) = self.rest.next() {
            match c {
                '\n' => return,
                '\\' => drop(self.rest.next()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_assignment_of_a_variable_in_an_environment_file_is_its_value() {
        for (text, value) in [
            ("KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1 -v=2 \n", Some("--node-ip=10.0.0.1 -v=2")),
            ("KUBELET_EXTRA_ARGS=\"--a --b\"", Some("--a --b")),
            ("KUBELET_EXTRA_ARGS='--a=\"x\"'\n", Some("--a=\"x\"")),
            ("# KUBELET_EXTRA_ARGS=no\nKUBELET_EXTRA_ARGS=yes\nOTHER=1\n", Some("yes")),
            ("KUBELET_EXTRA_ARGS=first\nKUBELET_EXTRA_ARGS=second", Some("second")),
            ("KUBELET_EXTRA_ARGS=--a \\\n  --b", Some("--a   --b")),
            ("KUBELET_EXTRA_ARGS=", Some("")),
            ("no assignment\nKUBELET_EXTRA_ARGS=--a", Some("--a")),
            ("OTHER=1", None),
            ("", None),
        ] {
            assert_eq!(value_in_file(text, "KUBELET_EXTRA_ARGS").as_deref(), value, "{text:?}");
        }
    }

    #[test]
    fn environment_directives_have_several_assignments_which_may_be_quoted() {
        for (text, value) in [
            ("\"KUBELET_EXTRA_ARGS=--a --b\" OTHER=1", Some("--a --b")),
            ("OTHER=1 KUBELET_EXTRA_ARGS=--a", Some("--a")),
            ("OTHER='KUBELET_EXTRA_ARGS=--a'", None),
        ] {
            assert_eq!(value_in_directive(text, "KUBELET_EXTRA_ARGS").as_deref(), value, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_written_assignment_is_read_as_the_same_value(value in "[ -~]{0,40}") {
            let text = assignment("VALUE", &value);
            prop_assert_eq!(value_in_file(&text, "VALUE"), Some(value));
        }
    }
}
