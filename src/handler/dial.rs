//! Connections of network probes, with the socket options of the kubelet
//! (`pkg/probe/dialer_others.go`). Connections are made from the network namespace of probeshim,
//! which should be that of the host.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::gofmt::system_error;

/// Time for which the kernel lingers over a closed connection, as in the kubelet.
const SO_LINGER_SECS: Duration = Duration::from_secs(1);

/// Number of bytes that a connection returns before other tasks run. A peer that sends without
/// pause always has more to read.
const MAX_BYTES_PER_TURN: usize = 16 << 10;

/// Limit of concurrent lookups of names. Each lookup that hangs occupies a thread, and other
/// threads are needed to close connections.
static LOOKUPS: Semaphore = Semaphore::const_new(64);

/// Reason for which there is no connection. Its text is that of Go.
#[derive(Debug)]
pub(super) enum DialError {
    /// The name has no address.
    Lookup { host: String },
    /// The address, with its port, refuses or does not answer the connection.
    Connect { address: String, source: io::Error },
}

/// A connection that is closed on a blocking thread, because its close may linger.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Option<TcpStream>,
    /// Number of bytes read since other tasks ran.
    read_in_turn: usize,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// Connects to a name or an address, or to this host if `host` is empty.
pub(super) async fn dial(host: &str, port: u16) -> Result<Connection, DialError> {
    let mut last = None;
    for address in addresses(host, port).await? {
        match connect(address).await {
            Ok(connection) => return Ok(connection),
            // Go reports the error of the first address.
            Err(source) => {
                let address = match host.split_once('%') {
                    // Go shows the zone as it was written.
                    Some((_, zone)) => format!("[{}%{zone}]:{port}", address.ip()),
                    None => address.to_string(),
                };
                last.get_or_insert(DialError::Connect { address, source });
            }
        }
    }
    Err(last.unwrap_or_else(|| DialError::Lookup { host: host.to_owned() }))
}

async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    if host.is_empty() {
        return Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]);
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if let Some((address, zone)) = host.split_once('%')
        && let Ok(address) = address.parse::<Ipv6Addr>()
    {
        return Ok(vec![SocketAddrV6::new(address, port, 0, scope_of(zone)).into()]);
    }
    // Go asks for the name `127.1`, which no server knows. The C library takes it for an address.
    if is_numeric(host) {
        return Err(DialError::Lookup { host: host.to_owned() });
    }
    let _permit = LOOKUPS.acquire().await;
    let found = lookup_host((host, port)).await;
    found.map(Iterator::collect).map_err(|_| DialError::Lookup { host: host.to_owned() })
}

/// Returns the number of a zone: of the network interface with this name, or the number with which
/// it begins. 0 if there is none.
fn scope_of(zone: &str) -> u32 {
    let is_name = !zone.contains('/') && zone != "." && zone != "..";
    let index = is_name.then(|| std::fs::read_to_string(format!("/sys/class/net/{zone}/ifindex")).ok());
    let index = index.flatten().and_then(|index| index.trim().parse().ok());
    let digits = zone.bytes().take_while(u8::is_ascii_digit).count();
    index.or_else(|| zone[..digits].parse().ok()).unwrap_or(0)
}

/// Returns whether a name is an address in a form that only the C library knows (`inet_aton`).
fn is_numeric(host: &str) -> bool {
    let is_number = |part: &str| match part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()),
    };
    host.split('.').count() <= 4 && host.split('.').all(is_number)
}

async fn connect(address: SocketAddr) -> io::Result<Connection> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    SockRef::from(&socket).set_linger(Some(SO_LINGER_SECS))?;
    socket.set_nodelay(true)?;
    let stream = socket.connect(address).await?;
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    Ok(Connection { stream: Some(stream), read_in_turn: 0, local, peer })
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take().and_then(|stream| stream.into_std().ok()) else { return };
        // Because of the linger option, the close waits until the data sent has arrived. Without a
        // runtime, which means at the end of the program, it blocks this thread.
        if tokio::runtime::Handle::try_current().is_ok() {
            spawn_blocking(move || drop(stream));
        }
    }
}

impl Connection {
    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        let stream = self.get_mut().stream.as_mut();
        stream.map(Pin::new).ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = MAX_BYTES_PER_TURN.saturating_sub(self.read_in_turn);
        if left == 0 {
            self.read_in_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let count = buf.remaining().min(left);
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(count));
        let polled = self.as_mut().stream()?.poll_read(cx, &mut part);
        let read = part.filled().len();
        buf.advance(read);
        self.read_in_turn = if polled.is_pending() { 0 } else { self.read_in_turn + read };
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup { host } => write!(f, "dial tcp: lookup {host}: no such host"),
            Self::Connect { address, source } => {
                write!(f, "dial tcp {address}: connect: {}", system_error(source))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::yield_now;

    use super::*;

    /// Time that is longer than any operation in these tests.
    pub(in crate::handler) const LONG: Duration = Duration::from_secs(60);

    /// Returns a port of this host that refuses connections as long as the socket exists.
    pub(in crate::handler) fn refusing() -> (TcpSocket, u16) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let port = socket.local_addr().unwrap().port();
        (socket, port)
    }

    #[tokio::test]
    async fn a_probe_connection_lingers_like_the_kubelets_and_is_closed_when_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connection = dial("127.0.0.1", listener.local_addr().unwrap().port()).await.unwrap();
        let (mut accepted, peer) = listener.accept().await.unwrap();
        assert_eq!(connection.local, peer);
        let socket = SockRef::from(connection.stream.as_ref().unwrap());
        assert_eq!(socket.linger().unwrap(), Some(Duration::from_secs(1)));
        drop(connection);
        assert_eq!(accepted.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn other_tasks_run_while_a_probe_connection_has_much_to_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connection = dial("127.0.0.1", listener.local_addr().unwrap().port()).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        accepted.write_all(&vec![b'x'; 3 * MAX_BYTES_PER_TURN]).await.unwrap();
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        let (mut buffer, mut left) = (vec![0; 8 * MAX_BYTES_PER_TURN], 3 * MAX_BYTES_PER_TURN);
        let mut since = turns.load(Ordering::Relaxed);
        let mut in_turn = 0;
        while left > 0 {
            let read = connection.read(&mut buffer).await.unwrap();
            let now = turns.load(Ordering::Relaxed);
            in_turn = if now == since { in_turn + read } else { read };
            assert!(in_turn <= MAX_BYTES_PER_TURN, "{in_turn} bytes in one turn");
            (since, left) = (now, left - read);
        }
        other.abort();
    }
}
