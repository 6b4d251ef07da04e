//! Client of the admin API, for the commands that query a running probeshim.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use hyperlocal::{UnixConnector, Uri};
use serde::Serialize;
use tokio::time::timeout;

use super::api::{CallsQuery, CaptureQuery, DeleteQuery, ErrorBody, EventsQuery, ModeBody, TimelineQuery};
use super::api::{ClearBody, FaultsBody, PauseBody, ResumeBody};
use super::{API_HEADER, API_VERSION};
use crate::socket::SocketPath;
use crate::terminal::sanitize;

/// Time limit for the head of a response, and again for its body. A status query waits up to two
/// seconds for the runtime.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Queries the probeshim behind one admin socket, with a new connection per request.
#[derive(Clone, Debug)]
pub struct Client {
    socket: SocketPath,
    http: legacy::Client<UnixConnector, Full<Bytes>>,
}

/// Lines of JSON that a probeshim streams.
#[derive(Debug)]
pub struct Followed {
    body: Incoming,
    rest: BytesMut,
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens on the socket.
    #[error(
        "no probeshim listens on {socket}: {source}; `probeshim` without arguments shows how to start one, and --admin or \
         --instance names another"
    )]
    NotRunning {
        /// The admin socket.
        socket: SocketPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// The socket belongs to another user.
    #[error("permission denied to open {0}; run this command as the user that runs probeshim, or as root")]
    Denied(SocketPath),
    /// This user may not use the admin socket.
    #[error("{0}")]
    Forbidden(String),
    /// The server on the socket does not speak the admin API, but for example the CRI.
    #[error("the server on {0} is not the admin API of a probeshim")]
    NotAdmin(SocketPath),
    /// The probeshim speaks another version of the API.
    #[error(
        "the probeshim on {socket} has version {theirs:?} of the admin API, and this program has version \
         {API_VERSION:?}; use the program of the probeshim that is running"
    )]
    OtherVersion {
        /// The admin socket.
        socket: SocketPath,
        /// The probeshim's version of the API.
        theirs: String,
    },
    /// The probeshim refused an invalid request.
    #[error("{0}")]
    Refused(String),
    /// The runtime does not answer, with its socket and the reason.
    #[error("not ready: {0}")]
    NotReady(String),
    /// The probeshim did not answer within the time limit.
    #[error("the probeshim on {0} did not answer within {REQUEST_TIMEOUT:?}")]
    TimedOut(SocketPath),
    /// The response is invalid, or an error other than a refusal.
    #[error("the probeshim on {socket} failed: {reason}")]
    InvalidResponse {
        /// The admin socket.
        socket: SocketPath,
        /// Description of the error.
        reason: String,
    },
}

impl Client {
    /// Creates a client of the probeshim with this admin socket.
    #[must_use]
    pub fn new(socket: SocketPath) -> Self {
        let http =
            legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(UnixConnector);
        Self { socket, http }
    }

    /// Returns the status as JSON.
    pub async fn status(&self) -> Result<Bytes, ClientError> {
        self.read("/v1/status").await
    }

    /// Fails unless probeshim answers.
    pub async fn check_live(&self) -> Result<(), ClientError> {
        self.read("/healthz").await.map(drop)
    }

    /// Fails unless probeshim and the runtime answer.
    pub async fn check_ready(&self) -> Result<(), ClientError> {
        self.read("/readyz").await.map(drop)
    }

    /// Returns the managed pods as JSON, in the format of a kubelet's `/pods`.
    pub async fn pods(&self) -> Result<Bytes, ClientError> {
        self.read("/pods").await
    }

    /// Returns the enforcement mode as JSON.
    pub async fn mode(&self) -> Result<Bytes, ClientError> {
        self.read("/v1/mode").await
    }

