//! `probeshim version`

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::query::parse_status;
use crate::admin::ClientError;
use crate::admin::api::{Status, UpstreamStatus};
use crate::build_info;
use crate::terminal::screen::print;
use crate::terminal::{harmless_name, harmless_text};

/// Arguments of `version`.
#[derive(Debug, Args)]
pub struct VersionCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

/// Versions in JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions<'a> {
    /// Version of this program.
    client: &'a str,
    /// Commit of this program; null if it is unknown.
    client_commit: Option<&'a str>,
    /// Version of the running probeshim; null if none runs.
    server: Option<&'a str>,
    /// Commit of the running probeshim; null if none runs, or if it is unknown.
    server_commit: Option<&'a str>,
    /// Process id of the running probeshim.
    pid: Option<u32>,
    /// Name of the runtime; null if it does not answer.
    runtime: Option<&'a str>,
    /// Version of the runtime; null if it does not answer.
    runtime_version: Option<&'a str>,
    /// Socket of the runtime.
    upstream: Option<&'a str>,
}

impl VersionCommand {
    /// Prints the versions of this program, of the running probeshim, and of its runtime.
    pub async fn run(self) -> Result<(), CliError> {
        let status = match self.at.client()?.status().await {
            Ok(status) => Some(parse_status(&status)?),
            Err(ClientError::NotRunning { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let text = match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                let json = to_raw_value(&Versions::new(status.as_ref()));
                self.output.document(&json.context("the versions cannot be written as JSON")?)?
            }
            _ => text(status.as_ref()),
        };
        print(&text)?;
        Ok(())
    }
}

impl<'a> Versions<'a> {
    fn new(status: Option<&'a Status>) -> Self {
        let upstream = status.map(|status| &status.upstream);
        Self {
            client: build_info::VERSION,
            client_commit: build_info::COMMIT,
            server: status.map(|status| status.version.as_str()),
            server_commit: status.and_then(|status| status.commit.as_deref()),
            pid: status.map(|status| status.pid),
            runtime: upstream.and_then(|upstream| upstream.runtime.as_deref()),
            runtime_version: upstream.and_then(|upstream| upstream.version.as_deref()),
            upstream: upstream.map(|upstream| upstream.socket.as_str()),
        }
    }
}

/// Returns one line per program, as `crictl version` does.
fn text(status: Option<&Status>) -> String {
    let own = build_info::full_version();
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
        harmless_name(&status.full_version()),
        status.pid
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshots::assert_screens;
    use super::*;

    fn status() -> Status {
        serde_json::from_value(json!({
            "version": "0.2.0", "commit": "988f1eb4c1f2", "date": "2026-11-26", "mode": "off", "pid": 4711, "started": "2026-11-24T12:00:00Z",
            "listen": "unix:///run/probeshim/probeshim.sock", "http": null,
            "upstream": {"socket": "unix:///run/containerd/containerd.sock", "ready": true, "runtime": "containerd",
                         "version": "v2.1.4", "error": null},
            "connections": {"open": 3, "total": 17}, "calls": {"inFlight": 2, "observed": 8015, "kept": 5000, "dropped": 0},
            "record": null, "pods": [], "stuck": [],
        }))
        .unwrap()
    }

    /// Returns a text with a placeholder for the version of this program.
    fn without_version(text: &str) -> String {
        text.replace(build_info::full_version(), "VERSION")
    }

    #[test]
    fn versions_are_shown_with_and_without_a_running_probeshim() {
        assert_screens("version", |_| without_version(&text(Some(&status()))));
        assert_screens("version_not_running", |_| without_version(&text(None)));
    }

    #[test]
    fn versions_in_json_are_null_for_programs_that_do_not_run() {
        let (own, commit) = (build_info::VERSION, build_info::COMMIT);
        let running = json!({
            "client": own, "clientCommit": commit, "server": "0.2.0", "serverCommit": "988f1eb4c1f2", "pid": 4711, "runtime": "containerd", "runtimeVersion": "v2.1.4",
            "upstream": "unix:///run/containerd/containerd.sock",
        });
        assert_eq!(json!(Versions::new(Some(&status()))), running);
        let alone = json!({
            "client": own, "clientCommit": commit, "server": null, "serverCommit": null, "pid": null, "runtime": null, "runtimeVersion": null, "upstream": null,
        });
        assert_eq!(json!(Versions::new(None)), alone);
    }
}
