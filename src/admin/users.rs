//! Users who may connect to the admin socket, as the kernel reports them (`SO_PEERCRED`). Others
//! get a refusal, outside of the connections that serve the API.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

use super::api::ErrorBody;
use super::refusal_log::RefusalLog;
use super::{API_HEADER, API_VERSION};
use crate::relay::Peer;

/// Maximum number of connections that receive a refusal at the same time. Further connections are
/// closed without one.
const MAX_REFUSALS: usize = 32;

/// Maximum duration of a connection that receives a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Users who may connect to the admin socket.
#[derive(Clone, Debug, Default)]
pub struct AdminUsers {
    /// User of this process.
    pub own: u32,
    /// Further users, except root, who may always connect.
    pub allowed: Vec<u32>,
}

/// Accepts connections of permitted users, and refuses all others.
pub(super) struct UserListener {
    listener: UnixListener,
    users: AdminUsers,
    refusals: Arc<Semaphore>,
    log: RefusalLog,
}

impl AdminUsers {
    fn permit(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.allowed.contains(&uid)
    }
}

impl UserListener {
    pub(super) fn new(listener: UnixListener, users: AdminUsers) -> Self {
        let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
        Self { listener, users, refusals, log: RefusalLog::default() }
    }

    fn refuse(&self, stream: UnixStream) {
        let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
        if let Some(connections) = self.log.add() {
            let client = Peer::from_socket(&stream).map_or_else(|| "?".to_owned(), |peer| peer.to_string());
            warn!(%client, connections, "a user without permission is refused at the admin socket; see --allow-uid");
        }
        let Ok(permit) = self.refusals.clone().try_acquire_owned() else { return };
        let reason = match uid {
            Some(uid) => format!(
                "uid {uid} may not use the admin socket: root and the user of probeshim are permitted; the flag \
                 --allow-uid {uid} of probeshim permits this user too"
            ),
            None => "the kernel does not report the user of this connection".to_owned(),
        };
        tokio::spawn(async move {
            let service = service_fn(move |_: Request<Incoming>| {
                let response = refusal(reason.clone());
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(REFUSAL_TIMEOUT).keep_alive(false);
            let _ = timeout(REFUSAL_TIMEOUT, http.serve_connection(TokioIo::new(stream), service)).await;
            drop(permit);
        });
    }
}

impl Listener for UserListener {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if stream.peer_cred().is_ok_and(|credentials| self.users.permit(credentials.uid())) {
                return (stream, address);
            }
            self.refuse(stream);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn refusal(error: String) -> Response {
    (StatusCode::FORBIDDEN, [(API_HEADER, API_VERSION)], Json(ErrorBody { error })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_own_user_and_named_users_may_connect() {
        let users = AdminUsers { own: 7, allowed: vec![1000, 1001] };
        for (uid, expected) in [(0, true), (7, true), (1000, true), (1001, true), (8, false), (65_534, false)]
        {
            assert_eq!(users.permit(uid), expected, "{uid}");
        }
    }
}
