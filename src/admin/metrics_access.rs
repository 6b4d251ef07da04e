//! Permission of clients to read the metrics at an address that other machines reach.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tracing::warn;

use super::caller::Caller;
use super::refusal_log::RefusalLog;
use crate::authorization::{AccessDecision, METRICS_PATH, TokenAuthorizer};
use crate::terminal::sanitize;

/// The clients that may read the metrics.
#[derive(Debug)]
pub enum MetricsAccess {
    /// Every client that can connect: the TLS handshake refuses clients without a certificate if
    /// they need one.
    Connected,
    /// Clients with a certificate that TLS has verified, and clients with a bearer token that an
    /// API server accepts.
    CertificateOrToken(Box<TokenAccess>),
}

/// Permission of clients with a bearer token.
#[derive(Debug)]
pub struct TokenAccess {
    tokens: TokenAuthorizer,
    /// Log of clients that were refused because the API server did not answer.
    log: RefusalLog,
}

impl TokenAccess {
    /// Creates the permission from that of the API server.
    #[must_use]
    pub fn new(tokens: TokenAuthorizer) -> Self {
        Self { tokens, log: RefusalLog::default() }
    }
}

/// Answers requests of clients that may read the metrics, and refuses all others, as the kubelet
/// does.
pub(super) async fn check(
    State(access): State<Arc<MetricsAccess>>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let MetricsAccess::CertificateOrToken(review) = &*access else { return next.run(request).await };
    if caller.has_certificate {
        return next.run(request).await;
    }
    let Some(token) = bearer_token(request.headers()) else { return unauthenticated() };
    match review.tokens.decide(token).await {
        Ok(AccessDecision::Allowed) => next.run(request).await,
        Ok(AccessDecision::Unauthenticated) => unauthenticated(),
        Ok(AccessDecision::Forbidden { user }) => {
            let user = sanitize(&user);
            let reason = format!("Forbidden (user={user}, verb=get, nonResourceURL={METRICS_PATH})\n");
            (StatusCode::FORBIDDEN, reason).into_response()
        }
        Err(error) => {
            if let Some(requests) = review.log.add() {
                warn!(%error, requests, "clients of the metrics are refused: the API server cannot review their tokens");
            }
            (StatusCode::SERVICE_UNAVAILABLE, "the API server cannot review the token; see the log\n")
                .into_response()
        }
    }
}

fn unauthenticated() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
}

/// Returns the token of a request that has exactly one header `Authorization: Bearer`.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_read_from_a_single_authorization_header() {
        for (values, expected) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&["Basic abc"], None),
            (&["Bearer "], None),
            (&["Bearer"], None),
            (&[], None),
            (&["Bearer a", "Bearer b"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            assert_eq!(bearer_token(&headers), expected, "{values:?}");
        }
    }
}
