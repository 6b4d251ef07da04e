//! Check of requests on TCP. Any web page can make a browser send requests to it, so only read
//! requests whose Host is a loopback name are answered.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// Answers read requests, and refuses all others.
pub(super) async fn readers_only(request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allowed = [(header::ALLOW, "GET, HEAD")];
        return (StatusCode::METHOD_NOT_ALLOWED, allowed, "only GET and HEAD are answered here\n")
            .into_response();
    }
    next.run(request).await
}

/// Answers requests to a loopback host, and refuses all others.
pub(super) async fn loopback_hosts_only(request: Request, next: Next) -> Response {
    if !is_named_by_loopback(request.headers()) {
        return (StatusCode::FORBIDDEN, "only loopback host names are answered here\n").into_response();
    }
    if is_of_other_site(request.headers()) {
        return (StatusCode::FORBIDDEN, "requests of pages of other sites are not answered\n")
            .into_response();
    }
    next.run(request).await
}

/// Whether the request has exactly one Host header, with `localhost` or a loopback address. A page
/// whose own name resolves to 127.0.0.1 still sends its own name.
fn is_named_by_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    host.to_str().is_ok_and(is_loopback)
}

/// Whether a browser sends the request for a page of another site. A link to this address may be
/// followed.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
    is("sec-fetch-site", "cross-site") && !is("sec-fetch-mode", "navigate")
}

/// Whether a host, with or without a port, is a loopback name.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(address) => address.split_once(']').unwrap_or(("", "")),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_ours = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_ours && is_port(port)
}

/// Whether the text is empty, or a colon and a port.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_recognized() {
        for good in ["localhost", "LOCALHOST:9754", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:9754"] {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "",
            "evil.test",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "10.0.0.1",
            "[::2]",
            "[::1",
            "[::1]evil.test",
            "localhost:x",
            "localhost:1:2",
            "evil.test@127.0.0.1",
            "127.1",
            "0.0.0.0",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn a_request_for_a_page_of_another_site_is_refused_unless_it_follows_a_link() {
        let is_refused = |site: &'static str, mode: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("sec-fetch-site", site.parse().unwrap());
            headers.insert("sec-fetch-mode", mode.parse().unwrap());
            is_of_other_site(&headers)
        };
        assert!(is_refused("cross-site", "no-cors") && is_refused("cross-site", "cors"));
        assert!(!is_refused("cross-site", "navigate") && !is_refused("same-origin", "cors"));
        assert!(!is_of_other_site(&HeaderMap::new()), "curl");
    }

    #[test]
    fn a_request_must_have_exactly_one_loopback_host_header() {
        let mut headers = HeaderMap::new();
        assert!(!is_named_by_loopback(&headers));
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(is_named_by_loopback(&headers));
        headers.append(header::HOST, "evil.test".parse().unwrap());
        assert!(!is_named_by_loopback(&headers));
    }
}
