//! URLs of the requests of an attempt (`pkg/probe/http/request.go`: `formatURL`,
//! `newProbeRequest`).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::go_url::{GoUrl, UrlError};
use crate::gofmt::{quote, quote_bytes};
use crate::handler::address::{join_host_port, to_ascii};
use crate::redact::path_without_query;

/// URL of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetUrl {
    url: GoUrl,
    /// Whether messages omit query strings.
    redact: bool,
}

impl TargetUrl {
    /// Returns the URL of a probe. The path is a reference, of which the host is replaced; a text
    /// that is no reference is a literal path. An invalid host is an error. `redact` omits query
    /// strings from messages.
    pub(super) fn new(
        is_https: bool,
        host: &str,
        port: u16,
        path: &str,
        redact: bool,
    ) -> Result<Self, String> {
        let mut url = GoUrl::parse(path.as_bytes()).unwrap_or_else(|_| GoUrl::of_path(path));
        (if is_https { "https" } else { "http" }).clone_into(&mut url.scheme);
        url.host = join_host_port(host, port).into_bytes();
        // The request is made from the text of the URL.
        let url = GoUrl::parse(&url.to_bytes());
        url.map(|url| Self { url, redact }).map_err(|error| error_text(&error, redact))
    }

    /// Returns the reason for which no request can be sent for this URL (`Transport.roundTrip`).
    pub(super) fn problem(&self) -> Option<String> {
        if !matches!(self.url.scheme.as_str(), "http" | "https") {
            return Some(format!("unsupported protocol scheme {}", quote(&self.url.scheme)));
        }
        self.url.host.is_empty().then(|| "http: no Host in request URL".to_owned())
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme == "https"
    }

    /// Returns the complete URL without its user, as the referer of a redirect.
    pub(super) fn referer(&self) -> Vec<u8> {
        self.url.without_user()
    }

    /// Returns the URL as messages show it, quoted.
    pub(super) fn quoted(&self) -> String {
        self.quoted_text(&self.url.without_password())
    }

    /// Returns another URL or reference as messages show it, quoted.
    pub(super) fn quoted_text(&self, url: &[u8]) -> String {
        quoted(url, self.redact)
    }

    /// Returns the path and the query as they are sent.
    pub(super) fn target(&self) -> Vec<u8> {
        self.url.request_target()
    }

    /// Returns host and port as the header Host has them by default.
    pub(super) fn host_and_port(&self) -> &[u8] {
        &self.url.host
    }

    /// Returns the header for the user of the URL, if it has one.
    pub(super) fn authorization(&self) -> Option<String> {
        let user = self.url.user.as_ref()?;
        let password = user.password.as_deref().unwrap_or_default();
        Some(format!("Basic {}", STANDARD.encode([&user.name, &b":"[..], password].concat())))
    }

    /// Returns the host without brackets, as it is looked up. A name beyond ASCII is in Punycode.
    pub(super) fn host(&self) -> Cow<'_, str> {
        to_ascii(String::from_utf8_lossy(self.url.hostname()))
    }

    /// Returns the port. A number that is no port is an error.
    pub(super) fn port(&self) -> Result<u16, String> {
        let port = String::from_utf8_lossy(self.url.port());
        match &*port {
            "" => Ok(if self.is_https() { 443 } else { 80 }),
            number => number.parse().map_err(|_| format!("dial tcp: address {number}: invalid port")),
        }
    }

    /// Returns whether a URL has the same host, without its port (`RedirectChecker`).
    pub(super) fn has_host_of(&self, other: &Self) -> bool {
        self.url.hostname() == other.url.hostname()
    }

    /// Returns the URL to which a redirect leads, and whether the location is an absolute URL.
    pub(super) fn resolve_redirect(&self, location: &[u8]) -> Result<(Self, bool), String> {
        let reference = GoUrl::parse(location).map_err(|error| error_text(&error, self.redact))?;
        Ok((Self { url: self.url.resolve(&reference), redact: self.redact }, reference.is_absolute()))
    }
}

fn error_text(error: &UrlError, redact: bool) -> String {
    format!("parse {}: {}", quoted(&error.url, redact), error.reason)
}

