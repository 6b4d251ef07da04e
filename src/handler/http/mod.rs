//! The httpGet handler: requests a page, and follows redirects to the same host
//! (`pkg/probe/http/http.go`).

mod conn_addrs;
mod go_tls;
mod go_url;
mod headers;
mod http1;
mod http2;
mod interpret;
mod round_trip;
mod target_url;

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{MAX_OUTPUT_BYTES, ProbeError, ProbeOutcome, USER_AGENT};
use crate::manifest::HttpGet;
use headers::Headers;
use round_trip::{HttpResponse, exchange};
use target_url::TargetUrl;

pub(super) use go_tls::NOT_HTTPS;
pub(crate) use interpret::interpret_response;

/// Number of redirects at which an attempt fails.
const MAX_REDIRECTS: usize = 10;

/// Text of the kubelet for a timeout before the response begins.
const NO_HEADERS: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
/// Text of the kubelet for a timeout within the body of the response.
const NO_BODY: &str = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// Makes one attempt. `limit` applies to the whole attempt, redirects included. `redact` omits
/// query strings from messages.
pub(super) async fn attempt(
    get: &HttpGet,
    host: &str,
    port: u16,
    limit: Duration,
    redact: bool,
) -> Result<ProbeOutcome, ProbeError> {
    let until = Instant::now() + limit;
    let mut place =
        TargetUrl::new(get.is_https, host, port, &get.path, redact).map_err(ProbeError::Request)?;
    let headers = match Headers::new(&get.headers, USER_AGENT) {
        Ok(headers) => headers,
        Err(reason) => return Ok(failed(&place.quoted(), &reason)),
    };
    let (mut own_host, mut referer): (_, Option<Vec<u8>>) = (headers.host().map(<[u8]>::to_vec), None);
    let mut followed = 0;
    loop {
        let request = headers.request(&place, own_host.as_deref(), referer.as_deref());
        let answer = match request {
            Ok(request) => timeout_at(until, exchange(&place, &request)).await,
            Err(reason) => Ok(Err(reason)),
        };
        let answer = match answer {
            Err(_) => return Ok(failed(&place.quoted(), NO_HEADERS)),
            Ok(Err(reason)) => return Ok(failed(&place.quoted(), &reason)),
            Ok(Ok(answer)) => answer,
        };
        let Some(location) = answer.location() else { return finished(answer, until).await };
        let shown = place.quoted_text(location);
        let (next, is_whole) = match place.resolve_redirect(location) {
            Ok(resolved) => resolved,
            Err(reason) => {
                let reason = format!("failed to parse Location header {shown}: {reason}");
                return Ok(failed(&place.quoted(), &reason));
            }
        };
        if !next.has_host_of(&place) {
            return finished(answer, until).await;
        }
        followed += 1;
        if followed >= MAX_REDIRECTS {
            return Ok(failed(&shown, "stopped after 10 redirects"));
        }
        // A configured host is sent only with relative redirects, as in Go.
        own_host = own_host.filter(|host| !is_whole && host != place.host_and_port());
        referer = (!place.is_https() || next.is_https()).then(|| place.referer());
        place = next;
    }
}

/// Sends a request once. Any response is a success. `redact` omits query strings from errors.
pub(super) async fn ask_once(
    get: &HttpGet,
    host: &str,
    port: u16,
    agent: &'static str,
    redact: bool,
) -> Result<(), String> {
    let place = TargetUrl::new(get.is_https, host, port, &get.path, redact)?;
    let headers = Headers::new(&get.headers, agent)?;
    let request = headers.request(&place, headers.host(), None)?;
    exchange(&place, &request).await.map(drop)
}

/// Returns the outcome of an attempt, once the body of the response has been read.
async fn finished(answer: HttpResponse, until: Instant) -> Result<ProbeOutcome, ProbeError> {
    let status = answer.status;
    let body = match timeout_at(until, answer.body(MAX_OUTPUT_BYTES)).await {
        Err(_) => return Err(ProbeError::Body(NO_BODY.to_owned())),
        Ok(Err(reason)) => return Err(ProbeError::Body(reason)),
        Ok(Ok(body)) => String::from_utf8_lossy(&body).into_owned(),
    };
    Ok(match status {
        200..300 => ProbeOutcome::Success(body),
        300..400 => ProbeOutcome::Warning(format!("Probe terminated redirects, Response body: {body}")),
        status => ProbeOutcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
    })
}

/// Returns a failure with a URL, as Go quotes it.
fn failed(quoted: &str, reason: &str) -> ProbeOutcome {
    ProbeOutcome::Failure(format!("Get {quoted}: {reason}"))
}

#[cfg(test)]
mod tests;
