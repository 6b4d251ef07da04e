//! The client that sent a request.

use crate::relay::Peer;

/// The client that sent a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    /// Process of the client; `None` on TCP, where the kernel does not report it.
    pub(super) peer: Option<Peer>,
    /// Rights of the client on the admin socket.
    pub(super) class: CallerClass,
    /// Whether the client has a certificate that TLS has verified.
    pub(super) has_certificate: bool,
}

/// Class of a caller. Each has the rights of those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallerClass {
    /// A user who reads: calls with commands and output, probes, events and results.
    #[default]
    Read,
    /// A user who also sets the mode, pauses probes, deletes pods of `play`, and adds rules that
    /// change no message.
    Control,
    /// Root, or the user of probeshim. Captures and rules that change messages make a caller root
    /// on the node.
    Owner,
}

impl Caller {
    /// Returns the user of the client, as part of a sentence.
    pub(super) fn uid(&self) -> String {
        self.peer.as_ref().map_or_else(|| "?".to_owned(), |peer| peer.uid.to_string())
    }
}