fn quoted(url: &[u8], redact: bool) -> String {
    if redact { quote(&path_without_query(&String::from_utf8_lossy(url))) } else { quote_bytes(url) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> String {
        let url = TargetUrl::new(false, "10.0.0.1", 80, path, false).unwrap();
        String::from_utf8(url.target()).unwrap()
    }

    /// Repeats `TestFormatURL` (`pkg/probe/http/request_test.go`), with further references.
    #[test]
    fn upstream_test_format_url() {
        for (path, expected) in [
            ("", "/"),
            ("/path", "/path"),
            ("?foo", "/?foo"),
            ("/path?bar", "/path?bar"),
            ("path", "/path"),
            ("/a b?c d", "/a%20b?c d"),
            ("/a%2Fb", "/a%2Fb"),
            ("/100%", "/100%25"),
            ("/100%?a=b", "/100%25%3Fa=b"),
            ("/path#part", "/path"),
            ("http://other:1/x?y", "/x?y"),
            ("//other/x", "/x"),
            ("1:b", "/1:b"),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_with_a_scheme_and_no_slash_has_no_host() {
        let url = TargetUrl::new(false, "10.0.0.1", 80, "a:b", false).unwrap();
        assert_eq!(url.quoted(), "\"http:b\"");
        assert_eq!(url.problem().as_deref(), Some("http: no Host in request URL"));
    }

    #[test]
    fn a_redirect_keeps_the_parts_that_its_location_omits() {
        let here = TargetUrl::new(false, "10.0.0.1", 8080, "/a/b?c", false).unwrap();
        let sent = |location: &str| {
            let (place, is_whole) = here.resolve_redirect(location.as_bytes()).unwrap();
            (String::from_utf8(place.referer()).unwrap(), is_whole)
        };
        let url = |url: &str, is_whole| (url.to_owned(), is_whole);
        assert_eq!(sent("/new"), url("http://10.0.0.1:8080/new", false));
        assert_eq!(sent("new?x"), url("http://10.0.0.1:8080/a/new?x", false));
        assert_eq!(sent("https://10.0.0.1/y"), url("https://10.0.0.1/y", true));
        assert_eq!(sent("http://10.0.0.1:80/y"), url("http://10.0.0.1:80/y", true));
        assert_eq!(sent("//other:1/y"), url("http://other:1/y", false));
        let (next, _) = here.resolve_redirect(b"http://[fd00::1]:81").unwrap();
        assert_eq!((&*next.host(), next.port()), ("fd00::1", Ok(81)));
        let (next, _) = here.resolve_redirect("http://größe.test/y".as_bytes()).unwrap();
        assert_eq!((&*next.host(), next.port()), ("xn--gre-6ka8i.test", Ok(80)));
        assert_eq!(sent("/größe"), url("http://10.0.0.1:8080/gr%C3%B6%C3%9Fe", false));
        let error = here.resolve_redirect(b"http://[x").unwrap_err();
        assert_eq!(error, "parse \"http://[x\": missing ']' in host");
        let (next, _) = here.resolve_redirect(b"http://10.0.0.1:99999/").unwrap();
        assert_eq!(next.port(), Err("dial tcp: address 99999: invalid port".to_owned()));
    }

    #[test]
    fn an_invalid_host_of_an_http_probe_is_refused() {
        let error = |host: &str| TargetUrl::new(false, host, 80, "/?a", true).unwrap_err();
        assert_eq!(error("a b"), "parse \"http://a%20b:80/?redacted\": invalid URL escape \"%20\"");
        assert_eq!(error("[::1]"), "parse \"http://[[::1]]:80/?redacted\": invalid IP-literal");
        let local = TargetUrl::new(true, "", 80, "", false).unwrap();
        assert_eq!((local.quoted().as_str(), &*local.host()), ("\"https://:80\"", ""));
        let zone = TargetUrl::new(false, "fe80::1%eth0", 80, "/", false).unwrap();
        assert_eq!(
            (zone.quoted().as_str(), &*zone.host()),
            ("\"http://[fe80::1%25eth0]:80/\"", "fe80::1%eth0")
        );
    }

    #[test]
    fn the_user_of_a_url_is_sent_and_not_shown() {
        let url = TargetUrl::new(false, "10.0.0.1", 80, "http://me:secret@x/", false).unwrap();
        assert_eq!(url.authorization().as_deref(), Some("Basic bWU6c2VjcmV0"));
        assert_eq!(url.quoted(), "\"http://me:***@10.0.0.1:80/\"");
        assert_eq!(url.referer(), b"http://10.0.0.1:80/");
    }
}
