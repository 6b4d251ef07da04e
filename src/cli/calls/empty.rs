//! The reason why no call is listed.

use crate::admin::Client;
use crate::admin::api::{CallsQuery, Status};
use crate::cli::CliError;
use crate::cli::known_objects::KnownObjects;
use crate::cli::query::{query_calls, query_status};

/// Queries the reason why no call matches. Returns an error if no namespace, pod, container or
/// client with the name in the query exists or has calls.
pub(super) async fn reason(
    client: &Client,
    query: &CallsQuery,
    has_selector: bool,
) -> Result<String, CliError> {
    let status = query_status(client).await?;
    let recorded = query_calls(client, &CallsQuery::default()).await?;
    KnownObjects::new(&status, &recorded).check_calls(query)?;
    if has_selector {
        return Ok("no calls about pods with these labels match".to_owned());
    }
    let of_any_run = CallsQuery { this_run: false, in_flight: false, ..query.clone() };
    let earlier = if query.this_run { query_calls(client, &of_any_run).await?.len() } else { 0 };
    Ok(sentence(query, &status, recorded.len(), earlier))
}

/// Returns the reason. `recorded` is the number of recorded calls, and `earlier` the number of
/// calls of earlier runs that match.
fn sentence(query: &CallsQuery, status: &Status, recorded: usize, earlier: usize) -> String {
    let CallsQuery { this_run, in_flight, .. } = *query;
    let unfiltered = CallsQuery { this_run, in_flight, ..CallsQuery::default() };
    let only_in_flight = CallsQuery { last: Some(0), ..unfiltered.clone() };
    let reason = if *query == only_in_flight {
        "no calls are in flight".to_owned()
    } else if *query != unfiltered {
        match recorded {
            1 => "no calls match, of 1 recorded call".to_owned(),
            recorded => format!("no calls match, of {recorded} recorded calls"),
        }
    } else if status.calls.observed == 0 {
        format!("no calls yet: clients call the runtime through {}", status.listen)
    } else {
        "no calls are recorded".to_owned()
    };
    match earlier {
        0 => reason,
        1 => format!("{reason}; --all shows a call of an earlier run"),
        earlier => format!("{reason}; --all shows {earlier} calls of earlier runs"),
    }
}
