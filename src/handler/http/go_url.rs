//! URLs as Go parses, resolves and writes them (Go 1.26: `net/url/url.go`). Texts are bytes,
//! because the location of a redirect may be any.

use std::net::IpAddr;

use crate::gofmt::quote_bytes;

/// A URL, or a reference that is relative to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GoUrl {
    /// Scheme in lower case; empty for a relative reference.
    pub(super) scheme: String,
    /// User before the host.
    pub(super) user: Option<UserInfo>,
    /// Host and port. Escapes are decoded.
    pub(super) host: Vec<u8>,
    /// Rest of a URL whose scheme is followed by no slash, such as `mailto:a@b`.
    opaque: Vec<u8>,
    /// Path. Escapes are decoded.
    path: Vec<u8>,
    /// Path as it was written, if it is not the one that escaping the path would give.
    raw_path: Vec<u8>,
    /// Query as it was written, without its question mark.
    query: Vec<u8>,
    /// Whether the query is written although it is empty.
    force_query: bool,
    /// Fragment. Escapes are decoded.
    fragment: Vec<u8>,
    /// Whether a scheme is followed by a path without a host.
    omit_host: bool,
}

/// An error of a URL, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlError {
    /// The URL, as far as it was parsed.
    pub(super) url: Vec<u8>,
    pub(super) reason: String,
}

/// User and password of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserInfo {
    pub(super) name: Vec<u8>,
    pub(super) password: Option<Vec<u8>>,
}

/// A part of a URL, which decides which bytes are escaped (`shouldEscape`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Fragment,
}

impl GoUrl {
    /// Parses a URL or a reference.
    pub(super) fn parse(text: &[u8]) -> Result<Self, UrlError> {
        let (before, fragment) = cut(text, b'#');
        let failed = |text: &[u8], reason: String| UrlError { url: text.to_vec(), reason };
        let mut url = Self::parse_without_fragment(before).map_err(|reason| failed(before, reason))?;
        if let Some(fragment) = fragment.filter(|fragment| !fragment.is_empty()) {
            url.fragment = unescaped(fragment, Part::Fragment).map_err(|reason| failed(text, reason))?;
        }
        Ok(url)
    }

