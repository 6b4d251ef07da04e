//! Addresses of the API that cannot be opened, although systemd has passed the socket for calls.

use std::os::unix::net::UnixListener;

use fixtures::wait::soon;
use probeshim::admin::Client as AdminClient;
use probeshim::admin::api::Status;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::VersionRequest;
use probeshim::socket::SocketPath;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::Service;
use crate::procrun::{Runtime, until};
use crate::program::Place;

const WARNING: &str = "an address of the API cannot be opened yet: it is tried again, and calls are served";

/// Asserts that a call succeeds.
async fn answers(service: &Service) {
    let mut client = runtime_client(&service.socket());
    soon(client.version(VersionRequest::default())).await.unwrap();
}

/// Returns why addresses are not served.
async fn failures(service: &Service) -> Vec<String> {
    let client = AdminClient::new(SocketPath::new(&service.place.at("admin.sock")).unwrap());
    until(async || {
        let status = client.status().await.ok()?;
        Some(serde_json::from_slice::<Status>(&status).unwrap().api_failures)
    })
    .await
}

/// Returns the first line of the response for `/healthz`.
async fn health(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn calls_are_served_without_addresses_of_the_api_which_are_opened_once_that_is_possible() {
    let runtime = Runtime::start();
    let place = Place::new();
    let program = place.copied_program();
    let admin = UnixListener::bind(place.at("admin.sock")).unwrap();
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let [http, metrics] = [&taken[0], &taken[1]].map(|listener| listener.local_addr().unwrap().to_string());
    let more = ["--http", &http, "--metrics-listen", &metrics];
    let service = Service::start_program(place, program, runtime.socket.as_path(), &more, "").await;
    assert!(service.notified().await.starts_with("READY=1"));
    answers(&service).await;
    until(async || {
        let warnings = service.running.lines().iter().filter(|line| line["message"] == WARNING).count();
        (warnings == 3).then_some(())
    })
    .await;

    // The admin socket is opened, and has the reasons for the others.
    drop(admin);
    let shown = failures(&service).await;
    for (flag, address) in [("--http", &http), ("--metrics-listen", &metrics)] {
        let reason = format!("{flag}: cannot listen on {address}: Address already in use");
        assert!(shown.iter().any(|failure| failure.starts_with(&reason)), "{shown:?}");
    }
    assert_eq!(shown.len(), 2, "{shown:?}");

    // A successor serves calls without these addresses too.
    let old = service.pid().await;
    let new = service.hand_over(old).await;
    assert_eq!(service.pid().await, new);
    answers(&service).await;
    assert_eq!(failures(&service).await.len(), 2);

    drop(taken);
    until(async || failures(&service).await.is_empty().then_some(())).await;
    for address in [&http, &metrics] {
        assert_eq!(health(address).await, "HTTP/1.1 200 OK");
    }
    drop(service);
    runtime.end().await;
}
