//! Probes that keep the prober busy, and probes that are late because of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fixtures::wait::soon;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::{run, told};
use crate::admin::{get, public_address};
use crate::playing::{POLITE, pod, start};
use crate::procrun::{Runtime, until};
use crate::program::{Place, Running};

/// Returns lines of an answer that ends only when its reader gives up.
fn interim_heads() -> String {
    "HTTP/1.1 100 Continue\r\n\r\n".repeat(500)
}

/// Starts a server that writes `answer` after each request, without end if `is_endless`. Returns
/// its port and the number of requests.
pub(crate) async fn serve(answer: String, is_endless: bool) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, requests) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = requests.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (answer, counted) = (answer.clone(), counted.clone());
            tokio::spawn(async move {
                if !matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {
                    return;
                }
                counted.fetch_add(1, Ordering::Relaxed);
                while stream.write_all(answer.as_bytes()).await.is_ok() && is_endless {}
            });
        }
    });
    (port, requests)
}

#[tokio::test]
async fn endless_response_heads_of_one_pod_do_not_affect_another() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let (healthy, requests) = serve("HTTP/1.1 204 Fine\r\n\r\n".to_owned(), false).await;
    let mut pods = String::new();
    let probe = |port: u16, timeout: u32, threshold: u32| {
        format!(
            ", livenessProbe: {{httpGet: {{host: 127.0.0.1, port: {port}}}, periodSeconds: 1, \
             timeoutSeconds: {timeout}, failureThreshold: {threshold}}}"
        )
    };
    pods += &pod("healthy", POLITE, "", &probe(healthy, 10, 1));
    let floods: Vec<String> = (0..8).map(|count| format!("flood-{count}")).collect();
    for name in &floods {
        pods += &pod(name, POLITE, "", &probe(serve(interim_heads(), true).await.0, 30, 1_000));
    }
    fs::write(place.at("pods.yaml"), pods).unwrap();
    let mut playing = start(&place, place.at("pods.yaml").to_str().unwrap()).await;
    for name in &floods {
        told(&place, name, "Unhealthy", "server response headers exceeded 10485760 bytes; aborted", 1).await;
    }
    until(async || (requests.load(Ordering::Relaxed) > 2).then_some(())).await;
    let events = place.ask(&["events", "-o", "json"]).await.json();
    let of_healthy = events.as_array().unwrap().iter().filter(|event| event["pod"] == "healthy");
    let reasons: Vec<&str> = of_healthy.map(|event| event["reason"].as_str().unwrap()).collect();
    assert!(reasons.contains(&"Started"), "{reasons:?}");
    assert!(!reasons.iter().any(|reason| ["Unhealthy", "Killing"].contains(reason)), "{reasons:?}");
    playing.signal(Signal::TERM);
    assert_eq!(playing.ended().await, Some(143));
    runtime.end().await;
}

/// Starts a server whose requests the test answers one at a time.
async fn answered_by_hand() -> (u16, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) && sender.send(stream).await.is_err() {
                return;
            }
        }
    });
    (port, requests)
}

async fn answer(mut stream: TcpStream, status: u16) {
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
}

/// Returns whether the prober's thread is idle.
fn prober_waits(shim: &Running) -> bool {
    shim.threads().any(|status| status.contains("Name:\tprober\n") && status.contains("State:\tS"))
}

/// probeshim is stopped for more than a tenth of the timeout while an attempt waits for its answer,
/// which is a failure. If the two attempts were not discarded, the container would be killed.
#[tokio::test]
async fn late_probe_attempts_are_discarded_and_kill_nothing() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "patient").await;
    let (patient, mut requests) = answered_by_hand().await;
    place.configure(&format!(
        "http: 127.0.0.1:0\nprobes:\n- {{match: {{pod: patient}}, livenessProbe: {{httpGet: {{host: 127.0.0.1, port: {patient}}}, \
         periodSeconds: 1, timeoutSeconds: 3, failureThreshold: 2}}}}\n"
    ));
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
    let mut command = place.watching_command_of(program, "shim.sock");
    let shim = place.spawn(command.args(["--enforce", "kill"])).await;
    let http = public_address(&shim).await;
    for _ in 0..2 {
        let request = soon(requests.recv()).await.unwrap();
        // A thread that is stopped while it sends a request counts as busy with its own attempt.
        until(async || prober_waits(&shim).then_some(())).await;
        shim.stop().await;
        // Only elapsed time makes the prober late.
        tokio::time::sleep(Duration::from_millis(600)).await;
        answer(request, 500).await;
        shim.signal(Signal::CONT);
    }
    // The second attempt has been processed once there is a third.
    answer(soon(requests.recv()).await.unwrap(), 204).await;
    let events = place.ask(&["events", "-o", "json"]).await.json();
    let events = events.as_array().unwrap();
    let message = "the prober was late by more than a tenth of the timeout";
    let is_discarded = |event: &serde_json::Value| {
        event["reason"] == "ProbeDiscarded" && event["message"].as_str().unwrap().contains(message)
    };
    assert!(events.iter().any(is_discarded), "{events:#?}");
    assert!(events.iter().all(|event| event["reason"] != "Killing"), "{events:#?}");
    let status = place.ask(&["status", "-o", "json"]).await.json();
    assert_eq!(status["kills"]["recent"], 0, "{status}");
    let metrics = get(&http, "/metrics/probes").await;
    let counted = |line: &str| {
        line.starts_with("probeshim_prober_discarded_attempts_total") && line.contains("pod=\"patient\"")
    };
    assert!(metrics.lines().any(counted), "{metrics}");
    runtime.end().await;
}
