//! A call through probeshim to a misbehaving runtime, and its effect on both.

use std::future::pending;

use bytes::Bytes;
use fixtures::http2::client::Client;
use fixtures::http2::runtime::{Connection, Runtime};
use fixtures::http2::wire::{DATA, Wire};
use fixtures::http2::{framed, is_served, request};
use fixtures::wait::soon;
use h2::Reason;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use crate::hostile::{assert_no_panic, descriptors_at_rest, descriptors_return_to};
use crate::program::{Place, Running, joined, serves};

/// Result of a call for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A complete answer: its HTTP status, its `grpc-status`, and the number of bytes in its body.
    Answer(u16, Option<String>, usize),
    /// The stream is reset with this code.
    Reset(Reason),
    /// The runtime has not processed the call. The client may repeat it.
    Refused,
    /// The connection has ended. The client does not know whether the call was executed.
    Lost,
}

impl From<h2::Error> for End {
    fn from(error: h2::Error) -> Self {
        match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_reset() => Self::Refused,
            Some(reason) if error.is_reset() => Self::Reset(reason),
            // h2 reports this error for streams above the last stream of a GOAWAY.
            _ if error.is_go_away() && error.is_remote() => Self::Refused,
            _ => Self::Lost,
        }
    }
}

/// Makes a call and reads its answer, up to the size of the first window.
pub(super) async fn end_of_call(client: &mut Client, message: Bytes) -> End {
    call(client, message, true).await.unwrap_or_else(End::from)
}

async fn call(client: &mut Client, message: Bytes, is_whole: bool) -> Result<End, h2::Error> {
    let (response, mut request_body) = client.calls.send_request(request("/a.B/C"), false)?;
    // If the connection has ended in the meantime, the response has the error.
    let _ = request_body.send_data(message, is_whole);
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = 0;
    while let Some(chunk) = body.data().await {
        bytes += chunk?.len();
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let code = trailers.get("grpc-status").or(head.headers.get("grpc-status"));
    let code = code.map(|code| code.to_str().unwrap().to_owned());
    Ok(End::Answer(head.status.as_u16(), code, bytes))
}

/// A runtime that sends these bytes once it has read a call.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Whether the client has sent the whole call.
    pub(super) is_whole: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) then: Then,
    /// Expected end of the call, through probeshim and without it.
    pub(super) end: End,
}

/// Behaviour of a runtime after it has sent everything.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Then {
    Stays,
    /// The runtime keeps the connection open, and has sent everything byte by byte.
    StaysSlowly,
    Closes,
}

impl Case {
    pub(super) fn stays(name: &'static str, bytes: Vec<u8>, end: End) -> Self {
        Self { name, is_whole: true, bytes, then: Then::Stays, end }
    }

    pub(super) fn closes(name: &'static str, bytes: Vec<u8>, end: End) -> Self {
        Self { then: Then::Closes, ..Self::stays(name, bytes, end) }
    }

    async fn end_of_call(&self, client: &mut Client) -> End {
        call(client, framed(false, b"ask"), self.is_whole).await.unwrap_or_else(End::from)
    }

    /// Reads a call from a connection and misbehaves as the case specifies. Never returns.
    async fn misbehave(&self, stream: UnixStream) {
        let mut wire = Wire(stream);
        wire.expect_hello().await;
        wire.next_of(DATA).await;
        let size = if self.then == Then::StaysSlowly { 1 } else { self.bytes.len().max(1) };
        for part in self.bytes.chunks(size) {
            // The other side may close the connection before everything is written.
            if wire.0.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if self.then == Then::Closes {
            drop(wire);
        }
        pending::<()>().await;
    }

    /// Asserts that the call ends as expected, with and without probeshim.
    pub(super) async fn is_met(&self) {
        let name = self.name;
        let (client, runtime) = UnixStream::pair().unwrap();
        let direct = async { self.end_of_call(&mut Client::over(client).await).await };
        let direct = tokio::select! {
            end = soon(direct) => end,
            () = self.misbehave(runtime) => unreachable!(),
        };
        assert_eq!(direct, self.end, "{name}: without probeshim");
        let fronted = Fronted::start().await;
        let misbehaviour = async { self.misbehave(fronted.runtime.accept_raw().await).await };
        let through = async {
            let mut client = fronted.client().await;
            let end = soon(self.end_of_call(&mut client)).await;
            assert_eq!(end, self.end, "{name}: through probeshim");
            // The runtime's other connection is still open.
            serves(&fronted.shim, &fronted.runtime).await;
        };
        tokio::select! {
            () = through => {}
            () = misbehaviour => unreachable!(),
        }
        fronted.assert_unharmed(name).await;
    }
}

/// A probeshim in front of a runtime that the test plays, with a client that stays connected.
pub(super) struct Fronted {
    pub(super) shim: Running,
    pub(super) runtime: Runtime,
    pub(super) bystander: (Client, Connection),
    /// Open descriptors of probeshim while only the bystander is connected.
    descriptors: usize,
    _place: Place,
}

impl Fronted {
    pub(super) async fn start() -> Self {
        let place = Place::new();
        let (shim, runtime) = place.start_with_runtime(&[]).await;
        let mut bystander = joined(&shim, &runtime).await;
        is_served(&mut bystander.0, &mut bystander.1).await;
        let descriptors = descriptors_at_rest(&place, &shim).await;
        Self { shim, runtime, bystander, descriptors, _place: place }
    }

    pub(super) async fn client(&self) -> Client {
        Client::over(UnixStream::connect(&self.shim.socket).await.unwrap()).await
    }

    /// Asserts that the bystander and a new client are served, that probeshim has closed the
    /// descriptors of other clients, that none of its threads panicked, and that it ends properly.
    pub(super) async fn assert_unharmed(mut self, name: &str) {
        is_served(&mut self.bystander.0, &mut self.bystander.1).await;
        serves(&self.shim, &self.runtime).await;
        descriptors_return_to(&self.shim, self.descriptors).await;
        assert_no_panic(&self.shim).await;
        self.shim.signal(Signal::TERM);
        assert_eq!(self.shim.ended().await, Some(0), "{name}");
    }
}
