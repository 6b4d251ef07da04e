//! Typed answers of a running probeshim.

use anyhow::Context as _;
use serde::de::DeserializeOwned;

use super::CliError;
use crate::admin::Client;
use crate::admin::api::{CallsQuery, ListedCall, Status};

/// Queries the status.
pub(super) async fn query_status(client: &Client) -> Result<Status, CliError> {
    parse_status(&client.status().await?)
}

/// Parses a status.
pub(super) fn parse_status(answer: &[u8]) -> Result<Status, CliError> {
    parse(answer, "a status")
}

/// Queries calls.
pub(super) async fn query_calls(client: &Client, query: &CallsQuery) -> Result<Vec<ListedCall>, CliError> {
    parse(&client.calls(query).await?, "a list of calls")
}

fn parse<T: DeserializeOwned>(answer: &[u8], what: &str) -> Result<T, CliError> {
    Ok(serde_json::from_slice(answer).with_context(|| format!("the response is not {what}"))?)
}