    fn parse_without_fragment(text: &[u8]) -> Result<Self, String> {
        if text.iter().any(u8::is_ascii_control) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text == b"*" {
            return Ok(Self { path: b"*".to_vec(), ..Self::default() });
        }
        let (scheme, rest) = scheme(text)?;
        let mut url =
            Self { scheme: String::from_utf8_lossy(scheme).to_ascii_lowercase(), ..Self::default() };
        let (mut rest, query) = cut(rest, b'?');
        url.force_query = query.is_some_and(<[u8]>::is_empty);
        url.query = query.unwrap_or_default().to_vec();
        if !rest.starts_with(b"/") {
            if !url.scheme.is_empty() {
                url.opaque = rest.to_vec();
                return Ok(url);
            }
            if cut(rest, b'/').0.contains(&b':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let may_have_host = !url.scheme.is_empty() || !rest.starts_with(b"///");
        if let Some(authority) = rest.strip_prefix(b"//").filter(|_| may_have_host) {
            let end = authority.iter().position(|byte| *byte == b'/').unwrap_or(authority.len());
            let (authority, path) = authority.split_at(end);
            url.set_authority(authority)?;
            rest = path;
        } else {
            url.omit_host = !url.scheme.is_empty() && rest.starts_with(b"/");
        }
        url.set_path(rest)?;
        Ok(url)
    }

    /// Returns a URL whose path is this text, literally.
    pub(super) fn of_path(path: &str) -> Self {
        Self { path: path.as_bytes().to_vec(), ..Self::default() }
    }

    fn set_authority(&mut self, authority: &[u8]) -> Result<(), String> {
        let at = authority.iter().rposition(|byte| *byte == b'@');
        let host = at.map_or(authority, |at| &authority[at + 1..]);
        self.host = parse_host(&self.scheme, host)?;
        let Some(user) = at.map(|at| &authority[..at]) else { return Ok(()) };
        let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte);
        if !user.iter().all(is_valid) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        let (name, password) = cut(user, b':');
        let password = password.map(|password| unescaped(password, Part::User));
        self.user = Some(UserInfo { name: unescaped(name, Part::User)?, password: password.transpose()? });
        Ok(())
    }

    /// Sets the path from its written form.
    fn set_path(&mut self, written: &[u8]) -> Result<(), String> {
        self.path = unescaped(written, Part::Path)?;
        self.raw_path =
            if escaped(&self.path, Part::Path) == written { Vec::new() } else { written.to_vec() };
        Ok(())
    }

    /// Returns the path as it is written: as it was, if that is a valid form, and otherwise
    /// escaped.
    fn escaped_path(&self) -> Vec<u8> {
        let is_valid = |byte: &u8| b"!'()*[]%".contains(byte) || is_plain(*byte, Part::Path);
        let is_same = || unescaped(&self.raw_path, Part::Path).is_ok_and(|path| path == self.path);
        if !self.raw_path.is_empty() && self.raw_path.iter().all(is_valid) && is_same() {
            return self.raw_path.clone();
        }
        if self.path == b"*" { self.path.clone() } else { escaped(&self.path, Part::Path) }
    }

    /// Returns the URL as text. `password` replaces a password.
    fn to_bytes_with(&self, password: Option<&str>) -> Vec<u8> {
        let mut text = Vec::new();
        if !self.scheme.is_empty() {
            text.extend_from_slice(self.scheme.as_bytes());
            text.push(b':');
        }
        if self.opaque.is_empty() {
            let has_authority = !self.host.is_empty() || self.user.is_some();
            let is_written = (!self.scheme.is_empty() && !self.omit_host) || has_authority;
            if is_written && (has_authority || !self.path.is_empty()) {
                text.extend_from_slice(b"//");
            }
            if let Some(user) = &self.user {
                text.extend(user.to_bytes(password));
                text.push(b'@');
            }
            text.extend(escaped(&self.host, Part::Host));
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with(b"/") && !self.host.is_empty() {
                text.push(b'/');
            }
            if text.is_empty() && cut(&path, b'/').0.contains(&b':') {
                text.extend_from_slice(b"./");
            }
            text.extend(path);
        } else {
            text.extend_from_slice(&self.opaque);
        }
        self.add_query(&mut text);
        if !self.fragment.is_empty() {
            text.push(b'#');
            text.extend(escaped(&self.fragment, Part::Fragment));
        }
        text
    }

    fn add_query(&self, text: &mut Vec<u8>) {
        if self.force_query || !self.query.is_empty() {
            text.push(b'?');
            text.extend_from_slice(&self.query);
        }
    }

    /// Returns the URL as text (`String`).
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_with(None)
    }

    /// Returns the URL as errors show it, without its password (`http/client.go`: `stripPassword`).
    pub(super) fn without_password(&self) -> Vec<u8> {
        self.to_bytes_with(Some("***"))
    }

    /// Returns the URL without user and password, as referers have it.
    pub(super) fn without_user(&self) -> Vec<u8> {
        Self { user: None, ..self.clone() }.to_bytes()
    }

    /// Returns the target of a request for this URL (`RequestURI`).
    pub(super) fn request_target(&self) -> Vec<u8> {
        let mut target = if self.opaque.is_empty() { self.escaped_path() } else { self.opaque.clone() };
        if target.is_empty() {
            target.push(b'/');
        } else if !self.opaque.is_empty() && target.starts_with(b"//") {
            target.splice(..0, [self.scheme.as_bytes(), b":"].concat());
        }
        self.add_query(&mut target);
        target
    }

    /// Returns whether the URL has a scheme.
    pub(super) fn is_absolute(&self) -> bool {
        !self.scheme.is_empty()
    }

