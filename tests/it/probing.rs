//! Probes that probeshim runs in addition to the relay: their display, events and sources, and
//! their isolation from the rest.

pub(crate) mod lateness;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use probeshim::cri::v1::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::admin::{kept, public_address, until_shown};
use crate::procrun::{Runtime, shell};
use crate::program::{Answer, Place};

/// Waits until events of a pod with this reason and message have been counted `count` times.
pub(crate) async fn told(place: &Place, pod: &str, reason: &str, message: &str, count: u64) {
    let counted = |events: &Value| -> u64 {
        let events = events.as_array().unwrap().iter();
        let is_it = |event: &&Value| {
            (event["pod"].as_str().unwrap_or_default(), event["reason"].as_str().unwrap()) == (pod, reason)
                && event["message"].as_str().unwrap().contains(message)
        };
        events.filter(is_it).map(|event| event["count"].as_u64().unwrap()).sum()
    };
    until_shown(place, &["events"], |events| (counted(events) >= count).then_some(())).await;
}

/// Returns the probes of a pod's container once `so` holds for them.
async fn probes(place: &Place, pod: &str, so: impl Fn(&Value) -> bool) -> Value {
    until_shown(place, &["status"], |status| {
        let pod = status["pods"].as_array().unwrap().iter().find(|known| known["name"] == pod)?;
        let probes = pod["containers"][0]["probes"].clone();
        so(&probes).then_some(probes)
    })
    .await
}

/// Runs a pod with a container `main` that sleeps, and returns the id of the container.
pub(crate) async fn run(runtime: &mut Runtime, name: &str) -> String {
    let pod = runtime.run_pod(name).await;
    let id = runtime.create((name, &pod), shell("main", "sleep 1000")).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    id
}

fn manifest(name: &str, container: &Value) -> String {
    let mut main = json!({"name": "main", "image": "i"});
    main.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "it"}, "spec": {"containers": [main]},
    })
    .to_string()
}

