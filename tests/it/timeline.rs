//! The results of probes over time, recorded by `play` on procrun and read from it and from its
//! directory.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::time::{Duration, SystemTime};

use probeshim::admin::Client;
use probeshim::admin::api::TimelineQuery;
use probeshim::history::json::time;
use probeshim::history::recorder::read_period;
use probeshim::history::timeline::{GapCause, Period, TimelineReader};
use probeshim::socket::SocketPath;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use crate::playing::{POLITE, begin, start};
use crate::procrun::{Runtime, until};
use crate::program::Place;

/// Serves HTTP on loopback, and returns the port.
async fn serve_http() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            });
        }
    });
    port
}

/// Returns the period from a time to the present from a running probeshim; `None` while it does not
/// answer.
async fn query(place: &Place, from: SystemTime) -> Option<Period> {
    let client = Client::new(SocketPath::new(&place.at("admin.sock")).unwrap());
    let to = SystemTime::now();
    let lines = client.timeline(&TimelineQuery { since: time(from), until: time(to) }).await.ok()?;
    let mut reader = TimelineReader::new(from, to);
    lines.split(|byte| *byte == b'\n').for_each(|line| reader.add_line(line));
    Some(reader.finish())
}

/// Returns the number of successes of the series with a handler.
fn successes(period: &Period, handler: &str) -> u32 {
    let probes = period.probes.iter().filter(|probe| probe.series.handler == handler);
    probes.map(|probe| probe.total().successes).sum()
}

/// Waits until both probes have succeeded more often than this.
async fn until_probed(place: &Place, from: SystemTime, handler: &str, more_than: u32) -> Period {
    until(async || {
        let period = query(place, from).await?;
        let counts = [handler, "true"].map(|handler| successes(&period, handler));
        counts.iter().all(|count| *count > more_than).then_some(period)
    })
    .await
}

#[tokio::test]
async fn results_of_play_before_and_after_a_sigkill_are_a_period_with_a_gap() {
    let place = Place::new();
    let _runtime = Runtime::start_at(&place.at("runtime.sock"));
    let port = serve_http().await;
    let manifest = place.at("pods.yaml");
    let probe = "periodSeconds: 1, failureThreshold: 5";
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: test}}, spec: {{terminationGracePeriodSeconds: 2, \
         containers: [{{name: main, image: i, command: [sh, -c, \"{POLITE}\"], \
         livenessProbe: {{exec: {{command: ['true']}}, {probe}}}, \
         readinessProbe: {{httpGet: {{host: 127.0.0.1, port: {port}, path: /ready}}, {probe}}}}}]}}}}"
    );
    fs::write(&manifest, pod).unwrap();
    let handler = format!("httpGet http://127.0.0.1:{port}/ready");
    let from = SystemTime::now();
    let mut first = start(&place, manifest.to_str().unwrap()).await;
    let period = until_probed(&place, from, &handler, 0).await;
    let [exec, http] = &period.probes[..] else { panic!("{period:?}") };
    assert_eq!((exec.series.probe.as_str(), http.series.probe.as_str()), ("liveness", "readiness"));
    for probe in [exec, http] {
        let series = &probe.series;
        assert_eq!((series.prober.name(), series.pod_name().as_str()), ("probeshim", "test/web"));
        let second = Some(Duration::from_secs(1));
        assert_eq!((series.period, series.timeout, series.failure_threshold), (second, second, Some(5)));
    }
    assert!(period.node.as_ref().is_some_and(|node| node.settings["enforce"] == "restart"), "{period:?}");
    let before = [&handler, "true"].map(|handler| successes(&period, handler));
    first.signal(Signal::KILL);
    first.ended().await;

    let killed = SystemTime::now();
    let mut second = begin(&place, &[manifest.to_str().unwrap()]);
    let period = until_probed(&place, from, &handler, before[0].max(before[1])).await;
    let is_restart = |gap: &&probeshim::history::timeline::Gap| gap.cause == GapCause::NotRunning;
    let gap = period.gaps.iter().find(is_restart).unwrap();
    assert!(gap.from < killed && gap.to > killed, "{gap:?}");
    assert!(period.events.iter().any(|event| event.reason == "Started"), "{:?}", period.events);
    second.signal(Signal::TERM);
    second.ended().await;

    let read = read_period(&place.at("state/calls"), from, SystemTime::now()).unwrap();
    assert!(successes(&read, &handler) >= successes(&period, &handler));
    let restarts: Vec<_> = read.gaps.iter().filter(is_restart).collect();
    assert_eq!((restarts.len(), restarts[0]), (2, gap), "the second is after the end");
}

#[tokio::test]
async fn an_invalid_time_of_a_period_is_refused() {
    let place = Place::new();
    let (_shim, _runtime) = place.start_with_runtime(&[]).await;
    let client = Client::new(SocketPath::new(&place.at("admin.sock")).unwrap());
    let now = time(SystemTime::now());
    let query = TimelineQuery { since: "yesterday".to_owned(), until: now };
    let error = client.timeline(&query).await.unwrap_err().to_string();
    assert!(error.contains("since \"yesterday\" must be a time in RFC 3339"), "{error}");
}

#[tokio::test]
async fn a_fifth_request_for_results_at_the_same_time_is_refused_until_one_has_ended() {
    let place = Place::new();
    let records = place.at("state/calls");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&records).unwrap();
    // A client that does not read them keeps its request open.
    let now = SystemTime::now();
    let tick = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    fs::write(
        records.join("probes-v1-00000001.jsonl"),
        format!("{{\"tick\":[{tick},7,[]]}}\n").repeat(200_000),
    )
    .unwrap();
    let (_shim, _runtime) = place.start_with_runtime(&[]).await;
    let client = Client::new(SocketPath::new(&place.at("admin.sock")).unwrap());
    let query = TimelineQuery { since: time(now - Duration::from_secs(60)), until: time(now) };
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = UnixStream::connect(place.at("admin.sock")).await.unwrap();
        let path = format!("/v1/timeline?since={}&until={}", query.since, query.until);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        streams.push(stream);
    }
    let error = client.timeline(&query).await.unwrap_err().to_string();
    assert!(error.contains("4 requests for results over time are being answered"), "{error}");
    streams.pop();
    until(async || client.timeline(&query).await.ok()).await;
}
