//! Errors of the relay and its parts, and their collection: all sockets and files that cannot be
//! opened are reported together.

use std::io;
use std::net::SocketAddr;

use crate::api_server::KubeconfigError;
use crate::config::{STATE_DIR_VARIABLE, StateDirSource};
use crate::lockfile::LockError;
use crate::policy::RuleError;
use crate::socket::{ActivationError, BindError};
use crate::state::{CloseError, StateError};
use crate::telemetry::traces::TracesError;
use crate::tls::TlsError;

/// Last line of the errors of a process that another instance leaves no socket, file or port.
pub(super) const SECOND_INSTANCE: &str =
    "hint: --instance NAME starts a second instance, with its own sockets, state and port";

/// Error of the relay or one of its parts.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The relay's socket cannot be opened.
    #[error("--listen: {0}")]
    Listen(#[source] BindError),
    /// The admin socket cannot be opened.
    #[error("--admin: {0}")]
    Admin(#[source] BindError),
    /// The address of metrics and health cannot be bound.
    #[error(
        "--http: cannot listen on {address}: {source}; choose another port, 0 for any that is free, or off"
    )]
    Http {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The address of the metrics cannot be bound.
    #[error(
        "--metrics-listen: cannot listen on {address}: {source}; choose another port, 0 for any that is free, or off"
    )]
    MetricsListen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The certificates of the metrics cannot be used.
    #[error("--metrics-tls-cert, --metrics-tls-key, --metrics-client-ca: {0}")]
    MetricsTls(#[source] TlsError),
    /// The API server that reviews tokens is unknown, or cannot be queried.
    #[error("--metrics-token-review: {0}")]
    MetricsTokenReview(#[source] KubeconfigError),
    /// The state store cannot be opened.
    #[error("--state-dir: {0}")]
    State(#[source] StateError, StateDirSource),
    /// The state store could not write its last changes.
    #[error("--state-dir: {0}")]
    StateNotClosed(#[from] CloseError),
    /// The fault rules contradict each other.
    #[error("--fault: {0}")]
    Faults(#[from] RuleError),
    /// The socket that systemd passes cannot be used.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// An operation of the operating system failed.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// Traces cannot be exported.
    #[error("--otlp-endpoint: {0}")]
    Traces(#[from] TracesError),
    /// Several of the above, which were tried independently.
    #[error("{}", lines(.0))]
    Several(Vec<RunError>),
    /// The relay ended because of a bug.
    #[error("the relay ended unexpectedly")]
    RelayEnded,
}

impl RunError {
    /// Joins errors into one without nesting.
    pub(super) fn several(errors: impl Iterator<Item = Self>) -> Self {
        let flat = errors.flat_map(|error| match error {
            Self::Several(errors) => errors,
            single => vec![single],
        });
        Self::Several(flat.collect())
    }

    /// Returns whether another process has what this one needs.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Listen(error) | Self::Admin(error) => {
                matches!(error, BindError::InUse(_) | BindError::Locked(LockError::Held { .. }))
            }
            Self::Http { source, .. } | Self::MetricsListen { source, .. } => {
                source.kind() == io::ErrorKind::AddrInUse
            }
            Self::State(error, _) => matches!(error, StateError::Locked(LockError::Held { .. })),
            _ => false,
        }
    }

    /// Returns the remedy of a conflict. A named state directory is that of each instance, whatever
    /// its `--instance`.
    fn remedy(&self) -> String {
        match self {
            Self::State(_, StateDirSource::Variable) => format!(
                "hint: {STATE_DIR_VARIABLE} names one state directory for all instances: unset it, or name \
                 another directory with --state-dir"
            ),
            Self::State(_, StateDirSource::Flag) => {
                "hint: two instances cannot share a state directory: name another one, or none for the \
                 default of --instance NAME"
                    .to_owned()
            }
            _ => SECOND_INSTANCE.to_owned(),
        }
    }
}

/// Returns one line for each error, and a line with each remedy if another instance causes one.
fn lines(errors: &[RunError]) -> String {
    let conflicts = errors.iter().filter(|error| error.is_conflict());
    let mut remedies: Vec<String> = conflicts.map(RunError::remedy).collect();
    remedies.dedup();
    let lines: Vec<String> = errors.iter().map(ToString::to_string).chain(remedies).collect();
    lines.join("\n")
}

/// Returns both values, or all errors together.
pub(super) fn both<A, B>(
    first: Result<A, RunError>,
    second: Result<B, RunError>,
) -> Result<(A, B), RunError> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (first, second) => Err(RunError::several(first.err().into_iter().chain(second.err()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(path: &str) -> BindError {
        BindError::InUse(path.into())
    }

    #[test]
    fn all_conflicts_with_another_instance_are_reported_with_one_remedy() {
        let sockets = both::<(), ()>(Err(RunError::Listen(taken("/a"))), Err(RunError::Admin(taken("/b"))));
        let text = both::<(), _>(Ok(()), sockets).unwrap_err().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("--listen: another process listens on /a"), "{text}");
        assert!(lines[1].starts_with("--admin: another process listens on /b"), "{text}");
        assert!(lines[2].contains("--instance NAME"), "{text}");
    }

    #[test]
    fn the_remedy_of_a_shared_state_directory_names_its_source() {
        let held = || StateError::Locked(LockError::Held { path: "/s/lock".into(), pid: None });
        let shown = |listen: Result<(), RunError>, source| {
            both::<(), ()>(Err(RunError::State(held(), source)), listen).unwrap_err().to_string()
        };
        let text = shown(Ok(()), StateDirSource::Variable);
        let expected = "--state-dir: another probeshim holds /s/lock\nhint: PROBESHIM_STATE_DIR names one state \
                        directory for all instances: unset it, or name another directory with --state-dir";
        assert_eq!(text, expected);
        let text = shown(Ok(()), StateDirSource::Flag);
        assert!(text.contains("name another one") && !text.contains("starts a second instance"), "{text}");
        let text = shown(Ok(()), StateDirSource::Default);
        assert!(text.ends_with(SECOND_INSTANCE), "{text}");
        let text = shown(Err(RunError::Listen(taken("/a"))), StateDirSource::Variable);
        assert!(text.contains("PROBESHIM_STATE_DIR") && text.ends_with(SECOND_INSTANCE), "{text}");
    }

    #[test]
    fn an_error_that_no_other_instance_causes_has_no_hint_at_instances() {
        let error =
            both::<(), _>(Ok(()), Err::<(), _>(RunError::Listen(BindError::IsDirectory("/a".into()))));
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("--listen: /a is a directory") && !text.contains("--instance"), "{text}");
    }
}
