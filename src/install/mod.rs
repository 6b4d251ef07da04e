//! Installs probeshim as a service of systemd, points a kubelet at it, and undoes both.
//!
//! Files of others are never written. A record of what undoes the changes is written first. Each
//! step can be interrupted and repeated. A change of the kubelet reverts itself unless it is
//! confirmed:
//!
//! ```text
//! plan ──► record ──► program, units ──► timer ──► kubelet's drop-in ──► checks ──► confirm
//!                                          └─► bypass: removes the drop-in, restarts the kubelet
//! ```

mod by_hand;
mod bypass;
mod checks;
mod confirm;
mod doctor;
mod environment_file;
mod files;
mod finding;
mod installer;
mod kubeconfig;
mod kubelet_config;
mod kubelet_unit;
mod lock;
mod node;
mod paths;
mod plan;
mod preflight;
mod record;
mod running_service;
mod service_findings;
mod socket_access;
mod steps;
mod switch;
mod systemctl;
mod trial;
mod uninstall;
mod units;

use std::io;
use std::path::{Path, PathBuf};

pub use confirm::{Confirmation, confirm, switch_state};
pub use doctor::diagnose;
pub use finding::{Finding, FindingState};
pub use installer::Installer;
pub use paths::{InstalledUnit, Paths};
pub use plan::{InstallOptions, InstallPlan};
pub use record::RecordError;
pub use switch::SwitchError;
pub use systemctl::{ServiceManager, ServiceManagerError, Systemd, has_failed_service};
pub use trial::{FailedTrial, TrialDecision, decision_by_others};
pub use uninstall::{Uninstaller, is_installed};

use crate::config::Problems;
use crate::local_kubelet::ConfigurationError;

/// Error of an installation or of its removal.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The node has no kubelet that can be switched.
    #[error(
        "no kubelet was found: this node has no unit kubelet.service, nor one of k3s, RKE2, MicroK8s or k0s; to switch a \
         kubelet by hand, run `probeshim install` without --kubelet, and start the kubelet with \
         --container-runtime-endpoint=unix:///run/probeshim/probeshim.sock"
    )]
    NoKubelet,
    /// The kubelet of the node's distribution is switched by hand, in this way.
    #[error("{0}")]
    ByHand(String),
    /// The kubelet cannot be switched.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The kubelet's configuration cannot be read.
    #[error(transparent)]
    KubeletConfig(#[from] ConfigurationError),
    /// The kubelet's endpoint is not the socket of a runtime.
    #[error("the kubelet's endpoint {endpoint:?} {reason}")]
    Endpoint {
        /// The kubelet's endpoint.
        endpoint: String,
        /// The error.
        reason: String,
    },
    /// The socket of the runtime is one of probeshim itself.
    #[error(
        "{0} is a socket of probeshim itself: it would call itself; name that of the runtime, such as \
         --upstream unix:///run/containerd/containerd.sock"
    )]
    OwnSocket(String),
    /// systemd does not know the present files of the kubelet's unit, so the unit cannot be read.
    #[error("systemd has not read the changed files of {0} yet; run: systemctl daemon-reload")]
    StaleUnit(String),
    /// The configuration of probeshim is invalid.
    #[error(transparent)]
    Config(#[from] Problems),
    /// A program that was not installed by this command is in the way.
    #[error(
        "{0} is another program, and was not written by `probeshim install`; remove it, or replace it (`make install`) and \
         run: {0} install"
    )]
    OtherProgram(PathBuf),
    /// The service runs a program that was not installed by this command.
    #[error(
        "{0} is another program, and was not written by `probeshim install`; replace it in the way in which it was \
         installed (`make install`), and then run: {0} install"
    )]
    ForeignProgram(PathBuf),
    /// The socket that the kubelet uses would be removed.
    #[error(
        "the kubelet uses {now}, which would be replaced by {planned}; add --kubelet, so that the kubelet is switched \
         too, or point it back first: probeshim uninstall"
    )]
    KubeletUsesSocket {
        /// Socket of probeshim that the kubelet uses.
        now: String,
        /// Planned socket of probeshim.
        planned: String,
    },
    /// There is no change of a kubelet to confirm.
    #[error("there is nothing to confirm: no kubelet was switched by `probeshim install --kubelet`")]
    NothingToConfirm,
    /// The change was reverted before it was confirmed.
    #[error("the change was reverted: the kubelet uses the runtime's own socket")]
    Reverted,
    /// A check failed after the kubelet was switched.
    #[error("a check failed")]
    CheckFailed,
    /// The timer that reverts an unconfirmed change was stopped.
    #[error("the change is not confirmed, and no timer runs that reverts it")]
    NoTimer,
    /// A signal ended the installation before the change was confirmed.
    #[error("the installation was interrupted")]
    Interrupted,
    /// Something is mounted below a directory that would be removed.
    #[error("{0} has mounts below it, which a running or ended pod uses; stop its pods, and unmount them")]
    Mounted(PathBuf),
    /// The record cannot be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// systemd refused a step.
    #[error(transparent)]
    ServiceManager(#[from] ServiceManagerError),
    /// A file cannot be read, written or removed.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// The operation that failed.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl InstallError {
    fn file<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |source| Self::File { action, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests;
