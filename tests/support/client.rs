//! An HTTP/2 client.

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::{framed, request, soon};

/// A client whose connection is driven by a task.
#[derive(Debug)]
pub struct Client {
    pub calls: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    pub async fn over(stream: UnixStream) -> Self {
        Self::try_over(stream).await.unwrap()
    }

    /// The same; fails where the server goes meanwhile.
    pub async fn try_over(stream: UnixStream) -> Result<Self, h2::Error> {
        let mut builder = Builder::new();
        builder
            .max_header_list_size(1 << 20)
            .initial_connection_window_size(1 << 30)
            .max_concurrent_reset_streams(10_000)
            .data_frame_budget(usize::MAX)
            // As clients of gRPC have it.
            .enable_push(false);
        let (calls, connection) = soon(builder.handshake(stream)).await?;
        Ok(Self { calls, driver: tokio::spawn(connection) })
    }

    /// Sends the head of a call.
    pub fn start(&mut self, request: Request<()>, end: bool) -> (ResponseFuture, SendStream<Bytes>) {
        self.calls.send_request(request, end).unwrap()
    }

    /// Sends a call with one message.
    pub fn call(&mut self, method: &str, message: Bytes) -> ResponseFuture {
        let (response, mut body) = self.start(request(method), false);
        body.send_data(message, true).unwrap();
        response
    }

    /// Sends a call with a message that does not matter.
    pub fn ask(&mut self, method: &str) -> ResponseFuture {
        self.call(method, framed(false, b"ask"))
    }

    /// Waits until the server says that it takes no more calls here.
    pub async fn told_to_leave(&self) {
        let told = async {
            while self.calls.clone().ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        soon(told).await;
    }

    /// Waits for the connection's end.
    pub async fn closed(self) -> Result<(), h2::Error> {
        soon(self.driver).await.unwrap()
    }

    /// Goes without a word.
    pub fn vanish(self) {
        self.driver.abort();
    }
}

/// A response's head and its body.
pub async fn head(response: ResponseFuture) -> (Response<()>, RecvStream) {
    let (head, body) = soon(response).await.unwrap().into_parts();
    (Response::from_parts(head, ()), body)
}
