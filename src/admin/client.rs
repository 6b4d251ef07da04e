//! The API's client: what the commands ask a running probeshim.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::api::{CallsQuery, ErrorBody, EventsQuery, ModeBody};
use super::{API_HEADER, API_VERSION};
use crate::socket::SocketPath;

/// How long an answer may take to begin, and how long to be whole. A status waits for the runtime, up to two seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the probeshim behind one admin socket, on a connection for each question.
#[derive(Clone, Debug)]
pub struct Client {
    socket: SocketPath,
}

/// Lines of JSON, as they come.
#[derive(Debug)]
pub struct Followed {
    body: Incoming,
    rest: BytesMut,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error(
        "no probeshim answers on {socket} ({source}); is `probeshim run` running, with this --admin? \
         One that root runs is asked by root"
    )]
    NotRunning {
        /// The admin socket.
        socket: SocketPath,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The socket is another user's.
    #[error("{0} is not ours to open; ask as the user that probeshim runs as, or as root")]
    Denied(SocketPath),
    /// Somebody listens there who speaks something else: the CRI perhaps.
    #[error("what answers on {0} is not the admin socket of a probeshim")]
    NotAdmin(SocketPath),
    /// It answers in another version of the API.
    #[error(
        "the probeshim on {socket} speaks version {theirs:?} of the admin API, and this program version {API_VERSION:?}; \
         use a program of the version that runs"
    )]
    OtherVersion {
        /// The admin socket.
        socket: SocketPath,
        /// What it says.
        theirs: String,
    },
    /// It does not do what was asked, because of how it was asked.
    #[error("{0}")]
    Refused(String),
    /// It does not answer in time.
    #[error("the probeshim on {0} does not answer within {REQUEST_TIMEOUT:?}")]
    TimedOut(SocketPath),
    /// It answers, but not as it should.
    #[error("the probeshim on {socket} failed: {reason}")]
    InvalidResponse {
        /// The admin socket.
        socket: SocketPath,
        /// In which way.
        reason: String,
    },
}

impl Client {
    /// A client of the probeshim whose admin socket this is.
    #[must_use]
    pub fn new(socket: SocketPath) -> Self {
        Self { socket }
    }

    /// How it stands, as JSON.
    pub async fn status(&self) -> Result<Bytes, ClientError> {
        self.read("/v1/status").await
    }

    /// The pods that are played, as a kubelet tells of its own.
    pub async fn pods(&self) -> Result<Bytes, ClientError> {
        self.read("/pods").await
    }

    /// What is done about probes, as JSON.
    pub async fn mode(&self) -> Result<Bytes, ClientError> {
        self.read("/v1/mode").await
    }

    /// Switches what is done about probes. Returns what is done then, as JSON.
    pub async fn switch_mode(&self, mode: &str) -> Result<Bytes, ClientError> {
        let wanted = ModeBody { mode: mode.to_owned() };
        let body = serde_json::to_vec(&wanted).map_err(|error| self.broken(&error))?;
        let request = Request::put("/v1/mode").header(http::header::CONTENT_TYPE, "application/json");
        let answer = self.ask(request.body(Full::from(body))).await?;
        self.whole(answer.into_body()).await
    }

    /// Calls, as a JSON array.
    pub async fn calls(&self, query: &CallsQuery) -> Result<Bytes, ClientError> {
        self.read(&path("/v1/calls", query)).await
    }

    /// Calls as they end, as lines of JSON.
    pub async fn follow(&self, query: &CallsQuery) -> Result<Followed, ClientError> {
        let answer = self.get(&path("/v1/calls/follow", query)).await?;
        Ok(Followed { body: answer.into_body(), rest: BytesMut::new() })
    }

    /// A call and what can be said of it, as JSON.
    pub async fn explain(&self, call: u64) -> Result<Bytes, ClientError> {
        self.read(&format!("/v1/calls/{call}/explain")).await
    }

    /// Events, as a JSON array.
    pub async fn events(&self, query: &EventsQuery) -> Result<Bytes, ClientError> {
        self.read(&path("/v1/events", query)).await
    }

    /// Events as they happen, as lines of JSON.
    pub async fn follow_events(&self, query: &EventsQuery) -> Result<Followed, ClientError> {
        let answer = self.get(&path("/v1/events/follow", query)).await?;
        Ok(Followed { body: answer.into_body(), rest: BytesMut::new() })
    }

    async fn read(&self, path: &str) -> Result<Bytes, ClientError> {
        let body = self.get(path).await?.into_body();
        self.whole(body).await
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, ClientError> {
        let collected = timeout(REQUEST_TIMEOUT, body.collect()).await;
        let collected = collected.map_err(|_| ClientError::TimedOut(self.socket.clone()))?;
        Ok(collected.map_err(|error| self.broken(&error))?.to_bytes())
    }

    async fn get(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        self.ask(Request::get(path).body(Full::default())).await
    }

    /// Asks, and returns an answer that is one.
    async fn ask(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = request.map_err(|error| self.broken(&error))?;
        let exchanged = timeout(REQUEST_TIMEOUT, self.exchange(request)).await;
        let answer = exchanged.map_err(|_| ClientError::TimedOut(self.socket.clone()))??;
        match answer.headers().get(API_HEADER).map(|version| version.to_str().unwrap_or("?")) {
            None => return Err(ClientError::NotAdmin(self.socket.clone())),
            Some(API_VERSION) => {}
            Some(theirs) => {
                let theirs = theirs.to_owned();
                return Err(ClientError::OtherVersion { socket: self.socket.clone(), theirs });
            }
        }
        if answer.status() == StatusCode::OK {
            return Ok(answer);
        }
        let status = answer.status();
        let body = self.whole(answer.into_body()).await?;
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(refusal) if status == StatusCode::BAD_REQUEST => Err(ClientError::Refused(refusal.error)),
            Ok(refusal) => Err(self.broken(&refusal.error)),
            Err(_) => Err(self.broken(&format!("it answers {status}"))),
        }
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let stream =
            UnixStream::connect(self.socket.as_path()).await.map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied => ClientError::Denied(self.socket.clone()),
                _ => ClientError::NotRunning { socket: self.socket.clone(), source },
            })?;
        let not_admin = |_| ClientError::NotAdmin(self.socket.clone());
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(not_admin)?;
        tokio::spawn(connection);
        request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
        requests.send_request(request).await.map_err(not_admin)
    }

    fn broken(&self, reason: &impl ToString) -> ClientError {
        ClientError::InvalidResponse { socket: self.socket.clone(), reason: reason.to_string() }
    }
}

fn path(path: &str, query: &impl Serialize) -> String {
    let query = serde_urlencoded::to_string(query).expect("a query is made of numbers and strings");
    format!("{path}?{query}")
}

impl Followed {
    /// The next line without its end; `None` once the probeshim has ended or is gone.
    pub async fn line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end).freeze();
                self.rest.advance(1);
                return Some(line);
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