    /// Returns the host without port and brackets.
    pub(super) fn hostname(&self) -> &[u8] {
        let host = self.split_port().0;
        host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host)
    }

    /// Returns the port; empty if there is none.
    pub(super) fn port(&self) -> &[u8] {
        self.split_port().1
    }

    fn split_port(&self) -> (&[u8], &[u8]) {
        let colon = self.host.iter().rposition(|byte| *byte == b':');
        match colon.filter(|colon| is_optional_port(&self.host[*colon..])) {
            Some(colon) => (&self.host[..colon], &self.host[colon + 1..]),
            None => (&self.host, b""),
        }
    }

    /// Returns the URL to which a reference leads from this one (`ResolveReference`).
    pub(super) fn resolve(&self, reference: &Self) -> Self {
        let mut url = reference.clone();
        if reference.scheme.is_empty() {
            url.scheme.clone_from(&self.scheme);
        }
        if reference.is_absolute() || !reference.host.is_empty() || reference.user.is_some() {
            url.resolve_path(&reference.escaped_path(), b"");
            return url;
        }
        if reference.path.is_empty() && !reference.force_query && reference.query.is_empty() {
            url.query.clone_from(&self.query);
            if reference.fragment.is_empty() {
                url.fragment.clone_from(&self.fragment);
            }
        }
        if reference.path.is_empty() && !self.opaque.is_empty() {
            url.opaque.clone_from(&self.opaque);
            return url;
        }
        url.host.clone_from(&self.host);
        url.user.clone_from(&self.user);
        url.resolve_path(&self.escaped_path(), &reference.escaped_path());
        url
    }

    fn resolve_path(&mut self, base: &[u8], reference: &[u8]) {
        // A written path is a valid one.
        let _ = self.set_path(&resolved_path(base, reference));
    }
}

impl UserInfo {
    fn to_bytes(&self, replaced: Option<&str>) -> Vec<u8> {
        let mut text = escaped(&self.name, Part::User);
        if let Some(password) = &self.password {
            text.push(b':');
            text.extend(
                replaced.map_or_else(|| escaped(password, Part::User), |text| text.as_bytes().to_vec()),
            );
        }
        text
    }
}

/// Returns what is before the first occurrence of a byte, and what is after it, if there is one.
fn cut(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == at) {
        Some(place) => (&text[..place], Some(&text[place + 1..])),
        None => (text, None),
    }
}

/// Returns the scheme, which is empty if there is none, and what follows it.
fn scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    for (place, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if place > 0 => {}
            b':' if place == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..place], &text[place + 1..])),
            _ => break,
        }
    }
    Ok((b"", text))
}

