//! Answers other than OK, with the codes and in the words of containerd, so that what people grep for is there.

use std::io;

use tonic::{Code, Status};

/// Why a call is not answered with OK.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct CriError {
    code: Code,
    message: String,
}

impl CriError {
    /// What containerd has no code for, which is most.
    pub(super) fn unknown(message: impl Into<String>) -> Self {
        Self { code: Code::Unknown, message: message.into() }
    }

    /// Nothing has this id or name.
    pub(super) fn not_found() -> Self {
        Self { code: Code::NotFound, message: "not found".to_owned() }
    }

    /// The time that the caller gave is over.
    pub(super) fn deadline_exceeded(message: impl Into<String>) -> Self {
        Self { code: Code::DeadlineExceeded, message: message.into() }
    }

    /// What was asked for can never be.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, message: message.into() }
    }

    /// The answer is too long to be sent.
    pub(super) fn too_long(message: impl Into<String>) -> Self {
        Self { code: Code::ResourceExhausted, message: message.into() }
    }

    /// The same, with what was being done before it.
    pub(super) fn context(self, doing: impl AsRef<str>) -> Self {
        Self { message: format!("{}: {}", doing.as_ref(), self.message), ..self }
    }

    /// The same, with everything that was being done before it, from the outermost on.
    pub(super) fn with_path(self, doing: &[&str]) -> Self {
        Self { message: format!("{}: {}", doing.join(": "), self.message), ..self }
    }

    /// Whether it says that something is not there.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    /// The words alone.
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

/// Returns the text of a system error as Go writes it: without the number, and with a small first letter.
pub(super) fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
