//! Runs `systemctl`.

use std::io;
use std::process::{Command, Output};

use super::paths::InstalledUnit;

/// A manager of units: systemd, or that of a test.
pub trait ServiceManager {
    /// Runs `systemctl` with arguments, and returns its standard output.
    fn run(&self, arguments: &[&str]) -> Result<String, ServiceManagerError>;
}

/// The systemd of this node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Systemd;

/// Error of the manager of units.
#[derive(Debug, thiserror::Error)]
pub enum ServiceManagerError {
    /// `systemctl` could not be started.
    #[error("cannot run systemctl: {0}")]
    Start(#[from] io::Error),
    /// `systemctl` failed.
    #[error("systemctl {arguments} failed: {message}")]
    Failed {
        /// Arguments of `systemctl`.
        arguments: String,
        /// Its standard error, or its exit status.
        message: String,
    },
}

impl ServiceManager for Systemd {
    fn run(&self, arguments: &[&str]) -> Result<String, ServiceManagerError> {
        // A pager would wait for input.
        let output = Command::new("systemctl").arg("--no-pager").args(arguments).output()?;
        let Output { status, stdout, stderr } = output;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&stderr).trim().replace('\n', "; ");
        let message = if stderr.is_empty() { status.to_string() } else { stderr };
        Err(ServiceManagerError::Failed { arguments: arguments.join(" "), message })
    }
}

/// Returns whether the service of probeshim has failed.
#[must_use]
pub fn has_failed_service(manager: &dyn ServiceManager) -> bool {
    property(manager, InstalledUnit::Service.name(), "ActiveState").is_ok_and(|state| state == "failed")
}

/// Returns the value of a property of a unit. Empty if the unit does not exist.
pub(super) fn property(
    manager: &dyn ServiceManager,
    unit: &str,
    name: &str,
) -> Result<String, ServiceManagerError> {
    let value = manager.run(&["show", "--value", "--property", name, unit])?;
    Ok(value.trim().to_owned())
}
