//! Spans at a real OpenTelemetry collector, and planted secrets that none of probeshim's outputs
//! contains.

use fixtures::collector::Collector;
use fixtures::containerd::{Containerd, Version};
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::Execs;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::ExecSyncRequest;
use probeshim::socket::SocketPath;
use serde_json::json;
use tonic::Request;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Executes a command with ExecSync as a part of the trace.
fn exec_in_trace(execs: &Execs, command: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = runtime_client(&SocketPath::new(execs.shim.socket()).unwrap());
        let cmd = command.iter().map(ToString::to_string).collect();
        let mut request =
            Request::new(ExecSyncRequest { container_id: execs.pod.container.clone(), cmd, timeout: 5 });
        let parent = format!("00-{TRACE}-{PARENT}-01");
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        client.exec_sync(request).await.unwrap();
    });
}

/// Returns the spans of the traced call and of its phases.
fn spans_of_trace(collector: &Collector) -> Vec<String> {
    wait_for("the spans of a call and its phases", || {
        let spans = collector.spans();
        let of_trace: Vec<String> = spans.into_iter().filter(|span| span.contains(TRACE)).collect();
        (of_trace.len() >= 6).then_some(of_trace)
    })
}

#[test]
fn a_call_is_a_span_with_its_phases_in_the_trace_of_its_caller() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let collector = need!(Collector::start(containerd.folder()));
    let execs =
        need!(Execs::start_with(&containerd, &["--otlp-endpoint", &format!("http://{}", collector.http)]));
    exec_in_trace(&execs, &["true"]);
    let spans = spans_of_trace(&collector);
    let call = spans.iter().find(|span| span.contains("runtime.v1.RuntimeService/ExecSync")).unwrap();
    for told in [
        PARENT,
        "k8s.pod.name: Str(execs)",
        "k8s.container.name: Str(main)",
        "probeshim.phases: Str(complete)",
    ] {
        assert!(call.contains(told), "{told} is not in {call}");
    }
    for phase in ["queue", "prepare", "start", "run", "drain"] {
        let is_phase = |span: &&String| {
            span.lines()
                .any(|line| line.trim_start().starts_with("Name") && line.ends_with(&format!(": {phase}")))
        };
        assert!(spans.iter().any(|span| is_phase(&span)), "no {phase} in {spans:#?}");
    }
    // A call outside of any trace begins its own trace. Lists have no spans.
    execs.exec(&["true"], 0);
    wait_for("the span of an untraced call", || {
        let all = collector.spans();
        all.iter().any(|span| span.contains("/ExecSync") && !span.contains(TRACE)).then_some(())
    });
    execs.crictl.ok(&["ps"]);
    assert!(!collector.log().contains("ListContainers"));
    execs.end();
}

#[test]
fn no_output_of_probeshim_contains_a_planted_secret() {
    const PLANTED: [&str; 4] = ["planted-env", "planted-credential", "planted-output", "planted-argument"];
    let containerd = need!(Containerd::start(Version::V2_2));
    let collector = need!(Collector::start(containerd.folder()));
    let (endpoint, folder) = (format!("http://{}", collector.grpc), containerd.folder());
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let shim = Probeshim::start_in(folder, &containerd.socket(), &["--redact-commands"], &env);
    let execs = need!(Execs::with(&containerd, shim));
    let envs = json!({"metadata": {"name": "secret"}, "envs": [{"key": "TOKEN", "value": PLANTED[0]}]});
    let pod = Pod::with(&execs.crictl, folder, "secrets", &envs);
    execs.crictl.run(&["pull", "--creds", &format!("user:{}", PLANTED[1]), "127.0.0.1:1/nobody/is:here"]);
    execs.crictl.ok(&["inspect", &pod.container]);
    let print = format!("echo {} {}; echo $TOKEN >&2; exit 0", PLANTED[2], PLANTED[3]);
    let call = execs.exec(&["sh", "-c", &print], 5);
    assert_eq!((&call["exec"]["command"], &call["exec"]["commandTruncated"]), (&json!(["sh"]), &json!(true)));
    // The first command leaves a process behind, and the second times out.
    execs.exec(&["sh", "-c", &format!("sleep 20 >/dev/null 2>&1 & : {}", PLANTED[3])], 5);
    execs.exec(&["sh", "-c", &format!("sleep 7; : {}", PLANTED[3])], 1);
    wait_for("the leaked process is reported", || {
        execs.shim.ask(&["events"]).contains("ExecProcessLeaked").then_some(())
    });
    wait_for("the spans", || (collector.spans().len() >= 10).then_some(()));

    let asked = ["calls", "events", "status"]
        .map(|what| execs.shim.ask(&[what]) + &execs.shim.ask(&[what, "-o", "json"]));
    let explained: String =
        execs.all().iter().map(|call| execs.shim.ask(&["explain", &call["id"].to_string()])).collect();
    let told = [
        &asked[..],
        &[explained, execs.shim.log(), execs.shim.metrics(), execs.shim.recorded(), collector.log()],
    ]
    .concat();
    for (place, text) in told.iter().enumerate() {
        assert!(text.len() > 100, "output {place} is too short to be checked: {text}");
        for planted in PLANTED {
            assert!(!text.contains(planted), "{planted} is in output {place}: {text}");
        }
    }
    pod.remove(&execs.crictl);
    execs.end();
}