    /// Changes the enforcement mode. Returns the new mode as JSON.
    pub async fn switch_mode(&self, mode: &str) -> Result<Bytes, ClientError> {
        let wanted = ModeBody { mode: mode.to_owned() };
        let body = serde_json::to_vec(&wanted).map_err(|error| self.broken(&error))?;
        let request = Request::put("/v1/mode").header(http::header::CONTENT_TYPE, "application/json");
        let answer = self.ask(request.body(Full::from(body))).await?;
        self.whole(answer.into_body()).await
    }

    /// Returns the active fault rules as a JSON array.
    pub async fn faults(&self) -> Result<Bytes, ClientError> {
        self.read("/v1/faults").await
    }

    /// Activates fault rules, all or none. Returns them as a JSON array.
    pub async fn add_faults(&self, rules: &FaultsBody) -> Result<Bytes, ClientError> {
        self.post("/v1/faults", rules).await
    }

    /// Ends fault rules. Returns them, as they were, as a JSON array.
    pub async fn clear_faults(&self, names: &ClearBody) -> Result<Bytes, ClientError> {
        self.post("/v1/faults/clear", names).await
    }

    /// Returns the recorded calls that fault rules would have hit as JSON.
    pub async fn plan_faults(&self, rules: &FaultsBody) -> Result<Bytes, ClientError> {
        self.post("/v1/faults/plan", rules).await
    }

    /// Returns the active pauses, with their containers, as a JSON array.
    pub async fn pauses(&self) -> Result<Bytes, ClientError> {
        self.read("/v1/pauses").await
    }

    /// Begins a pause. Returns it, with its containers, as JSON.
    pub async fn begin_pause(&self, pause: &PauseBody) -> Result<Bytes, ClientError> {
        self.post("/v1/pauses", pause).await
    }

    /// Ends pauses. Returns them, as they were, as a JSON array.
    pub async fn resume(&self, names: &ResumeBody) -> Result<Bytes, ClientError> {
        self.post("/v1/pauses/resume", names).await
    }

    /// Requests the termination of a managed pod.
    pub async fn delete_pod(
        &self,
        namespace: &str,
        name: &str,
        query: &DeleteQuery,
    ) -> Result<(), ClientError> {
        let request = Request::delete(path(&format!("/v1/pods/{namespace}/{name}"), query));
        self.ask(request.body(Full::default())).await.map(drop)
    }

    /// Returns calls as a JSON array.
    pub async fn calls(&self, query: &CallsQuery) -> Result<Bytes, ClientError> {
        self.read(&path("/v1/calls", query)).await
    }

    /// Streams calls as they end, as lines of JSON.
    pub async fn follow(&self, query: &CallsQuery) -> Result<Followed, ClientError> {
        let answer = self.get(&path("/v1/calls/follow", query)).await?;
        Ok(Followed { body: answer.into_body(), rest: BytesMut::new() })
    }

    /// Captures calls with their messages, as lines of JSON.
    pub async fn capture(&self, query: &CaptureQuery) -> Result<Followed, ClientError> {
        let answer = self.get(&path("/v1/capture", query)).await?;
        Ok(Followed { body: answer.into_body(), rest: BytesMut::new() })
    }

    /// Returns a call with its explanation, as JSON.
    pub async fn explain(&self, call: u64) -> Result<Bytes, ClientError> {
        self.read(&format!("/v1/calls/{call}/explain")).await
    }

    /// Returns events as a JSON array.
    pub async fn events(&self, query: &EventsQuery) -> Result<Bytes, ClientError> {
        self.read(&path("/v1/events", query)).await
    }

    /// Streams events as they happen, as lines of JSON.
    pub async fn follow_events(&self, query: &EventsQuery) -> Result<Followed, ClientError> {
        let answer = self.get(&path("/v1/events/follow", query)).await?;
        Ok(Followed { body: answer.into_body(), rest: BytesMut::new() })
    }

    /// Returns the results of probes in a period, as lines of JSON.
    pub async fn timeline(&self, query: &TimelineQuery) -> Result<Bytes, ClientError> {
        self.read(&path("/v1/timeline", query)).await
    }

