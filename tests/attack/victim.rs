//! The second client, whose latencies are measured: one connection, with a Version call each
//! millisecond.

use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use hdrhistogram::Histogram;
use http::Request;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::stub;

/// Time between the starts of two calls, if the first call ends within that time.
const PACE: Duration = Duration::from_millis(1);

/// Time after which a call counts as failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Latencies of the second client's calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latencies {
    pub(crate) failed: u64,
    /// 99th percentile in milliseconds.
    pub(crate) p99: f64,
    /// Maximum in milliseconds.
    pub(crate) max: f64,
}

/// A second client that is making calls on its own thread.
#[derive(Debug)]
pub(crate) struct Victim {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Latencies>,
}

impl Victim {
    /// Connects, and starts to make calls on a new thread.
    pub(crate) fn start(socket: &Path) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (socket, (ready, is_ready)) = (socket.to_owned(), std::sync::mpsc::channel());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = connect(&socket).await;
                for _ in 0..100 {
                    version(&mut connection).await.unwrap();
                }
                ready.send(()).unwrap();
                measure(&mut connection, stopped).await
            })
        });
        is_ready.recv().unwrap();
        Self { stop, thread }
    }

    /// Stops the calls and returns their latencies.
    pub(crate) fn stop(self) -> Latencies {
        let _ = self.stop.send(());
        self.thread.join().unwrap()
    }
}

async fn measure(connection: &mut SendRequest<Bytes>, mut stopped: oneshot::Receiver<()>) -> Latencies {
    let mut latencies = Histogram::<u64>::new(3).unwrap();
    let mut failed = 0;
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stopped.try_recv().is_err() {
        ticks.tick().await;
        let start = Instant::now();
        match timeout(CALL_TIMEOUT, version(connection)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => failed += 1,
        }
        latencies.record(u64::try_from(start.elapsed().as_micros()).unwrap()).unwrap();
    }
    let ms = |micros: u64| micros as f64 / 1000.0;
    Latencies { failed, p99: ms(latencies.value_at_quantile(0.99)), max: ms(latencies.max()) }
}

/// Connects to a runtime.
pub(crate) async fn connect(socket: &Path) -> SendRequest<Bytes> {
    let stream = UnixStream::connect(socket).await.unwrap();
    let (calls, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    calls
}

async fn version(connection: &mut SendRequest<Bytes>) -> Result<(), h2::Error> {
    call(connection, stub::VERSION, Bytes::from_static(b"\0\0\0\0\0")).await
}

/// Makes a call with a message, which has its gRPC frame, and waits for its end.
pub(crate) async fn call(
    connection: &mut SendRequest<Bytes>,
    method: &str,
    message: Bytes,
) -> Result<(), h2::Error> {
    let request = Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut body) = connection.send_request(request, false)?;
    body.send_data(message, true)?;
    let mut answer = response.await?.into_body();
    while let Some(chunk) = answer.data().await {
        let length = chunk?.len();
        answer.flow_control().release_capacity(length)?;
    }
    answer.trailers().await?;
    Ok(())
}
