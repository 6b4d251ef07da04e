//! URLs of the requests of an attempt.

use std::borrow::Cow;

use url::ParseError;

use super::go_url;
use crate::ascii_url;
use crate::gofmt::quote;
use crate::handler::address::join_host_port;
use crate::redact::path_without_query;

/// URL of a request: the server and the request target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetUrl {
    pub(super) is_https: bool,
    /// Host and port, as configured.
    pub(super) authority: String,
    /// Path and query, as configured; may be empty.
    path: String,
    /// Whether messages omit query strings.
    redact: bool,
}

/// Replacement for a host name that is not ASCII. No host has this name (RFC 6761).
const OTHER_HOST: &str = "other.invalid";

impl TargetUrl {
    /// Returns the URL of a probe. An invalid host is an error. `redact` omits query strings from
    /// messages.
    pub(super) fn new(
        is_https: bool,
        host: &str,
        port: u16,
        path: &str,
        redact: bool,
    ) -> Result<Self, String> {
        // Go escapes bytes that no host name has, and then rejects the escape.
        let is_wrong = |letter: char| letter.is_ascii_control() || " \\^`{|}%/?#@".contains(letter);
        let wrong = host.chars().find(|letter| is_wrong(*letter));
        let escape = |letter: char| format!("%{:02X}", u32::from(letter));
        let host: String = host
            .chars()
            .map(|letter| if is_wrong(letter) { escape(letter) } else { letter.to_string() })
            .collect();
        let place =
            Self { is_https, authority: join_host_port(&host, port), path: go_url::target(path), redact };
        wrong.map_or(Ok(()), |wrong| {
            let (url, escape) = (quote(&place.shown(&place.url())), quote(&escape(wrong)));
            Err(format!("parse {url}: invalid URL escape {escape}"))
        })?;
        Ok(place)
    }

    /// Returns the complete URL, which is the referer of a redirect.
    pub(super) fn url(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    /// Returns a URL as messages show it.
    pub(super) fn shown<'a>(&self, url: &'a str) -> Cow<'a, str> {
        if self.redact { path_without_query(url) } else { Cow::Borrowed(url) }
    }

    /// Returns the path and the query as they are sent.
    pub(super) fn target(&self) -> String {
        let path = self.path.replace(' ', "%20");
        if path.starts_with('/') { path } else { format!("/{path}") }
    }

    /// Returns the host without brackets.
    pub(super) fn host(&self) -> &str {
        let end = self.port_at().map_or(self.authority.len(), |(colon, _)| colon);
        self.authority[..end].trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn port(&self) -> u16 {
        self.port_at().map_or(if self.is_https { 443 } else { 80 }, |(_, port)| port)
    }

    /// Returns the URL to which a redirect leads, and whether the location is an absolute URL.
    /// `None` if the location is invalid.
    pub(super) fn resolve_redirect(&self, location: &str) -> Option<(Self, bool)> {
        let is_whole = ascii_url::parse(location).is_ok();
        let base =
            if self.host().is_empty() { self.url().replacen("://", "://localhost", 1) } else { self.url() };
        let next = match ascii_url::join(&ascii_url::parse(&base).ok()?, location) {
            Ok(next) => next,
            // A host name that is not ASCII is never the host of a pod.
            Err(ParseError::IdnaError) if !location.is_ascii() => {
                return Some((Self { authority: OTHER_HOST.to_owned(), ..self.clone() }, true));
            }
            Err(_) => return None,
        };
        let path =
            next.query().map_or_else(|| next.path().to_owned(), |query| format!("{}?{query}", next.path()));
        let authority = if is_whole || location.starts_with("//") {
            let port = next.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}{port}", next.host_str()?)
        } else {
            self.authority.clone()
        };
        let (is_https, redact) = (next.scheme() == "https", self.redact);
        Some((Self { is_https, authority, path, redact }, is_whole))
    }

    fn port_at(&self) -> Option<(usize, u16)> {
        let (host, port) = self.authority.rsplit_once(':')?;
        Some((host.len(), port.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_keeps_the_parts_that_its_location_omits() {
        let here = TargetUrl::new(false, "10.0.0.1", 8080, "/a/b?c", false).unwrap();
        let sent =
            |location: &str| here.resolve_redirect(location).map(|(place, is_whole)| (place.url(), is_whole));
        let url = |url: &str, is_whole| Some((url.to_owned(), is_whole));
        assert_eq!(sent("/new"), url("http://10.0.0.1:8080/new", false));
        assert_eq!(sent("new?x"), url("http://10.0.0.1:8080/a/new?x", false));
        assert_eq!(sent("https://10.0.0.1/y"), url("https://10.0.0.1/y", true));
        assert_eq!(sent("//other:1/y"), url("http://other:1/y", false));
        assert_eq!(sent("http://[fd00::1]:81"), url("http://[fd00::1]:81/", true));
        let (next, _) = here.resolve_redirect("http://[fd00::1]:81").unwrap();
        assert_eq!((next.host(), next.port()), ("fd00::1", 81));
        assert_eq!(here.resolve_redirect("http://[x"), None);
        assert_eq!(here.resolve_redirect("http://größe.test/y").unwrap().0.host(), OTHER_HOST);
        assert_eq!(sent("/größe"), url("http://10.0.0.1:8080/gr%C3%B6%C3%9Fe", false));
    }

    #[test]
    fn an_invalid_host_of_an_http_probe_is_refused() {
        let error = TargetUrl::new(false, "a b", 80, "/", false).unwrap_err();
        assert_eq!(error, "parse \"http://a%20b:80/\": invalid URL escape \"%20\"");
        let local = TargetUrl::new(true, "", 80, "", false).unwrap();
        assert_eq!((local.url().as_str(), local.host(), local.target().as_str()), ("https://:80", "", "/"));
    }
}
