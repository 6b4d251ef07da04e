//! A client that makes calls on one connection and measures them.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use hdrhistogram::Histogram;
use http::Request;
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval};

use crate::case::Case;

/// A connection, which is closed when dropped.
pub(crate) struct Load {
    calls: SendRequest<Bytes>,
    driver: JoinHandle<()>,
}

impl Load {
    pub(crate) async fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).await.unwrap();
        let (calls, connection) = h2::client::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 30)
            .handshake(stream)
            .await
            .unwrap();
        let driver = tokio::spawn(async move { drop(connection.await) });
        Self { calls, driver }
    }

    /// Makes `count` calls, `concurrency` of them at a time. Returns their latencies in
    /// nanoseconds, and the duration of the whole.
    pub(crate) async fn run(
        &mut self,
        case: &Case,
        concurrency: usize,
        count: usize,
    ) -> (Histogram<u64>, Duration) {
        assert_eq!(count % concurrency, 0, "all workers make the same number of calls");
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for _ in 0..concurrency {
            let (calls, uri) = (self.calls.clone(), uri(case));
            let message = case.message.clone();
            workers.spawn(async move {
                let mut latencies = Histogram::<u64>::new(3).unwrap();
                for _ in 0..count / concurrency {
                    let start = Instant::now();
                    call(calls.clone(), &uri, message.clone()).await;
                    latencies.record(u64::try_from(start.elapsed().as_nanos()).unwrap()).unwrap();
                }
                latencies
            });
        }
        let mut latencies = Histogram::new(3).unwrap();
        while let Some(measured) = workers.join_next().await {
            latencies.add(measured.unwrap()).unwrap();
        }
        (latencies, start.elapsed())
    }

    /// Makes these calls, `per_second` calls per second, without waiting for earlier calls. Returns
    /// their latencies in nanoseconds, and the duration of the whole.
    pub(crate) async fn pace(
        &mut self,
        cases: impl Iterator<Item = &Case>,
        per_second: u32,
    ) -> (Histogram<u64>, Duration) {
        let start = Instant::now();
        let (mut ticks, mut running) = (interval(Duration::from_secs(1) / per_second), JoinSet::new());
        for case in cases {
            ticks.tick().await;
            let (calls, uri) = (self.calls.clone(), uri(case));
            let message = case.message.clone();
            running.spawn(async move {
                let start = Instant::now();
                call(calls, &uri, message).await;
                u64::try_from(start.elapsed().as_nanos()).unwrap()
            });
        }
        let mut latencies = Histogram::new(3).unwrap();
        while let Some(latency) = running.join_next().await {
            latencies.record(latency.unwrap()).unwrap();
        }
        (latencies, start.elapsed())
    }

    /// Starts a call that sends these bytes as far as the windows allow, and does not end.
    pub(crate) fn upload(&mut self, case: &Case, bytes: &Bytes) -> (ResponseFuture, SendStream<Bytes>) {
        let (response, mut body) = self.calls.send_request(request(&uri(case)), false).unwrap();
        body.send_data(bytes.clone(), false).unwrap();
        (response, body)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn uri(case: &Case) -> String {
    format!("http://localhost{}", case.path)
}

fn request(uri: &str) -> Request<()> {
    Request::post(uri)
        .header("content-type", "application/grpc")
        .header("user-agent", "bench")
        .header("te", "trailers")
        .header("grpc-timeout", "10S")
        .body(())
        .unwrap()
}

async fn call(mut calls: SendRequest<Bytes>, uri: &str, message: Bytes) {
    let (response, mut body) = calls.send_request(request(uri), false).unwrap();
    body.send_data(message, true).unwrap();
    let mut answer = response.await.unwrap().into_body();
    while let Some(chunk) = answer.data().await {
        let length = chunk.unwrap().len();
        answer.flow_control().release_capacity(length).unwrap();
    }
    assert_eq!(answer.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}