fn exec(command: &[&str]) -> Value {
    json!({"livenessProbe": {"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 2}})
}

pub(crate) const FAILING: &str = "probes: [{match: {pod: '*'}, livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1}}]";

#[tokio::test]
async fn dry_run_makes_no_call_that_changes_anything() {
    // Two probeshims in a chain: the one in front of the runtime sees every call of the other.
    let (wire, place) = (Place::new(), Place::new());
    let mut runtime = Runtime::start_at(&wire.at("runtime.sock"));
    run(&mut runtime, "web").await;
    let watching = wire.start(&[]).await;
    symlink(&watching.socket, place.at("runtime.sock")).unwrap();
    place.configure(FAILING);
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    told(&place, "web", "WouldKill", "Container main failed liveness probe, will be restarted", 3).await;
    let seen: BTreeSet<String> = kept(&wire, 8)
        .await
        .iter()
        .map(|call| call["method"].as_str().unwrap().rsplit('/').next().unwrap().to_owned())
        .collect();
    let harmless = [
        "Version",
        "ListPodSandbox",
        "ListContainers",
        "PodSandboxStatus",
        "ContainerStatus",
        "GetContainerEvents",
        "ExecSync",
    ];
    assert!(seen.contains("ExecSync"), "{seen:?}");
    assert!(seen.iter().all(|method| harmless.contains(&method.as_str())), "{seen:?}");
    runtime.end().await;
}

#[tokio::test]
async fn probe_attempts_are_shown_counted_and_explained() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "web").await;
    place.configure(
        "http: 127.0.0.1:0\nprobes: [{match: {}, readinessProbe: {exec: {command: [sh, -c, echo out; echo err >&2]}, periodSeconds: 1}}]",
    );
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
    let mut command = place.watching_command_of(program, "shim.sock");
    let shim = place.spawn(command.args(["--enforce", "dry-run"])).await;
    let probes = probes(&place, "web", |probes| probes[0]["verdict"] == "success").await;
    assert_eq!(
        (&probes[0]["type"], &probes[0]["handler"], &probes[0]["source"], &probes[0]["onHold"]),
        (&json!("readiness"), &json!("exec"), &json!("config"), &json!(false))
    );
    let status = place.ask(&["status", "-o", "json"]).await.json();
    let pod = &status["pods"][0];
    assert_eq!(
        (&status["mode"], &pod["phase"], &pod["ready"]),
        (&json!("dry-run"), &json!("Running"), &json!(true))
    );
    assert_eq!(pod["conditions"][0], json!({"type": "ContainersReady", "status": "True"}));
    let table = place.ask(&["probes", "web"]).await.stdout;
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["web", "main", "readiness", "ok", "since"], "{table}");
    assert_eq!(row[6..], ["config", "0", "0", "exec"], "{table}");

    // The probe's calls are listed, with their analysis.
    let calls = until_shown(&place, &["calls", "--probe", "readiness"], |calls| {
        calls.as_array().filter(|calls| !calls.is_empty()).cloned()
    });
    let call = calls.await[0].clone();
    assert_eq!(
        (&call["peer"]["program"], &call["exec"]["probe"]["source"], &call["exec"]["exitCode"]),
        (&json!("probeshim"), &json!("config"), &json!(0))
    );
    assert_eq!((&call["exec"]["output"], &call["message"]), (&json!("out\nerr\n"), &Value::Null));
    let explained = place.ask(&["explain", &call["id"].to_string()]).await.stdout;
    let sentence = "The command belongs to the readiness probe, which runs every 1.00s (source: config)";
    assert!(explained.contains(sentence), "{explained}");

    let address = public_address(&shim).await;
    let metrics = crate::admin::get(&address, "/metrics/probes").await;
    let labels = "probe_type=\"Readiness\",container=\"main\",pod=\"web\",namespace=\"it\"";
    for series in [
        format!("prober_probe_total{{result=\"successful\",{labels},pod_uid=\"uid\"}}"),
        format!("prober_probe_duration_seconds_bucket{{le=\"0.005\",{labels}}}"),
        format!("probeshim_prober_timeout_margin_seconds_bucket{{le=\"1.0\",{labels}}}"),
    ] {
        assert!(metrics.contains(&series), "{series} is not in\n{metrics}");
    }
    runtime.end().await;
}

#[tokio::test]
async fn a_broken_manifest_or_probe_does_not_affect_others() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let pods = place.at("pods");
    fs::create_dir(&pods).unwrap();
    let write = |name: &str, text: &str| fs::write(pods.join(format!("{name}.yaml")), text).unwrap();
    write("good", &manifest("good", &exec(&["true"])));
    write("broken", "kind: Pod\nmetadata: {name: [");
    write("wrong", &manifest("wrong", &json!({"livenessProbe": {"exec": {"command": []}}})));
    write(
        "port",
        &manifest("port", &json!({"livenessProbe": {"tcpSocket": {"port": "nobody"}, "periodSeconds": 1}})),
    );
    write("nothing", &manifest("nothing", &exec(&["/no/such/program"])));
    write("gone", &manifest("gone", &exec(&["true"])));
    let mut gone = String::new();
    for name in ["good", "wrong", "port", "nothing", "gone"] {
        gone = run(&mut runtime, name).await;
    }
    let _shim = place.start_watching(&["--enforce", "dry-run", "--manifests", pods.to_str().unwrap()]).await;
    told(&place, "", "InvalidSpec", "broken.yaml:2: ", 1).await;
    told(
        &place,
        "",
        "InvalidSpec",
        "wrong.yaml:1: spec.containers[0].livenessProbe.exec.command: Required value",
        1,
    )
    .await;
    let port = "Liveness probe errored and resulted in unknown state: strconv.Atoi: parsing \"nobody\": invalid syntax";
    told(&place, "port", "Unhealthy", port, 2).await;
    told(
        &place,
        "nothing",
        "Unhealthy",
        "Liveness probe errored and resulted in unknown state: rpc error: code = ",
        2,
    )
    .await;
    let counts = |probes: &Value, least: u64| probes[0]["run"].as_u64() >= Some(least);
    probes(&place, "good", |probes| counts(probes, 2)).await;
    let probed = probes(&place, "gone", |probes| counts(probes, 1)).await;
    assert_eq!(probed[0]["result"], "success");

    // A removed container is no longer probed.
    let request = RemoveContainerRequest { container_id: gone };
    runtime.client.remove_container(request).await.unwrap();
    until_shown(&place, &["status"], |status| {
        let pods = status["pods"].as_array().unwrap();
        let pod = pods.iter().find(|pod| pod["name"] == "gone")?;
        pod["containers"].as_array()?.is_empty().then_some(())
    })
    .await;

    // A corrected manifest takes effect, and a manifest that becomes invalid keeps its last valid
    // content.
    write("wrong", &manifest("wrong", &exec(&["true"])));
    probes(&place, "wrong", |probes| counts(probes, 1)).await;
    told(&place, "", "SpecResolved", "wrong.yaml:1: spec.containers[0].livenessProbe", 1).await;
    write("good", "kind: Pod\nmetadata: {name: [");
    told(&place, "", "InvalidSpec", "good.yaml:2: ", 1).await;
    let before = probes(&place, "good", |_| true).await[0]["run"].as_u64().unwrap();
    probes(&place, "good", |probes| counts(probes, before + 1)).await;
    runtime.end().await;
}

