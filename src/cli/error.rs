//! Errors of commands.

use std::fmt;

use anyhow::anyhow;

use super::instances;
use crate::admin::ClientError;
use crate::config::Problems;
use crate::install::InstallError;

/// Error of a command. Each variant has its own exit code.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Arguments, configuration or manifests are invalid.
    #[error("{0}")]
    Usage(String),
    /// The command failed.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl CliError {
    /// Returns a failure with the text of an error that names its causes itself. Its sources are
    /// dropped, which would print the causes again.
    pub fn from_display(error: impl fmt::Display) -> Self {
        Self::Failed(anyhow!("{error}"))
    }
}

impl From<Problems> for CliError {
    fn from(problems: Problems) -> Self {
        Self::Usage(problems.to_string())
    }
}

impl From<InstallError> for CliError {
    fn from(error: InstallError) -> Self {
        match error {
            InstallError::Config(problems) => problems.into(),
            other => Self::from_display(other),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(reason) => Self::Usage(reason),
            ClientError::NotRunning { ref socket, .. } => {
                let hint = instances::hint(socket.as_path());
                let hint = hint.map(|hint| format!("\n{hint}"));
                Self::from_display(format!("{error}{}", hint.unwrap_or_default()))
            }
            other => Self::from_display(other),
        }
    }
}
