//! The files of the page, which are embedded in the program.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use super::answer::{PageError, compressed};
use crate::admin::INDEX;
use crate::hex::hex;

/// Content policy: the page may load its own files and answers, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const PAGE: &str = include_str!("assets/page.html");

/// The scripts and the style by their names.
const ASSETS: [(&str, &str, &str); 14] = [
    ("call.js", SCRIPT, include_str!("assets/call.js")),
    ("calls.js", SCRIPT, include_str!("assets/calls.js")),
    ("command.js", SCRIPT, include_str!("assets/command.js")),
    ("dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("events.js", SCRIPT, include_str!("assets/events.js")),
    ("format.js", SCRIPT, include_str!("assets/format.js")),
    ("latency.js", SCRIPT, include_str!("assets/latency.js")),
    ("main.js", SCRIPT, include_str!("assets/main.js")),
    ("overview.js", SCRIPT, include_str!("assets/overview.js")),
    ("page.css", STYLE, include_str!("assets/page.css")),
    ("probe.js", SCRIPT, include_str!("assets/probe.js")),
    ("probes.js", SCRIPT, include_str!("assets/probes.js")),
    ("strip.js", SCRIPT, include_str!("assets/strip.js")),
    ("view.js", SCRIPT, include_str!("assets/view.js")),
];

/// Returns the page to a browser, and the list of paths to other programs, such as curl.
pub(super) async fn index(headers: HeaderMap) -> Result<Response, PageError> {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.contains("text/html")) {
        file(&headers, HTML, PAGE)
    } else {
        Ok(INDEX.into_response())
    }
}

/// Returns a script or the style of the page.
pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, PageError> {
    match ASSETS.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, text)) => file(&headers, kind, text),
        None => Err(PageError::NotFound("no such path".to_owned())),
    }
}

/// Returns a file. A browser checks each time whether it has changed, so that it never mixes two
/// versions.
fn file(headers: &HeaderMap, kind: &'static str, text: &'static str) -> Result<Response, PageError> {
    let tag = format!("\"{}\"", hex(&Sha256::digest(text)[..8]));
    let common = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if is_known {
        (StatusCode::NOT_MODIFIED, common).into_response()
    } else {
        compressed(headers, text.into(), (StatusCode::OK, common).into_response())?
    };
    let headers = response.headers_mut();
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    // `/` is another text for a program that does not accept HTML.
    headers.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    if let Ok(tag) = tag.parse() {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}
