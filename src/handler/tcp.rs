//! The tcpSocket handler: opens a connection and closes it (`pkg/probe/tcp/tcp.go`).

use std::time::Duration;

use tokio::time::timeout;

use super::ProbeOutcome;
use super::address::join_host_port;
use super::dial::dial;

/// Makes one attempt within `limit`.
pub(super) async fn attempt(host: &str, port: u16, limit: Duration) -> ProbeOutcome {
    match timeout(limit, dial(host, port)).await {
        Ok(Ok(_)) => ProbeOutcome::Success(String::new()),
        Ok(Err(error)) => ProbeOutcome::Failure(error.to_string()),
        Err(_) => ProbeOutcome::Failure(format!("dial tcp {}: i/o timeout", join_host_port(host, port))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;
    use crate::handler::dial::tests::{LONG, refusing};

    /// Repeats `TestTcpHealthChecker` (`pkg/probe/tcp/tcp_test.go`). A port of -1 cannot occur
    /// here, so a port without a listener is tested instead.
    #[tokio::test]
    async fn upstream_test_tcp_health_checker() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(attempt("127.0.0.1", port, LONG).await, ProbeOutcome::Success(String::new()));
        assert_eq!(attempt("", port, LONG).await, ProbeOutcome::Success(String::new()), "this host");
        let (_socket, port) = refusing();
        let text = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(attempt("127.0.0.1", port, LONG).await, ProbeOutcome::Failure(text));
        let text = "dial tcp: lookup unknown.invalid: no such host".to_owned();
        assert_eq!(attempt("unknown.invalid", port, LONG).await, ProbeOutcome::Failure(text));
    }
}
