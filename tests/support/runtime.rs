//! A runtime that a test plays.

use std::path::Path;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{headers, read_all, soon};

/// Where the relay dials.
#[derive(Debug)]
pub struct Runtime {
    listener: UnixListener,
}

/// The runtime's end of one connection, driven by a task.
#[derive(Debug)]
pub struct Connection {
    calls: mpsc::UnboundedReceiver<Call>,
    orders: mpsc::UnboundedSender<Order>,
    driver: JoinHandle<Result<(), h2::Error>>,
}

/// One call as the runtime sees it.
#[derive(Debug)]
pub struct Call {
    pub request: Request<RecvStream>,
    pub respond: SendResponse<Bytes>,
}

#[derive(Debug)]
enum Order {
    Graceful,
    Abrupt(Reason),
    Vanish,
}

impl Runtime {
    pub fn listen(path: &Path) -> Self {
        Self { listener: UnixListener::bind(path).unwrap() }
    }

    /// The next connection, bare.
    pub async fn accept_raw(&self) -> UnixStream {
        soon(self.listener.accept()).await.unwrap().0
    }

    /// Whether somebody waits to be accepted.
    pub fn is_dialled(&self) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        self.listener.poll_accept(&mut cx).is_ready()
    }

    /// The next connection, with HTTP/2 on it.
    pub async fn accept(&self) -> Connection {
        Self::serve(self.accept_raw().await).await
    }

    /// The same, however long it takes to come.
    pub async fn accept_late(&self) -> Connection {
        Self::serve(self.listener.accept().await.unwrap().0).await
    }

    /// The next connection, bare, however long it takes to come.
    pub async fn accept_late_raw(&self) -> UnixStream {
        self.listener.accept().await.unwrap().0
    }

    async fn serve(stream: UnixStream) -> Connection {
        soon(Self::handshake(stream)).await.unwrap()
    }

    /// Speaks HTTP/2 on a connection; fails where the other side does not.
    pub async fn handshake(stream: UnixStream) -> Result<Connection, h2::Error> {
        let mut builder = Builder::new();
        builder
            .max_header_list_size(1 << 20)
            .initial_connection_window_size(1 << 30)
            .max_pending_accept_reset_streams(10_000)
            .max_concurrent_reset_streams(10_000)
            .max_local_error_reset_streams(None)
            .data_frame_budget(usize::MAX);
        let mut connection = builder.handshake::<_, Bytes>(stream).await?;
        let (report, calls) = mpsc::unbounded_channel();
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let driver = tokio::spawn(async move {
            loop {
                tokio::select! {
                    order = ordered.recv() => match order {
                        Some(Order::Graceful) => connection.graceful_shutdown(),
                        Some(Order::Abrupt(reason)) => connection.abrupt_shutdown(reason),
                        Some(Order::Vanish) => return Ok(()),
                        None => {
                            while let Some(call) = connection.accept().await { drop(call?); }
                            return Ok(());
                        }
                    },
                    call = connection.accept() => match call {
                        Some(Ok((request, respond))) => { let _ = report.send(Call { request, respond }); }
                        Some(Err(error)) => return Err(error),
                        None => return Ok(()),
                    },
                }
            }
        });
        Ok(Connection { calls, orders, driver })
    }
}

impl Connection {
    /// The next call.
    pub async fn call(&mut self) -> Call {
        soon(self.calls.recv()).await.expect("the connection ended instead")
    }

    /// The next call, if there is one before the connection ends.
    pub async fn next_call(&mut self) -> Option<Call> {
        self.calls.recv().await
    }

    /// Says that no more calls are taken.
    pub fn go_away(&self) {
        self.orders.send(Order::Graceful).unwrap();
    }

    /// Ends the connection with a reason.
    pub fn end(&self, reason: Reason) {
        self.orders.send(Order::Abrupt(reason)).unwrap();
    }

    /// Goes without a word.
    pub fn vanish(self) {
        let _ = self.orders.send(Order::Vanish);
    }

    /// Waits for the connection's end, without taking calls any more.
    pub async fn closed(self) -> Result<(), h2::Error> {
        let Self { calls: _calls, orders: _orders, driver } = self;
        soon(driver).await.unwrap()
    }
}

impl Call {
    /// Reads the whole request.
    pub async fn body(&mut self) -> Bytes {
        read_all(self.request.body_mut()).await.unwrap().0
    }

    /// Answers with one message and the status OK.
    pub fn answer(self, message: impl Into<Bytes>) {
        self.try_answer(message).unwrap();
    }

    /// Answers likewise; fails where the call has been reset.
    pub fn try_answer(mut self, message: impl Into<Bytes>) -> Result<(), h2::Error> {
        let mut body = self.respond.send_response(ok(), false)?;
        body.send_data(message.into(), false)?;
        body.send_trailers(headers(&[("grpc-status", "0")]))
    }

    /// How the client's side of the call ended, where it was reset.
    pub async fn reset(&mut self) -> Reason {
        soon(std::future::poll_fn(|cx| self.respond.poll_reset(cx))).await.unwrap()
    }
}

/// The head of a gRPC response.
pub fn ok() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).unwrap()
}
