//! How calls and sessions end, and how the end on one side is passed to the other.
//!
//! A direction of a call ends with a [`PipeEnd`](super::pipe::PipeEnd), both directions together with an `ExchangeResult` (in
//! `forward`). From that follow a [`CallOutcome`] for observers, and a [`SettledCall`](super::forward::SettledCall), which is what
//! the session has still to do. [`UpstreamFailure`] is a failure that upstream caused; [`DisconnectReason`] is the end of a session.

use std::fmt;

use h2::{Error, Reason};

use crate::cri::Code;

/// How a call ended, as far as the relay knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The response is complete; its gRPC code, if it has one.
    Completed(Option<Code>),
    /// The client reset the stream: it gave up, or its deadline was over.
    ClientReset(Reason),
    /// Upstream reset the stream.
    UpstreamReset(Reason),
    /// Upstream never took the call.
    Refused,
    /// Upstream's connection broke under it. Whether it ran is not known.
    ConnectionLost,
    /// The client's connection ended under it.
    ClientGone,
}

/// What became of a call that upstream did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamFailure {
    /// Upstream reset the stream.
    Reset(Reason),
    /// Upstream never took the call, and says so: the client may send it again.
    Refused,
    /// The connection broke, or broke the rules, with the call on it. Whether it ran is not known, so the client must see
    /// what it would see without us: a connection that is gone.
    Lost,
}

/// What ended a link.
#[derive(Debug)]
pub(super) enum DisconnectReason {
    /// The client went, after a drain perhaps.
    Client,
    /// The client broke the rules of HTTP/2.
    Protocol(h2::Error),
    /// The client's first bytes were not those of HTTP/2.
    NotHttp2,
    /// Upstream went.
    Upstream,
    /// The relay drained before the client had said a word.
    Drain,
    /// The drain timeout was over.
    DrainTimeout,
}

impl UpstreamFailure {
    /// Reads the error that ended a stream which had been handed to the connection.
    pub(super) fn from_stream_error(error: &Error) -> Self {
        if error.is_go_away() && error.is_remote() {
            // h2 gives this error only to streams above the last one that the GOAWAY names.
            Self::Refused
        } else if error.is_io() || error.is_go_away() {
            Self::Lost
        } else {
            Self::Reset(error.reason().unwrap_or(Reason::INTERNAL_ERROR))
        }
    }

    /// Reads the error with which the connection declined to take a call: nothing of it has been sent.
    pub(super) fn from_send_error(error: &Error) -> Self {
        if error.is_go_away() || error.is_io() {
            Self::Refused
        } else {
            // What h2 will not send now it will not send another time.
            Self::Reset(error.reason().unwrap_or(Reason::INTERNAL_ERROR))
        }
    }
}

/// The reason to give upstream when the client's side of a stream ended with this error.
pub(super) fn reason_of_client(error: &Error) -> Reason {
    error.reason().filter(|_| error.is_reset()).unwrap_or(Reason::CANCEL)
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
    /// The name of the gRPC code, or in small letters why there is none. Codes that gRPC does not define are `other`.
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

    /// The ending that is shown by this text. The reason of a reset is not in it, and taken to be CANCEL.
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

    /// The reason of the reset that ended it.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Self::ClientReset(reason) | Self::UpstreamReset(reason) => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Display for CallOutcome {
    /// The [label](Self::label), or the number of a code that gRPC does not define.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(Some(code)) => code.fmt(f),
            _ => f.write_str(self.label()),
        }
    }
}
