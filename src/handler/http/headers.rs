//! Headers of a probe's request: the configured headers, and those that the kubelet adds
//! (`pkg/probe/http/request.go`: `newProbeRequest`).

use bytes::Bytes;
use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, HOST, REFERER, TRAILER, TRANSFER_ENCODING, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::Empty;

use super::target_url::TargetUrl;
use crate::gofmt::quote;

/// A request of a probe.
pub(super) type GetRequest = Request<Empty<Bytes>>;

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
    pub(super) fn host(&self) -> Option<&str> {
        self.0.get(HOST).and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty())
    }

    /// Returns a request for HTTP/1.1.
    pub(super) fn request(
        &self,
        place: &TargetUrl,
        host: Option<&str>,
        referer: Option<&str>,
    ) -> Result<GetRequest, String> {
        let invalid = |error: http::Error| error.to_string();
        let mut request = Request::get(place.target()).body(Empty::new()).map_err(invalid)?;
        let headers = request.headers_mut();
        *headers = self.0.clone();
        let host = HeaderValue::from_str(host.unwrap_or(&place.authority));
        headers.insert(HOST, host.map_err(|_| "http: invalid Host header".to_owned())?);
        headers.append(CONNECTION, HeaderValue::from_static("close"));
        if let Some(referer) = referer.and_then(|referer| HeaderValue::from_str(referer).ok())
            && !headers.contains_key(REFERER)
        {
            headers.insert(REFERER, referer);
        }
        Ok(request)
    }
}

/// Returns the name of a header in Go's canonical form.
fn canonical(name: &str) -> String {
    let part = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    };
    name.split('-').map(part).collect::<Vec<_>>().join("-")
}
