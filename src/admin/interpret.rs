//! Interprets arbitrary bytes as the requests of a client of the API, for a fuzz target.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::time::timeout;

use super::caller::{Caller, CallerClass};
use super::listener::serve_connection;
use super::server::{ADMIN, PUBLIC, admin_router, public_router};
use super::slots::Slots;
use super::state::Admin;
use crate::relay::Peer;

/// Number of bytes that a connection holds between its ends.
const PIPE_BYTES: usize = 64 << 10;

/// Last request of the client, after whose response the server closes the connection.
const LAST_REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Client of an API in a fuzz target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FuzzCaller {
    /// A client of the admin socket that may only read.
    Reader,
    /// A client of the admin socket that may change something.
    Controller,
    /// Root, on the admin socket.
    Owner,
    /// A client of the loopback address.
    Public,
}

/// Sends the bytes of a client, and returns those of the server. The client gives up if the server
/// sends nothing for `quiet_time`, as in a response that follows calls.
pub(crate) async fn interpret_requests(
    requests: &[u8],
    caller: FuzzCaller,
    admin: Arc<Admin>,
    page: Router<Arc<Admin>>,
    quiet_time: Duration,
) -> Vec<u8> {
    let (class, uid) = match caller {
        FuzzCaller::Reader | FuzzCaller::Public => (CallerClass::Read, 1000),
        FuzzCaller::Controller => (CallerClass::Control, 1001),
        FuzzCaller::Owner => (CallerClass::Owner, 0),
    };
    let (limits, router) = match caller {
        FuzzCaller::Public => (PUBLIC, public_router(admin, page)),
        _ => (ADMIN, admin_router(admin)),
    };
    let peer = Peer { uid, pid: Some(1), program: Some("client".to_owned()) };
    let caller = Caller { peer: Some(peer), class, has_certificate: false };
    let slot = Arc::new(Slots::new(1).take());
    let (client, server) = duplex(PIPE_BYTES);
    let connection = tokio::spawn(serve_connection(server, caller, slot, limits, router));
    let (mut responses, mut sender) = tokio::io::split(client);
    let bytes = [requests, LAST_REQUEST].concat();
    let sending = tokio::spawn(async move {
        // The server closes a connection on which it receives no HTTP.
        let _ = sender.write_all(&bytes).await;
        let _ = sender.shutdown().await;
    });
    let (mut received, mut part) = (Vec::new(), vec![0; PIPE_BYTES]);
    while let Ok(Ok(count)) = timeout(quiet_time, responses.read(&mut part)).await
        && count > 0
    {
        received.extend_from_slice(&part[..count]);
    }
    sending.abort();
    drop(responses);
    connection.abort();
    if let Err(error) = connection.await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
    received
}
