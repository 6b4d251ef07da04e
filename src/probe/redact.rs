//! Query strings in URLs and in messages, which may carry tokens, left out where commands are.

use std::borrow::Cow;

/// Stands where a query string was.
const REDACTED: &str = "redacted";

/// Characters that end a URL within a message, beside white space.
const ENDS: [char; 5] = ['"', '\'', '`', '<', '>'];

/// Returns a text in which the query string of each URL and path is left out.
pub(crate) fn without_queries(text: &str) -> Cow<'_, str> {
    if !text.contains('?') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| c.is_whitespace() || ENDS.contains(&c)) {
        let word = piece.trim_end_matches(|c: char| c.is_whitespace() || ENDS.contains(&c));
        match word.split_once('?') {
            // A question mark that ends a word begins no query.
            Some((path, query)) if path.contains('/') && query.chars().any(char::is_alphanumeric) => {
                shown.extend([path, "?", REDACTED, &piece[word.len()..]]);
            }
            _ => shown.push_str(piece),
        }
    }
    Cow::Owned(shown)
}

/// Returns the path of an httpGet without its query string.
pub(crate) fn path_without_query(path: &str) -> Cow<'_, str> {
    match path.split_once('?') {
        Some((path, _)) => Cow::Owned(format!("{path}?{REDACTED}")),
        None => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_strings_of_urls_are_left_out_and_nothing_else() {
        for (text, shown) in [
            (
                r#"Liveness probe failed: Get "http://10.0.0.1:80/a?token=s3cret&b=%20#c": dial tcp"#,
                r#"Liveness probe failed: Get "http://10.0.0.1:80/a?redacted": dial tcp"#,
            ),
            (
                "to https://a.test/?x then /b?y=z and /c",
                "to https://a.test/?redacted then /b?redacted and /c",
            ),
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
