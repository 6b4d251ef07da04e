//! Errors of procrun. They have the codes and messages of containerd, so that searches for
//! containerd's messages find them.

use tonic::{Code, Status};

/// Error that a call returns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct CriError {
    code: Code,
    message: String,
}

impl CriError {
    /// Returns an error with the code Unknown, which containerd uses for most errors.
    pub(super) fn unknown(message: impl Into<String>) -> Self {
        Self { code: Code::Unknown, message: message.into() }
    }

    /// Returns the error for an id or name that does not exist.
    pub(super) fn not_found() -> Self {
        Self { code: Code::NotFound, message: "not found".to_owned() }
    }

    /// Returns the error for an elapsed timeout of the caller.
    pub(super) fn deadline_exceeded(message: impl Into<String>) -> Self {
        Self { code: Code::DeadlineExceeded, message: message.into() }
    }

    /// Returns the error for a request that can never succeed.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, message: message.into() }
    }

    /// Returns the error for a response that exceeds the size limit.
    pub(super) fn too_long(message: impl Into<String>) -> Self {
        Self { code: Code::ResourceExhausted, message: message.into() }
    }

    /// Prepends the operation that failed to the message.
    pub(super) fn context(self, doing: impl AsRef<str>) -> Self {
        Self { message: format!("{}: {}", doing.as_ref(), self.message), ..self }
    }

    /// Prepends the nested operations that failed to the message, the outermost first.
    pub(super) fn with_path(self, doing: &[&str]) -> Self {
        Self { message: format!("{}: {}", doing.join(": "), self.message), ..self }
    }

    /// Whether the code is `NotFound`.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    #[cfg(test)]
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl From<CriError> for Status {
    fn from(refusal: CriError) -> Self {
        Self::new(refusal.code, refusal.message)
    }
}
