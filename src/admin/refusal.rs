//! Responses to refused requests.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::api::ErrorBody;

/// Returns the response to a refused request, with the reason.
pub(crate) fn refusal(status: StatusCode, error: String) -> Response {
    (status, Json(ErrorBody { error })).into_response()
}
