//! Parses URLs, without host names beyond ASCII.
//!
//! The crate `url` is built without the tables for such names. It rejects them, but debug builds
//! assert before that the name has no capital letter, so such names are found here.

use percent_encoding::percent_decode_str;
use url::{ParseError, Url};

/// Parses an absolute URL. A host name beyond ASCII is an error.
pub(crate) fn parse(text: &str) -> Result<Url, ParseError> {
    if has_other_host(text) { Err(ParseError::IdnaError) } else { Url::parse(text) }
}

/// Returns whether a URL has a host name beyond ASCII, also as percent-encoded bytes.
fn has_other_host(text: &str) -> bool {
    // The parser of URLs skips these characters too.
    let text: String = text.chars().filter(|char| !matches!(char, '\t' | '\n' | '\r')).collect();
    let text = text.trim_start_matches(|char| char <= ' ');
    let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return false;
    };
    let authority =
        rest.trim_start_matches(['/', '\\']).split(['/', '\\', '?', '#']).next().unwrap_or_default();
    // A file's URL has no user before its host.
    let is_file = scheme.eq_ignore_ascii_case("file");
    let host = if is_file { authority } else { authority.rsplit('@').next().unwrap_or_default() };
    percent_decode_str(host).any(|byte| !byte.is_ascii())
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_name_beyond_ascii_is_an_error_also_with_capital_letters() {
        for text in [
            "http://größe.test/",
            "https:GröSSE",
            "http:\\\\GröSSE\\a",
            " ht\ntp://a@Gr%C3%B6SSE:80",
            "ftp:///gr%c3%b6%41",
            "file://%41%C3@",
        ] {
            assert_eq!(parse(text), Err(ParseError::IdnaError), "{text}");
        }
        for (text, expected) in [
            ("http://h/größe", "http://h/gr%C3%B6%C3%9Fe"),
            ("http://h:1/ö?ö#ö", "http://h:1/%C3%B6?%C3%B6#%C3%B6"),
            ("https://H", "https://h/"),
        ] {
            assert_eq!(parse(text).unwrap().as_str(), expected, "{text}");
        }
        assert_eq!(parse("/größe"), Err(ParseError::RelativeUrlWithoutBase));
    }

    proptest! {
        #[test]
        fn no_url_panics(parts in prop::collection::vec(
            prop::sample::select(vec![
                "http", "https", "file", "x", ":", "/", "\\", "//", "@", "%C3", "%B6", "%41", "ö", "Ö", "A", "b", "?",
                "#", ".", "[", "]", "\t", " ", "xn--", "1",
            ]),
            0..12,
        )) {
            let _ = parse(&parts.concat());
        }
    }
}
