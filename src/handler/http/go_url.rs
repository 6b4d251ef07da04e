//! Conversion of the path of a probe to the request target of the kubelet
//! (`pkg/probe/http/request.go`: `formatURL`). The path is a URL reference, as Go parses it. A text
//! that is no reference is taken as a literal path.

/// Returns the path and the query of a reference. The scheme and the host of a reference are
/// ignored.
pub(super) fn target(reference: &str) -> String {
    let (path, query) = match parsed(reference) {
        Some((path, query)) => (escaped(path), query),
        None => (escape(reference.as_bytes()), None),
    };
    let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{slash}{path}{query}")
}

/// Returns the path and the query of a reference; `None` if the text is no reference.
fn parsed(reference: &str) -> Option<(&str, Option<&str>)> {
    if reference.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return None;
    }
    let (reference, fragment) = cut(reference, '#');
    unescaped(fragment.unwrap_or_default())?;
    let (scheme, rest) = scheme(reference)?;
    let (rest, query) = cut(rest, '?');
    let path = if scheme.is_some() && !rest.starts_with('/') {
        rest
    } else if let Some(rest) =
        rest.strip_prefix("//").filter(|rest| scheme.is_some() || !rest.starts_with('/'))
    {
        rest.find('/').map_or("", |path| &rest[path..])
    } else {
        let first = rest.split('/').next().unwrap_or_default();
        if !rest.starts_with('/') && first.contains(':') {
            return None;
        }
        rest
    };
    unescaped(path)?;
    Some((path, query))
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Returns the scheme of a reference, if it has one, and the rest. Returns `None` if the reference
/// begins with a colon.
fn scheme(reference: &str) -> Option<(Option<&str>, &str)> {
    for (place, byte) in reference.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if place > 0 => {}
            b':' if place == 0 => return None,
            b':' => return Some((Some(&reference[..place]), &reference[place + 1..])),
            _ => break,
        }
    }
    Some((None, reference))
}

/// Returns the bytes that a text represents; `None` if a `%` is not followed by two hexadecimal
/// digits.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    Some(bytes)
}

/// Returns the path as it is sent: unchanged if it is a valid encoding, otherwise encoded again.
fn escaped(path: &str) -> String {
    let is_valid = path.bytes().all(|byte| byte == b'%' || is_plain(byte) || b"!'()*[]".contains(&byte));
    if is_valid { path.to_owned() } else { escape(&unescaped(path).unwrap_or_default()) }
}

fn escape(path: &[u8]) -> String {
    let escape = |byte: &u8| {
        if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    };
    path.iter().map(escape).collect()
}

/// Returns whether a byte needs no escape in a path.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats `TestFormatURL` (`pkg/probe/http/request_test.go`), with further references.
    #[test]
    fn upstream_test_format_url() {
        for (path, expected) in [
            ("", ""),
            ("/path", "/path"),
            ("?foo", "?foo"),
            ("/path?bar", "/path?bar"),
            ("path", "/path"),
            ("/a b?c d", "/a%20b?c d"),
            ("/a%2Fb", "/a%2Fb"),
            ("/100%", "/100%25"),
            ("/100%?a=b", "/100%25%3Fa=b"),
            ("/path#part", "/path"),
            ("http://other:1/x?y", "/x?y"),
            ("//other/x", "/x"),
            ("a:b", "/b"),
            ("1:b", "/1:b"),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
    }
}
