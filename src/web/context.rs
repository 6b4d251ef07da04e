//! Data that all views of the page need.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::answer::{PageError, json};
use super::updates::UpdateId;
use crate::admin::Admin;
use crate::build_info;

/// Data that all views of the page need.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageContext {
    /// Admin socket, for command lines.
    admin: String,
    /// Version of probeshim, with which the files of the page change.
    version: &'static str,
    /// Id of the first update after the present.
    updates: String,
}

/// Returns what all views of the page need.
pub(super) async fn context(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let updates = UpdateId::now(&admin).to_string();
    json(
        &headers,
        &PageContext { admin: admin.info.admin.clone(), version: build_info::full_version(), updates },
    )
}