    async fn post(&self, path: &str, body: &impl Serialize) -> Result<Bytes, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.broken(&error))?;
        let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        let answer = self.ask(request.body(Full::from(body))).await?;
        self.whole(answer.into_body()).await
    }

    async fn read(&self, path: &str) -> Result<Bytes, ClientError> {
        let body = self.get(path).await?.into_body();
        self.whole(body).await
    }

    /// Reads a body. Each part of it may take as long as a request: a busy node is slow.
    async fn whole(&self, mut body: Incoming) -> Result<Bytes, ClientError> {
        let mut whole = BytesMut::new();
        loop {
            let frame = timeout(REQUEST_TIMEOUT, body.frame()).await;
            match frame.map_err(|_| ClientError::TimedOut(self.socket.clone()))? {
                None => return Ok(whole.freeze()),
                Some(frame) => {
                    let frame = frame.map_err(|error| self.broken(&error))?;
                    whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                }
            }
        }
    }

    async fn get(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        self.ask(Request::get(path).body(Full::default())).await
    }

    /// Sends a request. Returns the response, or an error unless it has the API's version and the
    /// status 200.
    async fn ask(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = request.map_err(|error| self.broken(&error))?;
        // `Uri::new` panics if the path is too long.
        let mut target = http::Uri::from(Uri::new(self.socket.as_path(), "/")).into_parts();
        target.path_and_query = request.uri().path_and_query().cloned();
        *request.uri_mut() = http::Uri::from_parts(target).map_err(|error| self.broken(&error))?;
        let exchanged = timeout(REQUEST_TIMEOUT, self.http.request(request)).await;
        let answer = exchanged.map_err(|_| ClientError::TimedOut(self.socket.clone()))?;
        let answer = answer.map_err(|error| self.request_error(&error))?;
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
            Ok(refusal) if status == StatusCode::FORBIDDEN => Err(ClientError::Forbidden(refusal.error)),
            Ok(refusal) => Err(self.broken(&refusal.error)),
            Err(_) if status == StatusCode::SERVICE_UNAVAILABLE => {
                Err(ClientError::NotReady(sanitize(String::from_utf8_lossy(&body).trim_end())))
            }
            Err(_) => Err(self.broken(&format!("unexpected response {status}"))),
        }
    }

    /// Converts an error of the HTTP client. The source of a connector's error is the operating
    /// system's error.
    fn request_error(&self, error: &legacy::Error) -> ClientError {
        let socket = self.socket.clone();
        let os_error = error.source().filter(|_| error.is_connect()).and_then(|source| source.downcast_ref());
        match os_error.and_then(io::Error::raw_os_error).map(io::Error::from_raw_os_error) {
            None => ClientError::NotAdmin(socket),
            Some(source) if source.kind() == io::ErrorKind::PermissionDenied => ClientError::Denied(socket),
            Some(source) => ClientError::NotRunning { socket, source },
        }
    }

    /// Returns the error of a response that has another form than expected.
    #[must_use]
    pub fn invalid_response(&self, reason: &str) -> ClientError {
        self.broken(&reason)
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
    /// Returns the next line without its line feed; `None` once the connection has ended.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_error_of_the_admin_client_has_the_io_error_as_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::new(SocketPath::new(&dir.path().join("a.sock")).unwrap());
        let error = client.status().await.unwrap_err();
        let ClientError::NotRunning { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.kind(), io::ErrorKind::NotFound, "{source}");
    }

    #[tokio::test]
    async fn an_admin_query_that_is_too_long_is_an_error() {
        let client = Client::new(SocketPath::new("/nowhere.sock".as_ref()).unwrap());
        let query = CallsQuery { method: Some("x".repeat(70_000)), ..CallsQuery::default() };
        let error = client.calls(&query).await.unwrap_err();
        assert!(matches!(error, ClientError::InvalidResponse { .. }), "{error}");
    }
}