#[tokio::test]
async fn probes_resume_after_a_restart_of_the_runtime() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "web").await;
    place.configure(FAILING);
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    told(&place, "web", "WouldKill", "", 1).await;
    runtime.end().await;
    told(&place, "", "RuntimeUnavailable", "", 1).await;
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "other").await;
    told(&place, "other", "WouldKill", "", 1).await;
    runtime.end().await;
}

/// Starts a server that answers as a kubelet's read-only port, and returns its URL.
async fn kubelet(answers: Vec<(u16, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let last = answers.last().cloned().unwrap();
        let mut answers = answers.into_iter();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            assert!(request[..read].starts_with(b"GET /pods HTTP/1.1\r\n"));
            let (status, body) = answers.next().unwrap_or_else(|| last.clone());
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn probes_are_read_from_the_pod_list_of_a_kubelet() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "web").await;
    let item = |probe: Value| {
        json!({
            "metadata": {"name": "web", "namespace": "it", "uid": "uid"},
            "spec": {"containers": [{"name": "main", "livenessProbe": probe, "newerThanWe": 1}]},
        })
    };
    let list = |items: Vec<Value>| json!({"kind": "PodList", "items": items}).to_string();
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "newerThanWe": 1});
    let broken =
        json!({"metadata": {"name": "bad"}, "spec": {"containers": [{"name": "a", "livenessProbe": {}}]}});
    let url = kubelet(vec![
        (401, "Unauthorized".into()),
        (200, "nonsense".into()),
        (200, list(vec![broken, item(probe)])),
    ]);
    place.configure(&format!("kubelet: {{url: '{}', interval: 1s}}", url.await));
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    told(&place, "", "SpecSourceUnavailable", "status 401 Unauthorized; the credentials must have", 1).await;
    told(&place, "", "SpecSourceUnavailable", "the response is not a list of pods", 1).await;
    let probes = probes(&place, "web", |probes| probes[0]["verdict"] == "success").await;
    assert_eq!(probes[0]["source"], "kubelet");
    told(&place, "", "InvalidSpec", "Pod default/bad: spec.containers[0].livenessProbe: Required value", 1)
        .await;
    runtime.end().await;
}

/// Runs `probeshim` with these arguments.
async fn probeshim(arguments: &[&str]) -> Answer {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.args(arguments);
    Answer::to(command).await
}