/// Parses a host with an optional port (`parseHost`).
fn parse_host(scheme: &str, host: &[u8]) -> Result<Vec<u8>, String> {
    let check_port = |port: &[u8]| {
        let invalid = || format!("invalid port {} after host", quote_bytes(port));
        is_optional_port(port).then_some(()).ok_or_else(invalid)
    };
    match host.iter().rposition(|byte| *byte == b'[') {
        Some(0) => {
            let close = host.iter().rposition(|byte| *byte == b']').ok_or("missing ']' in host")?;
            let port = &host[close + 1..];
            check_port(port)?;
            let inner = &host[1..close];
            let zone = inner.windows(3).position(|three| three == b"%25").unwrap_or(inner.len());
            let mut address = unescaped(&inner[..zone], Part::Host)?;
            address.extend(unescaped(&inner[zone..], Part::Zone)?);
            check_ipv6(&address)?;
            return Ok([b"[", &address[..], b"]", port].concat());
        }
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    // Only in URLs of other schemes, a host may have colons.
    let is_colon = |byte: &u8| *byte == b':';
    let is_strict = matches!(scheme, "http" | "https");
    let colon = if is_strict { host.iter().position(is_colon) } else { host.iter().rposition(is_colon) };
    if let Some(colon) = colon {
        check_port(&host[colon..])?;
    }
    unescaped(host, Part::Host)
}

/// Checks that brackets have an IPv6 address, with or without a zone (`netip.ParseAddr`).
fn check_ipv6(address: &[u8]) -> Result<(), String> {
    let invalid = |reason: &str| format!("invalid host: ParseAddr({}): {reason}", quote_bytes(address));
    let (plain, zone) = cut(address, b'%');
    if zone.is_some_and(<[u8]>::is_empty) {
        return Err(invalid("zone must be a non-empty string"));
    }
    let parsed = std::str::from_utf8(plain).ok().and_then(|text| text.parse::<IpAddr>().ok());
    match parsed {
        Some(IpAddr::V6(_)) => Ok(()),
        Some(IpAddr::V4(_)) if zone.is_none() => Err("invalid IP-literal".to_owned()),
        _ => Err(invalid(&invalid_address(address))),
    }
}

/// Returns the reason for which a text is no address, for the commonest mistakes.
fn invalid_address(text: &[u8]) -> String {
    let first = text.iter().find(|byte| b".:%".contains(byte));
    let other = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.');
    match (first, other) {
        (Some(b'.'), Some(place)) => format!("unexpected character (at {})", quote_bytes(&text[place..])),
        (Some(b'%'), _) => "missing IPv6 address".to_owned(),
        _ => "unable to parse IP".to_owned(),
    }
}

fn is_optional_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Decodes the escapes of a part of a URL (`unescape`). The error is Go's text.
fn unescaped(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let is_host = matches!(part, Part::Host | Part::Zone);
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            if is_host && first.is_ascii() && !is_plain(*first, part) {
                return Err(format!("invalid character {} in host name", quote_bytes(&[*first])));
            }
            bytes.push(*first);
            rest = after;
            continue;
        }
        let invalid = || format!("invalid URL escape {}", quote_bytes(&rest[..rest.len().min(3)]));
        let decoded = escape_at(rest).ok_or_else(invalid)?;
        let is_allowed = match part {
            // Only bytes that cannot be written themselves are escaped.
            Part::Host => !decoded.is_ascii() || decoded == b'%',
            Part::Zone => matches!(decoded, b'%' | b' ') || is_plain(decoded, Part::Host),
            Part::Path | Part::User | Part::Fragment => true,
        };
        if !is_allowed {
            return Err(invalid());
        }
        bytes.push(decoded);
        rest = &rest[3..];
    }
    Ok(bytes)
}

/// Returns the byte that an escape at the beginning of a text stands for.
fn escape_at(text: &[u8]) -> Option<u8> {
    let digit = |place: usize| char::from(*text.get(place)?).to_digit(16);
    u8::try_from(digit(1)? << 4 | digit(2)?).ok()
}

