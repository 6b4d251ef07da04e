//! Headers of a probe's request: the configured headers, and those that the kubelet adds
//! (`pkg/probe/http/request.go`: `newProbeRequest`).

use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, REFERER, TRAILER, TRANSFER_ENCODING, UPGRADE,
    USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::target_url::TargetUrl;
use crate::gofmt::quote;
use crate::handler::address::to_ascii;

/// A request of a probe.
#[derive(Clone, Debug)]
pub(super) struct GetRequest {
    /// Path and query, as they are sent.
    target: Vec<u8>,
    headers: HeaderMap,
    /// Whether the header `Connection: close` follows all others.
    has_close: bool,
}

/// Headers that are sent with each request of an attempt.
pub(super) struct Headers(HeaderMap);

impl Headers {
    /// Returns the configured headers, and the defaults of the kubelet for headers that are not
    /// configured. A value that cannot be sent is an error.
    pub(super) fn new(configured: &[(String, String)], agent: &'static str) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in configured {
            let invalid = |_| format!("net/http: invalid header field name {}", quote(name));
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(invalid)?;
            let invalid = |_| format!("net/http: invalid header field value for {}", quote(&canonical(name)));
            // Go removes blanks at the ends of a value.
            let value = value.trim_matches([' ', '\t', '\r', '\n']);
            headers.append(known, HeaderValue::from_bytes(value.as_bytes()).map_err(invalid)?);
        }
        if !headers.contains_key(USER_AGENT) {
            headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        }
        if !headers.contains_key(ACCEPT) {
            headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        }
        // Go omits the headers that describe a body.
        for name in [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
            headers.remove(name);
        }
        for name in [USER_AGENT, ACCEPT] {
            if headers.get(&name).is_some_and(HeaderValue::is_empty) {
                headers.remove(&name);
            }
        }
        Ok(Self(headers))
    }

    /// Returns the configured host, if there is one.
    pub(super) fn host(&self) -> Option<&[u8]> {
        self.0.get(HOST).map(HeaderValue::as_bytes).filter(|host| !host.is_empty())
    }

    /// Returns a request for HTTP/1.1.
    pub(super) fn request(
        &self,
        place: &TargetUrl,
        host: Option<&[u8]>,
        referer: Option<&[u8]>,
    ) -> Result<GetRequest, String> {
        place.problem().map_or(Ok(()), Err)?;
        let mut headers = self.0.clone();
        headers.insert(HOST, host_header(host.unwrap_or(place.host_and_port())));
        let is_switch = headers.contains_key(UPGRADE) && has_token(&headers, "upgrade");
        let has_close = !is_switch && !has_token(&headers, "close");
        if let Some(referer) = referer.and_then(|referer| HeaderValue::from_bytes(referer).ok())
            && !headers.contains_key(REFERER)
        {
            headers.insert(REFERER, referer);
        }
        if let Some(user) = place.authorization().and_then(|user| HeaderValue::try_from(user).ok())
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, user);
        }
        Ok(GetRequest { target: place.target(), headers, has_close })
    }
}

impl GetRequest {
    /// Returns the bytes of the request over HTTP/1.1, with the headers in Go's order
    /// (`http.Request.Write`): Host, User-Agent, and the others by name.
    pub(super) fn to_http1(&self) -> Vec<u8> {
        let mut bytes = [b"GET ", &self.target[..], b" HTTP/1.1\r\n"].concat();
        let mut others: Vec<&HeaderName> = self.headers.keys().collect();
        others.retain(|name| ![HOST, USER_AGENT].contains(name));
        others.sort_by_key(|name| canonical(name.as_str()));
        for name in [&HOST, &USER_AGENT].into_iter().chain(others) {
            for value in self.headers.get_all(name) {
                bytes.extend_from_slice(canonical(name.as_str()).as_bytes());
                bytes.extend_from_slice(b": ");
                bytes.extend_from_slice(value.as_bytes());
                bytes.extend_from_slice(b"\r\n");
            }
        }
        if self.has_close {
            bytes.extend_from_slice(b"Connection: close\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// Returns path and query, as they are sent.
    pub(super) fn target(&self) -> &[u8] {
        &self.target
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// Returns the header Host: without the zone of an address, and with a name beyond ASCII in
/// Punycode. Go sends an empty one for a host that no header can have.
fn host_header(host: &[u8]) -> HeaderValue {
    let text = String::from_utf8_lossy(host);
    let (name, port) = text.rsplit_once(':').map_or((&*text, None), |(name, port)| (name, Some(port)));
    let name = match name.split_once('%') {
        Some((address, _)) if address.starts_with('[') => format!("{address}]").into(),
        _ => to_ascii(name.into()),
    };
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=@[]_~".contains(&byte);
    let host = port.map_or_else(|| name.to_string(), |port| format!("{name}:{port}"));
    let valid = host.bytes().all(is_valid).then(|| HeaderValue::try_from(host).ok()).flatten();
    valid.unwrap_or(HeaderValue::from_static(""))
}

/// Returns whether the header Connection has a token.
fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(token))
}

/// Returns the name of a header in Go's canonical form.
fn canonical(name: &str) -> String {
    let part = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    };
    name.split('-').map(part).collect::<Vec<_>>().join("-")
}
