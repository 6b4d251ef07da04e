//! Errors of the YAML parser, with their lines.

use std::path::Path;

use crate::manifest::stdin::shown_path;

/// Beginning of the parser's text about the position.
const POSITION: &str = " at line ";

/// The parser's message about a text with several documents where one is expected.
const SEVERAL_DOCUMENTS: &str = "from_str_multiple";

/// Parts of the parser's messages about a tab that indents a line.
const TABS: [&str; 3] = ["tabs disallowed", "tab cannot be used as indentation", "found a tab"];

/// Returns the error of a file that is not YAML: its path, with the line if the parser knows it,
/// and the reason.
pub(crate) fn syntax_error(path: &Path, text: &str, error: &serde_saphyr::Error) -> (String, String) {
    let path = shown_path(path);
    let message = error.without_snippet().to_string();
    if message.contains(SEVERAL_DOCUMENTS) {
        return (path.to_string(), "must be one YAML document, without --- between several".to_owned());
    }
    let is_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    if TABS.iter().any(|part| message.contains(part))
        && let Some(tab) = text.lines().position(is_tab)
    {
        return (format!("{path}:{}", tab + 1), "a tab indents this line; YAML takes blanks".to_owned());
    }
    match error.location() {
        Some(at) => {
            let reason = message.split(POSITION).next().unwrap_or(&message);
            (format!("{path}:{}", at.line()), format!("{reason} (column {})", at.column()))
        }
        None => (path.to_string(), message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_syntax_error_has_its_line_after_the_path() {
        let error_of = |text: &str| {
            let error = serde_saphyr::from_str::<Value>(text).unwrap_err();
            let (path, reason) = syntax_error(Path::new("a.yaml"), text, &error);
            format!("{path}: {reason}")
        };
        let expected = "a.yaml:2: mapping values are not allowed in this context (column 3)";
        assert_eq!(error_of("a: b\n c: d: e"), expected);
        let expected = "a.yaml:2: a tab indents this line; YAML takes blanks";
        assert_eq!([error_of("a:\n\tb: 1"), error_of("kind: Pod\n\tx: y")], [expected; 2]);
        let repeated = error_of("table: 1\ntable: 2\ntext: |\n  a\n\tb");
        assert!(!repeated.contains("a tab indents"), "{repeated}");
        assert_eq!(
            error_of("a: 1\n---\nb: 2"),
            "a.yaml: must be one YAML document, without --- between several"
        );
    }
}
