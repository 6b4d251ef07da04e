//! Arguments and formats that are common to the commands that query a running probeshim.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::value::RawValue;

use super::CliError;
use crate::admin::Client;
use crate::config::{BoundedDuration, Environment, InstanceArg, admin_socket};
use crate::socket::SocketPath;
use crate::terminal::format::harmless_json;

/// The flag that names the probeshim to query.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub(super) struct AdminArgs {
    #[command(flatten)]
    instance: InstanceArg,

    /// Admin socket of the probeshim to query [default: admin in the configuration file, or
    /// unix:///run/probeshim/admin.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(
        long,
        value_name = "URI",
        allow_hyphen_values = true,
        verbatim_doc_comment,
        env = "PROBESHIM_ADMIN",
        hide_env_values = true
    )]
    admin: Option<SocketPath>,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// A table, or sentences.
    #[default]
    Table,
    /// JSON.
    Json,
}

/// Returns a JSON array with one item per line. Fields that this version does not know are kept.
pub(super) fn array(items: &[&RawValue]) -> String {
    let lines: Vec<String> = items.iter().map(|item| harmless_json(item.get())).collect();
    if lines.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}

/// Returns a duration in the milliseconds of a query.
pub(super) fn milliseconds(duration: BoundedDuration) -> u64 {
    u64::try_from(Duration::from(duration).as_millis()).unwrap_or(u64::MAX)
}

impl AdminArgs {
    pub(super) fn client(self) -> Result<Client, CliError> {
        Ok(Client::new(admin_socket(self.admin, &self.instance, &Environment::detect())?))
    }
}
