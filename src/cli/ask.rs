//! What the commands that ask a running probeshim have in common.

use clap::{Args, ValueEnum};

use super::Failure;
use crate::admin::Client;
use crate::config::{Surroundings, admin_socket};

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

impl Where {
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(admin_socket(self.admin.as_deref(), &Surroundings::here())?))
    }
}
