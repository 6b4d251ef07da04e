//! Fixtures: a relay in this process, and HTTP/2 peers on both of its ends.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its own part")]

pub mod client;
pub mod logs;
pub mod runtime;
pub mod skip;
pub mod wire;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use probeshim::execsync::CallRecord;
use probeshim::history::{self, CallHistory, Filter, Selection};
use probeshim::relay::{self, CallIds, Relay, RelayConfig, RelaySummary};
use probeshim::socket::{BindMode, BoundPath, SocketPath, bind};
use probeshim::tap::{self, Call, Decoder, Tap, TapEvent};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use client::Client;
use runtime::{Connection, Runtime};

/// What never happens in this time is taken never to happen. No test measures speed by it.
const NEVER: Duration = Duration::from_secs(60);

/// A relay on a thread of its own, in a folder of its own, with the place where its runtime listens.
#[derive(Debug)]
pub struct Shim {
    folder: TempDir,
    claim: Option<BoundPath>,
    relay: Option<Relay>,
    drain: CancellationToken,
    /// What the tap saw.
    pub calls: Arc<CallHistory>,
    pub relay_metrics: relay::RelayMetrics,
    pub tap_metrics: tap::TapMetrics,
}

/// Starts a relay with its tap. Its runtime is yet to come.
pub fn shim() -> Shim {
    shim_with(Duration::from_secs(30))
}

/// Starts a relay with a drain timeout.
pub fn shim_with(drain_timeout: Duration) -> Shim {
    let (shim, decoder) = tapped(drain_timeout, tap::TapConfig::default());
    shim.decode(decoder);
    shim
}

/// Starts a relay whose tap has its own settings; what it takes waits to be decoded.
pub fn tapped(drain_timeout: Duration, tap: tap::TapConfig) -> (Shim, Decoder) {
    let folder = tempfile::tempdir().unwrap();
    let upstream = at(&folder, "runtime.sock");
    let listening = bind(&at(&folder, "shim.sock"), BindMode::InheritFrom(&upstream)).unwrap();
    let drain = CancellationToken::new();
    let settings = RelayConfig { upstream, drain_timeout };
    let (relay_metrics, tap_metrics) = (relay::RelayMetrics::default(), tap::TapMetrics::default());
    let (tap, decoder) = Tap::new(tap, tap_metrics.clone());
    let relay = Relay::start(
        listening.listener,
        settings,
        Arc::new(tap),
        relay_metrics.clone(),
        CallIds::starting_at(1),
        drain.clone(),
    )
    .unwrap();
    let calls = Arc::new(CallHistory::new(history::Limits::default()));
    let shim =
        Shim { folder, claim: listening.claim, relay: Some(relay), drain, calls, relay_metrics, tap_metrics };
    (shim, decoder)
}

fn at(folder: &TempDir, name: &str) -> SocketPath {
    SocketPath::parse(folder.path().join(name).to_str().unwrap()).unwrap()
}

impl Shim {
    /// A runtime behind this relay.
    pub fn runtime(&self) -> Runtime {
        Runtime::listen(at(&self.folder, "runtime.sock").as_path())
    }

    /// Where this relay listens.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("shim.sock")
    }

    /// A client's bare connection to this relay.
    pub async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.path()).await.unwrap()
    }

    /// An HTTP/2 client of this relay.
    pub async fn client(&self) -> Client {
        Client::over(self.connect().await).await
    }

    /// A client and the runtime's end of its connection.
    pub async fn joined(&self) -> (Client, Connection, Runtime) {
        let runtime = self.runtime();
        let (client, connection) = soon(async { tokio::join!(self.client(), runtime.accept()) }).await;
        (client, connection, runtime)
    }

    /// Decodes what the tap takes, in a task.
    pub fn decode(&self, mut decoder: Decoder) {
        let calls = self.calls.clone();
        tokio::spawn(async move {
            let keep = |sighting| {
                if let TapEvent::CallEnded(ended) = sighting {
                    calls.push(CallRecord::unanalyzed(ended.call, None, None));
                }
            };
            while decoder.next(keep).await {}
        });
    }

    /// What the tap saw, once it has seen so many calls.
    pub async fn seen(&self, count: usize) -> Vec<Arc<Call>> {
        let seen = async {
            loop {
                let calls = self.calls.select(&Filter::default(), Selection::All);
                if calls.len() >= count {
                    return calls.iter().map(|record| record.call.clone()).collect();
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(seen).await
    }

    /// Tells the relay to drain.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Waits for the relay to end.
    pub async fn ended(&mut self) -> RelaySummary {
        soon(self.relay.take().unwrap().ended()).await.expect("the relay panicked")
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.drain.cancel();
    }
}

/// A call goes through: the client asks, the runtime answers, the client has the answer.
pub async fn is_served(client: &mut Client, runtime: &mut Connection) {
    let response = client.ask("/a.B/C");
    runtime.call().await.answer("served");
    assert_eq!(answered(response).await, "served");
}

/// The message of an answer that is whole.
pub async fn answered(response: ResponseFuture) -> Bytes {
    let (_, mut body) = client::head(response).await;
    read_all(&mut body).await.unwrap().0
}

/// Awaits what must happen, and fails where it does not.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(NEVER, future).await.expect("what was awaited never happened")
}

/// A gRPC request to a method.
pub fn request(method: &str) -> Request<()> {
    Request::builder()
        .method("POST")
        .uri(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// A message in its gRPC frame.
pub fn framed(compressed: bool, message: &[u8]) -> Bytes {
    let mut frame = vec![u8::from(compressed)];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    frame.into()
}

/// Headers from pairs; a name may come twice.
pub fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect()
}

/// Everything that a stream carries, and its trailers; the error if it breaks, with what came before.
pub async fn read_all(body: &mut RecvStream) -> Result<(Bytes, Option<HeaderMap>), (Bytes, h2::Error)> {
    let mut all = Vec::new();
    while let Some(chunk) = soon(body.data()).await {
        match chunk {
            Ok(chunk) => {
                body.flow_control().release_capacity(chunk.len()).unwrap();
                all.extend_from_slice(&chunk);
            }
            Err(error) => return Err((all.into(), error)),
        }
    }
    match soon(body.trailers()).await {
        Ok(trailers) => Ok((all.into(), trailers)),
        Err(error) => Err((all.into(), error)),
    }
}

/// Sends data with the receiver's back-pressure.
pub async fn send_all(
    stream: &mut h2::SendStream<Bytes>,
    mut data: Bytes,
    end: bool,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = loop {
            match soon(std::future::poll_fn(|cx| stream.poll_capacity(cx))).await {
                Some(Ok(room)) if room > 0 => break room,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(h2::Reason::STREAM_CLOSED.into()),
            }
        };
        let part = data.split_to(room.min(data.len()));
        stream.send_data(part, end && data.is_empty())?;
    }
    Ok(())
}
