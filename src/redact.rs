//! Redaction of query strings, which may carry tokens, in URLs, paths and messages.

use std::borrow::Cow;

/// Replacement of a query string.
const REDACTED: &str = "redacted";

/// Returns the text with `redacted` in place of the query string of each URL and path. A query
/// string in double quotes ends at the closing quote, any other at the next white space. Other
/// quotes and brackets do not end a query string, because they may be part of it.
#[must_use]
pub fn without_queries(text: &str) -> Cow<'_, str> {
    if !text.contains('?') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for (nth, part) in split_at_quotes(text).into_iter().enumerate() {
        if nth > 0 {
            shown.push('"');
        }
        if nth % 2 == 1 {
            push_without_query(&mut shown, part);
            continue;
        }
        for piece in part.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            push_without_query(&mut shown, word);
            shown.push_str(&piece[word.len()..]);
        }
    }
    Cow::Owned(shown)
}

/// Appends a word or a quoted text, with its query string redacted. A query string begins at a
/// question mark that has a slash before it and a letter or digit after it.
fn push_without_query(shown: &mut String, text: &str) {
    let begins_query =
        |at: &usize| text[..*at].contains('/') && text[at + 1..].chars().any(char::is_alphanumeric);
    match text.match_indices('?').map(|(at, _)| at).find(begins_query) {
        Some(at) => shown.extend([&text[..at], "?", REDACTED]),
        None => shown.push_str(text),
    }
}

/// Splits a text at each double quote that is not escaped by a backslash. The parts with odd
/// indices were quoted.
fn split_at_quotes(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut is_escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        if letter == '"' && !is_escaped {
            parts.push(&text[begin..at]);
            begin = at + 1;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    parts.push(&text[begin..]);
    parts
}

/// Returns the path of an httpGet without its query string.
#[must_use]
pub fn path_without_query(path: &str) -> Cow<'_, str> {
    match path.split_once('?') {
        Some((path, _)) => Cow::Owned(format!("{path}?{REDACTED}")),
        None => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redaction_removes_the_query_strings_of_urls_and_nothing_else() {
        for (text, shown) in [
            (
                r#"Liveness probe failed: Get "http://10.0.0.1:80/a?token=s3cret&b=%20#c": dial tcp"#,
                r#"Liveness probe failed: Get "http://10.0.0.1:80/a?redacted": dial tcp"#,
            ),
            (
                "to https://a.test/?x then /b?y=z and /c",
                "to https://a.test/?redacted then /b?redacted and /c",
            ),
            (
                r#"Get "http://10.0.0.1:80/ready?token='s3cret'": dial"#,
                r#"Get "http://10.0.0.1:80/ready?redacted": dial"#,
            ),
            (r#"Get "http://a/?q=a s3cret": EOF"#, r#"Get "http://a/?redacted": EOF"#),
            (r#"Get "http://a/?q=\"s3cret\"&b": EOF"#, r#"Get "http://a/?redacted": EOF"#),
            (r#"Get "http://a/?x=<s3cret>": EOF"#, r#"Get "http://a/?redacted": EOF"#),
            ("/a?'s3cret' and /b?`s3cret`", "/a?redacted and /b?redacted"),
            (r#"<a href="/a?s3cret">Found</a>"#, r#"<a href="/a?redacted">Found</a>"#),
            (r#"cut: "http://a/?q='s3cret' s3cr"#, r#"cut: "http://a/?redacted"#),
            ("really?/a?b=s3cret", "really?/a?redacted"),
            (r#"exec "sh" failed: what? "no""#, r#"exec "sh" failed: what? "no""#),
            ("is it /there? yes: what?", "is it /there? yes: what?"),
            ("HTTP probe failed with statuscode: 500", "HTTP probe failed with statuscode: 500"),
            ("", ""),
        ] {
            assert_eq!(without_queries(text), shown);
        }
        assert_eq!(path_without_query("/a?b=c d\"e"), "/a?redacted");
        assert_eq!(path_without_query("/a"), "/a");
    }
}