#[tokio::test]
async fn check_prints_the_probes_or_the_errors_of_manifests() {
    let place = Place::new();
    let (good, bad) = (place.at("good.yaml"), place.at("bad.yaml"));
    let probes = json!({
        "startupProbe": {"grpc": {"port": 5000, "service": "a"}},
        "livenessProbe": {"httpGet": {"port": "http", "path": "healthz"}, "initialDelaySeconds": 5},
    });
    fs::write(&good, manifest("web", &probes)).unwrap();
    fs::write(&bad, manifest("web", &json!({"livenessProbe": {"exec": {}, "periodSeconds": "soon"}})))
        .unwrap();
    place.configure(FAILING);
    let config = place.at("config.yaml").display().to_string();
    let [good, bad] = [&good, &bad].map(|path| path.to_str().unwrap());
    let answer = probeshim(&["check", good, "--config", &config]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{answer:?}");
    assert!(lines[1].starts_with("rule: pod *") && lines[1].ends_with("exec false"), "{}", lines[1]);
    assert!(lines[2].starts_with("Pod it/web") && lines[2].ends_with("grpc :5000 a"), "{}", lines[2]);
    assert!(lines[3].ends_with("GET http://:http/healthz"), "{}", lines[3]);
    let warning = "livenessProbe.httpGet.port: \"http\": no port of the container has this name";
    assert!(answer.stderr.contains(warning), "{answer:?}");
    let others = place.at("others.yaml");
    fs::write(&others, "kind: Service\n---\nkind: List\nitems: [{kind: Deploymnt}, {kind: Service}]\n")
        .unwrap();
    let answer = probeshim(&["check", others.to_str().unwrap()]).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(0), "no errors, and no probes\n"), "{answer:?}");
    for expected in [
        "others.yaml:1: Service and 1 more are ignored: there is no service network",
        "others.yaml:3: Deploymnt is ignored: the kind defines no pods, did you mean \"Deployment\"?\n",
        "others.yaml: no pod, and no workload with a pod template\n",
    ] {
        assert!(answer.stderr.contains(expected), "{expected} is not in {}", answer.stderr);
    }
    let answer = probeshim(&["check", good, bad, "/nowhere"]).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""));
    for expected in [
        "bad.yaml:1: spec.containers[0].livenessProbe.exec.command: Required value",
        "bad.yaml:1: spec.containers[0].livenessProbe.periodSeconds: Invalid value: \"soon\": must be an integer",
        "/nowhere: No such file or directory",
    ] {
        assert!(answer.stderr.contains(expected), "{expected} is not in {}", answer.stderr);
    }
    let nothing = probeshim(&["check"]).await;
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("nothing to check"), "{nothing:?}");
    let schema = probeshim(&["schema"]).await.json();
    assert_eq!(schema["additionalProperties"], false);
}

#[tokio::test]
async fn invalid_uses_of_the_flag_enforce_are_reported() {
    let place = Place::new();
    for (flags, expected) in [
        (
            &["--enforce", "shoot"][..],
            "'shoot' for '--enforce <MODE>'\n  [possible values: off, dry-run, kill, restart]",
        ),
        (&["--enforce", "dry-run"], "--watch-runtime \"off\" cannot be off with --enforce dry-run"),
        (&["--manifests", "/nowhere.yaml"], "--manifests /nowhere.yaml: No such file"),
    ] {
        let (code, told) = place.refused(place.command("shim.sock", flags)).await;
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(expected), "{told}");
    }
}

#[tokio::test]
async fn a_hanging_exec_probe_does_not_delay_other_probes() {
    let place = Place::new();
    let mut runtime = Runtime::start_with(|settings| settings.exec_delay = Duration::from_secs(3600));
    symlink(runtime.path("procrun.sock"), place.at("runtime.sock")).unwrap();
    run(&mut runtime, "hangs").await;
    run(&mut runtime, "goes-on").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let rules = format!(
        "probes:\n- match: {{pod: hangs}}\n  livenessProbe: {{exec: {{command: ['true']}}, periodSeconds: 1}}\n\
         - match: {{pod: goes-on}}\n  livenessProbe: {{tcpSocket: {{port: {port}, host: 127.0.0.1}}, periodSeconds: 1}}\n"
    );
    place.configure(&rules);
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    probes(&place, "goes-on", |probes| probes[0]["run"].as_u64() >= Some(3)).await;
    let hanging = probes(&place, "hangs", |_| true).await;
    assert_eq!((&hanging[0]["run"], &hanging[0]["verdict"]), (&json!(0), &json!("success")));
}
