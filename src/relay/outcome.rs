//! Outcomes of calls and sessions, and the translation of the end on one side for the other side.
//!
//! A direction of a call ends with a [`PipeEnd`](super::pipe::PipeEnd). Both directions together
//! end with an [`ExchangeResult`]. That result determines a [`CallOutcome`] for
//! observers, and a [`SettledCall`](super::forward::SettledCall), the work that the session still
//! has to do. [`UpstreamFailure`] is a failure that upstream caused. [`DisconnectReason`] is the
//! reason for the end of a session.

use std::fmt;

use h2::{Error, Reason};

use crate::cri::Code;

/// Outcome of a call, as far as the relay knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The response is complete, with its gRPC code if it has one.
    Completed(Option<Code>),
    /// The client reset the stream: it cancelled the call, or its deadline was over.
    ClientReset(Reason),
    /// Upstream reset the stream.
    UpstreamReset(Reason),
    /// Upstream never accepted the call.
    Refused,
    /// The upstream connection broke during the call. Whether the runtime executed the call is
    /// unknown.
    ConnectionLost,
    /// The client's connection ended during the call.
    ClientGone,
}

/// Result of an exchange.
#[derive(Debug)]
pub(super) enum ExchangeResult {
    /// The response is complete, with its gRPC code if it has one.
    Answered(Option<Code>),
    /// The client reset the stream, or closed its connection.
    ClientReset(Reason),
    /// Upstream reset the stream before it sent a response.
    ResetUnanswered(Reason),
    /// Upstream did not finish the call.
    Failed(UpstreamFailure),
    /// The policy closes the client's connection.
    Disconnected,
}

/// Reason why upstream did not finish a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamFailure {
    /// Upstream reset the stream.
    Reset(Reason),
    /// Upstream never accepted the call, and reported this. The client may send the call again.
    Refused,
    /// The connection broke, or violated HTTP/2, during the call. Whether the runtime executed the
    /// call is unknown, so the client must see the same as without the relay: a closed connection.
    Lost,
}

/// Reason for the end of a session.
#[derive(Debug)]
pub(super) enum DisconnectReason {
    /// The client closed its connection, possibly after a drain.
    Client,
    /// The client violated HTTP/2.
    Protocol(h2::Error),
    /// The first bytes of the client were not HTTP/2.
    NotHttp2,
    /// Upstream closed its connection.
    Upstream,
    /// The relay drained before the client's handshake.
    Drain,
    /// The drain timeout was over.
    DrainTimeout,
    /// The policy closed the connection.
    Policy,
}

impl UpstreamFailure {
    /// Classifies the error that ended a stream after the stream had been handed to the connection.
    pub(super) fn from_stream_error(error: &Error) -> Self {
        if error.is_go_away() && error.is_remote() {
            // h2 returns this error only for streams above the last one that the GOAWAY names.
            Self::Refused
        } else if error.is_io() || error.is_go_away() {
            Self::Lost
        } else {
            Self::Reset(error.reason().unwrap_or(Reason::INTERNAL_ERROR))
        }
    }

    /// Classifies the error with which the connection declined a call. No byte of the call was
    /// sent.
    pub(super) fn from_send_error(error: &Error) -> Self {
        if error.is_go_away() || error.is_io() {
            Self::Refused
        } else {
            // h2 would decline the same call again.
            Self::Reset(error.reason().unwrap_or(Reason::INTERNAL_ERROR))
        }
    }
}

/// Returns the reason for the reset of upstream's stream after the client's stream ended with this
/// error.
pub(super) fn reason_of_client(error: &Error) -> Reason {
    error.reason().filter(|_| error.is_reset()).unwrap_or(Reason::CANCEL)
}

impl ExchangeResult {
    /// Returns the result of a call that failed before any part of its response was passed on.
    pub(super) fn on_no_response(failure: UpstreamFailure) -> Self {
        match failure {
            UpstreamFailure::Reset(reason) => Self::ResetUnanswered(reason),
            UpstreamFailure::Refused | UpstreamFailure::Lost => Self::Failed(failure),
        }
    }
}

impl From<&ExchangeResult> for CallOutcome {
    fn from(outcome: &ExchangeResult) -> Self {
        match *outcome {
            ExchangeResult::Answered(code) => Self::Completed(code),
            ExchangeResult::ClientReset(reason) => Self::ClientReset(reason),
            ExchangeResult::ResetUnanswered(reason) => Self::UpstreamReset(reason),
            ExchangeResult::Failed(failure) => failure.into(),
            ExchangeResult::Disconnected => Self::ConnectionLost,
        }
    }
}

impl From<UpstreamFailure> for CallOutcome {
    fn from(failure: UpstreamFailure) -> Self {
        match failure {
            UpstreamFailure::Reset(reason) => Self::UpstreamReset(reason),
            UpstreamFailure::Refused => Self::Refused,
            UpstreamFailure::Lost => Self::ConnectionLost,
        }
    }
}

impl CallOutcome {
    /// Returns the name of the gRPC code, or a lower-case label if there is none. Codes that gRPC
    /// does not define are `other`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Completed(Some(code)) => code.name().unwrap_or("other"),
            Self::Completed(None) => "no-status",
            Self::ClientReset(_) => "client-reset",
            Self::UpstreamReset(_) => "upstream-reset",
            Self::Refused => "refused",
            Self::ConnectionLost => "connection-lost",
            Self::ClientGone => "client-gone",
        }
    }

    /// Labels of outcomes without a gRPC code.
    const LABELS_WITHOUT_CODE: [&str; 6] =
        ["no-status", "client-reset", "upstream-reset", "refused", "connection-lost", "client-gone"];

    /// Returns all labels that [`Self::named`] accepts, except those of codes that gRPC does not
    /// define.
    pub fn labels() -> impl Iterator<Item = &'static str> {
        Code::NAMES.into_iter().chain(Self::LABELS_WITHOUT_CODE)
    }

    /// Returns whether the outcomes have the same label, without regard to the reason of a reset.
    #[must_use]
    pub fn has_label_of(self, other: Self) -> bool {
        match (self, other) {
            (Self::Completed(one), Self::Completed(other)) => one == other,
            _ => self.label() == other.label(),
        }
    }

    /// Returns the outcome that has this label. The label lacks the reason of a reset, which is
    /// assumed to be CANCEL.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        Some(match text {
            "no-status" => Self::Completed(None),
            "client-reset" => Self::ClientReset(Reason::CANCEL),
            "upstream-reset" => Self::UpstreamReset(Reason::CANCEL),
            "refused" => Self::Refused,
            "connection-lost" => Self::ConnectionLost,
            "client-gone" => Self::ClientGone,
            code => Self::Completed(Some(Code::named(code)?)),
        })
    }

    /// Returns the reason of the reset that ended the call.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Self::ClientReset(reason) | Self::UpstreamReset(reason) => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Display for CallOutcome {
    /// Writes the [label](Self::label), or the number of a code that gRPC does not define.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(Some(code)) => code.fmt(f),
            _ => f.write_str(self.label()),
        }
    }
}
