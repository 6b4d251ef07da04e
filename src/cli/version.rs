//! `probeshim version`

use clap::Args;

use super::CliError;
use super::admin_args::AdminArgs;
use super::query::parse_status;
use crate::admin::ClientError;
use crate::admin::api::{Status, UpstreamStatus};
use crate::terminal::screen::print;
use crate::terminal::{harmless_name, harmless_text};

/// Arguments of `version`.
#[derive(Debug, Args)]
pub struct VersionCommand {
    #[command(flatten)]
    at: AdminArgs,
}

impl VersionCommand {
    /// Prints the versions of this program, of the running probeshim, and of its runtime.
    pub async fn run(self) -> Result<(), CliError> {
        let status = match self.at.client()?.status().await {
            Ok(status) => Some(parse_status(&status)?),
            Err(ClientError::NotRunning { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        print(&text(status.as_ref()))?;
        Ok(())
    }
}

/// Returns one line per program, as `crictl version` does.
fn text(status: Option<&Status>) -> String {
    let own = env!("CARGO_PKG_VERSION");
    let Some(status) = status else {
        return format!("Client:   probeshim {own}\nServer:   not running\n");
    };
    let UpstreamStatus { socket, runtime, version, error, .. } = &status.upstream;
    let runtime = match (runtime, version) {
        (Some(name), Some(version)) => format!("{} {}", harmless_name(name), harmless_name(version)),
        _ => harmless_text(error.as_deref().unwrap_or("unknown")),
    };
    format!(
        "Client:   probeshim {own}\nServer:   probeshim {}, pid {}\nRuntime:  {runtime}, {socket}\n",
        harmless_name(&status.version),
        status.pid
    )
}