fn escaped(text: &[u8], part: Part) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for byte in text {
        if is_plain(*byte, part) {
            bytes.push(*byte);
        } else {
            bytes.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    bytes
}

/// Returns whether a byte is written as it is.
fn is_plain(byte: u8, part: Part) -> bool {
    let others: &[u8] = match part {
        Part::Path => b"$&+,/:;=@",
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
        Part::User => b"$&+,;=",
        Part::Fragment => b"$&+,/:;=?@!()*",
    };
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || others.contains(&byte)
}

/// Resolves a path against another one, and removes dots (`resolvePath`).
fn resolved_path(base: &[u8], reference: &[u8]) -> Vec<u8> {
    let full = match reference {
        [] => base.to_vec(),
        [b'/', ..] => reference.to_vec(),
        _ => {
            let slash = base.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
            [&base[..slash], reference].concat()
        }
    };
    if full.is_empty() {
        return full;
    }
    let (mut path, mut is_first) = (vec![b'/'], true);
    let mut last: &[u8] = b"";
    for element in full.split(|byte| *byte == b'/') {
        last = element;
        match element {
            b"." => is_first = false,
            b".." => {
                let end = path[1..].iter().rposition(|byte| *byte == b'/').map_or(1, |slash| slash + 1);
                path.truncate(end);
                is_first = path.len() == 1;
            }
            _ => {
                if !is_first {
                    path.push(b'/');
                }
                path.extend_from_slice(element);
                is_first = false;
            }
        }
    }
    if matches!(last, b"." | b"..") {
        path.push(b'/');
    }
    if path.starts_with(b"//") {
        path.remove(0);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn urls_are_parsed_and_written_as_by_go() {
        for (written, host, target) in [
            ("http://a.test/b?c#d", "a.test", "/b?c"),
            ("HTTP://A.test", "A.test", "/"),
            ("http://u:p@a.test:80/%2F", "a.test:80", "/%2F"),
            ("http://a.test/b c%zz?%zz", "", ""),
            ("http://[fe80::1%25eth0]:1/", "[fe80::1%eth0]:1", "/"),
            ("http:b", "", "b"),
            ("mailto:a@b", "", "a@b"),
            ("//a.test/b", "a.test", "/b"),
            ("///a/b", "", "///a/b"),
            ("?", "", "/?"),
            ("/a b/\u{e9}", "", "/a%20b/%C3%A9"),
        ] {
            let Ok(url) = GoUrl::parse(written.as_bytes()) else {
                assert!(written.contains("%zz?"), "{written}");
                continue;
            };
            assert_eq!(
                (text(&url.host), text(&url.request_target())),
                (host.to_owned(), target.to_owned()),
                "{written}"
            );
        }
        let same = |written: &str| text(&GoUrl::parse(written.as_bytes()).unwrap().to_bytes());
        for written in [
            "http://a.test/b?c#d",
            "http://u:p@a.test:80/%2F",
            "http:b?",
            "./a:b",
            "/a?b",
            "http:///a",
            "a://b",
        ] {
            assert_eq!(same(written), written);
        }
        assert_eq!(
            text(&GoUrl::parse(b"http://u:p@a.test/").unwrap().without_password()),
            "http://u:***@a.test/"
        );
        assert_eq!(text(&GoUrl::parse(b"http://u:p@a.test/").unwrap().without_user()), "http://a.test/");
    }

    #[test]
    fn invalid_urls_have_the_errors_of_go() {
        for (written, expected) in [
            (":b", "missing protocol scheme"),
            ("1:b", "first path segment in URL cannot contain colon"),
            ("/%zz", "invalid URL escape \"%zz\""),
            ("/%2", "invalid URL escape \"%2\""),
            ("http://[::1", "missing ']' in host"),
            ("http://[[::1]]:80", "invalid IP-literal"),
            ("http://[127.0.0.1]/", "invalid IP-literal"),
            ("http://[x]/", "invalid host: ParseAddr(\"x\"): unable to parse IP"),
            ("http://a:b/", "invalid port \":b\" after host"),
            ("http://a:1:2/", "invalid port \":1:2\" after host"),
            ("http://a b/", "invalid character \" \" in host name"),
            ("http://a%20b/", "invalid URL escape \"%20\""),
            ("http://a\\@b/", "net/url: invalid userinfo"),
        ] {
            let error = GoUrl::parse(written.as_bytes()).unwrap_err();
            assert_eq!(error, UrlError { url: written.as_bytes().to_vec(), reason: expected.to_owned() });
        }
        let control = GoUrl::parse(b"/a\x7f").unwrap_err();
        assert_eq!(control.reason, "net/url: invalid control character in URL");
    }

    #[test]
    fn references_are_resolved_as_by_go() {
        let base = GoUrl::parse(b"http://u@a.test:80/b/c/d?q#f").unwrap();
        for (reference, expected) in [
            ("g", "http://u@a.test:80/b/c/g"),
            ("./g", "http://u@a.test:80/b/c/g"),
            ("../g/", "http://u@a.test:80/b/g/"),
            ("../../../g", "http://u@a.test:80/g"),
            ("/g/./h/..", "http://u@a.test:80/g/"),
            ("", "http://u@a.test:80/b/c/d?q#f"),
            ("?x", "http://u@a.test:80/b/c/d?x"),
            ("#x", "http://u@a.test:80/b/c/d?q#x"),
            ("//other/g", "http://other/g"),
            ("https://other", "https://other"),
            ("mailto:a@b", "mailto:a@b"),
            ("http:g", "http:g"),
        ] {
            let resolved = base.resolve(&GoUrl::parse(reference.as_bytes()).unwrap());
            assert_eq!(text(&resolved.to_bytes()), expected, "{reference}");
        }
    }
}
