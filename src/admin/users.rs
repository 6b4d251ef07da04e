//! Users who may connect to the admin socket, as the kernel reports them (`SO_PEERCRED`). Others
//! get a refusal, outside of the connections that serve the API.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, StatusCode};
use axum::response::IntoResponse as _;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

use super::caller::CallerClass;
use super::refusal::refusal;
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
    /// User of this process. It and root have all rights.
    pub own: u32,
    /// Further users who may read.
    pub readers: Vec<u32>,
    /// Further users who may read, and change what does not make them root.
    pub controllers: Vec<u32>,
}

/// Accepts connections of permitted users, and refuses all others.
pub(super) struct UserListener {
    listener: UnixListener,
    users: AdminUsers,
    refusals: Arc<Semaphore>,
    log: RefusalLog,
}

impl AdminUsers {
    /// Returns the class of a user; `None` if the user may not connect.
    pub(super) fn class(&self, uid: u32) -> Option<CallerClass> {
        if uid == 0 || uid == self.own {
            Some(CallerClass::Owner)
        } else if self.controllers.contains(&uid) {
            Some(CallerClass::Control)
        } else {
            self.readers.contains(&uid).then_some(CallerClass::Read)
        }
    }

    /// Returns whether further users may connect.
    #[must_use]
    pub fn has_others(&self) -> bool {
        !self.readers.is_empty() || !self.controllers.is_empty()
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
                 --allow-uid {uid} of probeshim permits this user to read"
            ),
            None => "the kernel does not report the user of this connection".to_owned(),
        };
        tokio::spawn(async move {
            let service = service_fn(move |_: Request<Incoming>| {
                let refused = refusal(StatusCode::FORBIDDEN, reason.clone());
                let response = ([(API_HEADER, API_VERSION)], refused).into_response();
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
            if stream.peer_cred().is_ok_and(|credentials| self.users.class(credentials.uid()).is_some()) {
                return (stream, address);
            }
            self.refuse(stream);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_own_user_have_all_rights_and_named_users_those_of_their_flag() {
        let users = AdminUsers { own: 7, readers: vec![7, 1000, 1001], controllers: vec![1001, 1002] };
        for (uid, expected) in [
            (0, Some(CallerClass::Owner)),
            (7, Some(CallerClass::Owner)),
            (1000, Some(CallerClass::Read)),
            (1001, Some(CallerClass::Control)),
            (1002, Some(CallerClass::Control)),
            (8, None),
            (65_534, None),
        ] {
            assert_eq!(users.class(uid), expected, "{uid}");
        }
    }
}
