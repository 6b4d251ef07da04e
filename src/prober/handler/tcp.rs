//! tcpSocket: a connection is made, and closed.

use std::time::Duration;

use tokio::time::timeout;

use super::Attempt;
use super::address::joined;
use super::dial::dial;

/// One attempt within `limit`.
pub(super) async fn attempt(host: &str, port: u16, limit: Duration) -> Attempt {
    match timeout(limit, dial(host, port)).await {
        Ok(Ok(_)) => Attempt::Success(String::new()),
        Ok(Err(error)) => Attempt::Failure(error.to_string()),
        Err(_) => Attempt::Failure(format!("dial tcp {}: i/o timeout", joined(host, port))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;
    use crate::prober::handler::dial::tests::{LONG, refusing};

    /// Table 9.4, tcp. A port of -1 does not exist here: one that nobody listens on fails instead.
    #[tokio::test]
    async fn table_9_4_tcp() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(attempt("127.0.0.1", port, LONG).await, Attempt::Success(String::new()));
        assert_eq!(attempt("", port, LONG).await, Attempt::Success(String::new()), "this host");
        let (_socket, port) = refusing();
        let text = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(attempt("127.0.0.1", port, LONG).await, Attempt::Failure(text));
        let text = "dial tcp: lookup nobody.invalid: no such host".to_owned();
        assert_eq!(attempt("nobody.invalid", port, LONG).await, Attempt::Failure(text));
    }
}
