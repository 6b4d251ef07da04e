//! A remark about names of probes that are missing.

use super::stderr::note;
use crate::admin::Client;
use crate::admin::api::Status;

/// Prints in how many containers the names of probes are missing, and what helps. Prints nothing if
/// none are missing, or if probeshim does not answer, which the command itself reports.
pub(super) async fn note_missing_names(client: &Client) {
    let Ok(status) = client.status().await else { return };
    let Ok(status) = serde_json::from_slice::<Status>(&status) else { return };
    if let Some(missing) = status.probe_names.describe_missing() {
        note(&format!("names of probes are {missing}"));
    }
}
