//! Answers of the page: JSON, compressed if the browser accepts that, and errors.

use std::io::{self, Write as _};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::admin::{MAX_PAGE_STREAMS, refusal};

/// Size from which an answer is compressed, in bytes.
const MIN_COMPRESSED: usize = 1_024;

/// A request that cannot be answered, with the reason.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    /// A field of the query is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The call is not known.
    #[error("{0}")]
    NotFound(String),
    /// Too many periods are being read.
    #[error("too many requests for results are being answered: try again")]
    Busy,
    /// Too many pages show updates.
    #[error(
        "{MAX_PAGE_STREAMS} pages show updates already, which is the limit: this one is not live until another is closed"
    )]
    TooManyStreams,
    /// The records cannot be read, or the answer cannot be written.
    #[error("{0}")]
    Internal(String),
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Busy | Self::TooManyStreams => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        refusal(status, self.to_string())
    }
}

/// Returns a value as JSON.
pub(super) fn json(headers: &HeaderMap, value: &impl Serialize) -> Result<Response, PageError> {
    let text = serde_json::to_vec(value).map_err(|error| PageError::Internal(error.to_string()))?;
    let common = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    compressed(headers, text, common.into_response())
}

/// Adds a body to a response without one, compressed if the browser accepts that.
pub(super) fn compressed(
    headers: &HeaderMap,
    body: Vec<u8>,
    mut response: Response,
) -> Result<Response, PageError> {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let is_compressed = accepted.is_some_and(accepts_gzip) && body.len() >= MIN_COMPRESSED;
    let body = if is_compressed {
        gzip(&body).map_err(|error| PageError::Internal(error.to_string()))?
    } else {
        body
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, header::ACCEPT_ENCODING.into());
    if is_compressed {
        headers.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    }
    *response.body_mut() = body.into();
    Ok(response)
}

/// Returns whether a list of codings has gzip, with any weight but 0.
fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| match coding.split_once(';') {
        None => coding.trim() == "gzip",
        Some((name, weight)) => {
            let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
            name.trim() == "gzip" && weight.is_some_and(|weight| weight > 0.0)
        }
    })
}

fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::body::to_bytes;
    use flate2::read::GzDecoder;

    use super::*;

    async fn body(accepted: Option<&'static str>, text: &str) -> (bool, Vec<u8>) {
        let mut headers = HeaderMap::new();
        if let Some(accepted) = accepted {
            headers.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static(accepted));
        }
        let response = json(&headers, &text).unwrap();
        let is_compressed = response.headers().contains_key(header::CONTENT_ENCODING);
        (is_compressed, to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec())
    }

    #[tokio::test]
    async fn a_large_answer_is_compressed_if_the_browser_accepts_that() {
        let text = "a".repeat(MIN_COMPRESSED);
        let json = serde_json::to_vec(&text).unwrap();
        let (is_compressed, answer) = body(Some("br, gzip"), &text).await;
        let mut decoded = Vec::new();
        GzDecoder::new(&*answer).read_to_end(&mut decoded).unwrap();
        assert!(is_compressed && answer.len() < json.len());
        assert_eq!(decoded, json);
        assert!(body(Some("br;q=1, gzip;q=0.8"), &text).await.0);
        for accepted in [None, Some("br"), Some("gzip;q=0"), Some("gzip; q=0.0")] {
            assert_eq!(body(accepted, &text).await, (false, json.clone()), "{accepted:?}");
        }
        assert!(!body(Some("gzip"), "short").await.0);
    }
}
