//! What the commands that ask a running probeshim have in common.

use clap::{Args, ValueEnum};

use crate::admin::{Client, ClientError};
use crate::config::{Problems, Surroundings, admin_socket};

/// Where to ask.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub(super) struct Where {
    /// The admin socket of the probeshim to ask
    /// [default: unix:///run/probeshim/admin.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    admin: Option<String>,
}

/// How to show the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Why a command did not do what was asked; each ends the program with its own code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It was asked in a wrong way.
    #[error("{0}")]
    Usage(String),
    /// It was not possible.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Where {
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(admin_socket(self.admin.as_deref(), &Surroundings::here())?))
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Usage(problems.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(reason) => Self::Usage(reason),
            other => Self::Other(other.into()),
        }
    }
}
