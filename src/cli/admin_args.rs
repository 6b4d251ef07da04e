//! Arguments and formats that are common to the commands that query a running probeshim.

use std::time::Duration;

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{CliError, yaml};
use crate::admin::Client;
use crate::config::{BoundedDuration, Environment, InstanceArg, admin_socket};
use crate::socket::SocketPath;
use crate::terminal::format::{harmless_json, indented_json};
use crate::terminal::screen::Screen;

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

/// Format of the output. Each command supports some of them, see [`OutputFormat::parser`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// A table, or sentences.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// The kind and name of each object, such as `pod/web`.
    Name,
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

impl OutputFormat {
    /// Formats of commands that print documents.
    pub(super) const DOCUMENTS: &[Self] = &[Self::Table, Self::Json, Self::Yaml];

    /// Formats of commands that list objects with names.
    pub(super) const LISTS: &[Self] = &[Self::Table, Self::Wide, Self::Json, Self::Yaml, Self::Name];

    /// Formats of commands that list objects without names.
    pub(super) const WITHOUT_NAMES: &[Self] = &[Self::Table, Self::Wide, Self::Json, Self::Yaml];

    /// Returns the parser of `--output` for a command that supports these formats.
    pub(super) fn parser(supported: &[Self]) -> impl TypedValueParser<Value = Self> {
        let names = PossibleValuesParser::new(supported.iter().filter_map(ValueEnum::to_possible_value));
        names.try_map(|name| Self::from_str(&name, false))
    }

    /// Returns whether the output is JSON or YAML.
    pub(super) fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Returns standard output, whose width does not limit a wide table.
    pub(super) fn screen(self) -> Screen {
        let screen = Screen::stdout();
        if self == Self::Wide { Screen { width: None, ..screen } } else { screen }
    }

    /// Returns a document in indented JSON or in YAML. Fields that this version does not know are
    /// kept.
    pub(super) fn document(self, json: &RawValue) -> Result<String, CliError> {
        Ok(match self {
            Self::Yaml => yaml::from_json(&serde_json::from_str(json.get()).context("invalid JSON")?)?,
            _ => indented_json(&harmless_json(json.get())) + "\n",
        })
    }

    /// Returns documents as a list: as a JSON array with one item per line, or in YAML.
    pub(super) fn list(self, items: &[&RawValue]) -> Result<String, CliError> {
        let lines: Vec<String> = items.iter().map(|item| harmless_json(item.get())).collect();
        Ok(match self {
            Self::Yaml => {
                let values: Result<_, _> =
                    items.iter().map(|item| serde_json::from_str(item.get())).collect();
                yaml::from_json(&Value::Array(values.context("invalid JSON")?))?
            }
            _ if lines.is_empty() => "[]\n".to_owned(),
            _ => format!("[\n{}\n]\n", lines.join(",\n")),
        })
    }

    /// Returns a document of a stream: a line of JSON, or a YAML document with its marker.
    pub(super) fn streamed(self, json: &RawValue) -> Result<String, CliError> {
        Ok(match self {
            Self::Yaml => format!("---\n{}", self.document(json)?),
            _ => harmless_json(json.get()) + "\n",
        })
    }
}
