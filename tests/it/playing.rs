//! `probeshim play` on procrun, started as users start it: its end, its exit code, its output, and
//! many pods at the same time.

mod actions;
mod admission;
mod around;
mod command;
mod invalid_change;
mod logs;
mod stdin;
mod workloads;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use probeshim::cri::v1::ListPodSandboxRequest;
use rustix::process::Signal;
use serde_json::Value;

use crate::admin::{get, until_shown};
use crate::procrun::{Runtime, until};
use crate::program::{Answer, Place, Running};

/// Script that exits on SIGTERM.
pub(crate) const POLITE: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

/// Returns a pod with one container that runs a script, with additional fields of both.
pub(crate) fn pod(name: &str, script: &str, of_pod: &str, of_container: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: test}}, spec: {{terminationGracePeriodSeconds: 2{of_pod}, \
         containers: [{{name: main, image: i, command: [sh, -c, \"{script}\"]{of_container}}}]}}}}\n---\n"
    )
}

/// Returns the command `probeshim play`.
pub(crate) fn play(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("play").args(arguments).arg("--config").arg(place.at("config.yaml"));
    command.arg("--listen").arg(place.at("probeshim.sock")).arg("--admin").arg(place.at("admin.sock"));
    command.arg("--upstream").arg(place.at("runtime.sock")).arg("--state-dir").arg(place.at("state"));
    command.arg("--pod-logs").arg(place.at("logs")).args(["--http", "127.0.0.1:0"]);
    command
}

/// Starts `play` with these manifests, and waits until it plays.
pub(crate) async fn start(place: &Place, path: &str) -> Running {
    start_with(place, &[path]).await
}

/// Starts `play` with these arguments, and waits until it plays.
async fn start_with(place: &Place, arguments: &[&str]) -> Running {
    let running = begin(place, arguments);
    running.logged("playing").await;
    running
}

/// Starts `play` without waiting until it plays.
pub(crate) fn begin(place: &Place, arguments: &[&str]) -> Running {
    let log = place.at("log");
    let mut command = play(place, arguments);
    command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let process = command.spawn().unwrap();
    Running { process, socket: place.at("probeshim.sock"), log }
}

/// Plays manifests until `play` ends, and returns its output.
pub(crate) async fn played(place: &Place, manifests: &str, arguments: &[&str]) -> Answer {
    fs::write(place.at("pods.yaml"), manifests).unwrap();
    let manifests = place.at("pods.yaml");
    let arguments = [&[manifests.to_str().unwrap()], arguments].concat();
    Answer::to(play(place, &arguments)).await
}

/// A directory of manifests that `play` watches.
pub(crate) struct Watched<'a> {
    place: &'a Place,
    folder: PathBuf,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(place: &'a Place) -> Self {
        let folder = place.at("pods");
        fs::create_dir(&folder).unwrap();
        Self { place, folder }
    }

    pub(crate) fn path(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    /// Writes a manifest atomically.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.place.at("new"), text).unwrap();
        fs::rename(self.place.at("new"), self.folder.join(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).unwrap();
    }
}

/// Waits for an event with this reason whose message contains `message`.
pub(crate) async fn told(place: &Place, reason: &'static str, message: &'static str) {
    until_shown(place, &["events"], |events| {
        let is_it =
            |event: &Value| event["reason"] == reason && event["message"].as_str().unwrap().contains(message);
        events.as_array()?.iter().any(is_it).then_some(())
    })
    .await;
}

/// Returns the number of sandboxes. Containers are removed with their sandbox.
pub(crate) async fn sandboxes(runtime: &mut Runtime) -> usize {
    let listed = runtime.client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    listed.into_inner().items.len()
}

/// Asserts that nothing is left of the pods, neither in the runtime nor on disk, and ends the
/// runtime.
pub(crate) async fn is_clean(place: &Place, mut runtime: Runtime) {
    assert_eq!(sandboxes(&mut runtime).await, 0);
    assert_eq!(fs::read_dir(place.at("state/pods")).unwrap().count(), 0);
    runtime.end().await;
}

/// Probe of a container that is not ready while it runs, even for a moment.
pub(crate) const NEVER_READY: &str = ", readinessProbe: {exec: {command: ['false']}}";

#[tokio::test]
async fn play_ends_with_its_pods_and_reports_their_results() {
    for (pods, arguments, code, told) in [
        (
            pod("a", "exit 0", ", restartPolicy: Never", "")
                + &pod("b", "true", ", restartPolicy: OnFailure", ""),
            &[][..],
            0,
            "",
        ),
        (
            pod("a", "exit 3", ", restartPolicy: Never", ""),
            &[],
            1,
            "error: pod test/a has failed: main exited with code 3 (Error)",
        ),
        (
            pod(
                "a",
                POLITE,
                ", restartPolicy: Never",
                ", livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1}",
            ),
            &[],
            1,
            "error: pod test/a has failed: a container was killed and is not restarted",
        ),
        (
            pod("a", POLITE, "", ", readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}"),
            &["--until", "ready"],
            0,
            "",
        ),
        (pod("a", "exit 1", "", ""), &["--until", "restarts=1"], 0, ""),
        (
            pod("a", "exit 1", ", restartPolicy: Never", NEVER_READY),
            &["--until", "ready"],
            1,
            "error: pod test/a has failed: main exited with code 1 (Error)",
        ),
        (
            pod("a", POLITE, "", NEVER_READY),
            &["--until", "ready", "--timeout", "2s"],
            1,
            "error: --timeout: after 2.00s not ready: test/a (Running)",
        ),
    ] {
        let place = Place::new();
        let runtime = Runtime::start_at(&place.at("runtime.sock"));
        let answer = played(&place, &pods, arguments).await;
        let errors: Vec<&str> = answer.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(
            (answer.code, errors.join("\n")),
            (Some(code), told.to_owned()),
            "{pods} {arguments:?}: {answer:?}"
        );
        is_clean(&place, runtime).await;
    }
}

#[tokio::test]
async fn play_reports_invalid_manifests_before_it_creates_anything() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let claim = ", volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]";
    let wrong = pod("a", "true", "", ", imagePullPolicy: Often, livenessProbe: {tcpSocket: {port: 0}}")
        + &pod("b", "true", claim, "")
        + "{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {containers: []}}";
    let answer = played(&place, &wrong, &[]).await;
    let file = place.at("pods.yaml").display().to_string();
    for expected in [
        &format!(
            "{file}:1: spec.containers[0].imagePullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \"Never\""
        ),
        &format!("{file}:1: spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be"),
        &format!("{file}:3: spec.volumes[0].persistentVolumeClaim: Unsupported by probeshim: requires"),
        &format!("{file}:5: spec.containers: Required value"),
    ] {
        assert_eq!(answer.stderr.matches(expected).count(), 1, "{expected}: {answer:?}");
    }
    assert_eq!((answer.code, answer.stderr.lines().count()), (Some(2), 4), "{answer:?}");
    let mut check = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    check.arg("check").arg(place.at("pods.yaml")).arg("--config").arg(place.at("config.yaml"));
    let checked = Answer::to(check).await;
    assert_eq!((checked.code, checked.stderr), (Some(2), answer.stderr), "check and play differ");
    let nothing = played(&place, "{kind: Service, metadata: {name: s}}", &[]).await;
    let expected = format!("{file}: no pod, and no workload with a pod template");
    assert!(nothing.code == Some(2) && nothing.stderr.contains(&expected), "{nothing:?}");
    assert_eq!(sandboxes(&mut runtime).await, 0);
    let ignored = pod("b", "true", &format!("{claim}, restartPolicy: Never"), "");
    let answer = played(&place, &ignored, &["--ignore-unsupported"]).await;
    assert_eq!((answer.code, answer.stderr.matches("left out").count()), (Some(0), 1), "{answer:?}");
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn play_watches_a_directory_and_replaces_a_pod_with_a_changed_manifest() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    let mut running = start(&place, folder.path()).await;
    let pods = async |what: fn(&[Value]) -> Option<String>| {
        until_shown(&place, &["status"], move |status| what(status["pods"].as_array()?)).await
    };
    let running_one = |pods: &[Value]| {
        let [pod] = pods else { return None };
        (pod["status"] == "Running").then(|| pod["uid"].as_str().unwrap().to_owned())
    };
    folder.write("a.yaml", &pod("a", POLITE, "", ""));
    let first = pods(running_one).await;
    folder.write("a.yaml", &pod("a", POLITE, "", ", env: [{name: A, value: b}]"));
    until(|| async { (pods(running_one).await != first).then_some(()) }).await;
    folder.write(
        "b.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: main}]}}",
    );
    told(&place, "InvalidSpec", "b.yaml:1: spec.containers[0].image: Required value").await;
    folder.remove("a.yaml");
    // The final status can be read for five minutes.
    let ended =
        pods(|pods| pods.iter().find(|pod| pod["removed"].is_string()).map(ToString::to_string)).await;
    let ended: Value = serde_json::from_str(&ended).unwrap();
    assert_eq!([&ended["status"], &ended["phase"]], ["Completed", "Succeeded"], "{ended}");
    let container = &ended["containers"][0];
    assert_eq!((&container["state"], &container["exitCode"]), (&"exited".into(), &0.into()), "{ended}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

/// A pod with the same uid stays the same pod: a container with another image is restarted, and an
/// invalid manifest changes nothing.
#[tokio::test]
async fn play_updates_a_pod_with_a_uid_in_place() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    let manifest = pod("a", POLITE, "", ", envFrom: [{configMapRef: {name: c}}]")
        .replace("{name: a,", "{name: a, uid: mine,");
    folder.write("a.yaml", &manifest);
    folder.write(
        "c.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: test}, data: {A: b}}",
    );
    let mut running = start(&place, folder.path()).await;
    let restarts = async |count: u64| {
        until_shown(&place, &["status"], |status| {
            let pod = &status["pods"][0];
            let is_it = pod["uid"] == "mine" && pod["status"] == "Running" && pod["restarts"] == count;
            is_it.then(|| pod["id"].as_str().unwrap().to_owned())
        })
        .await
    };
    let sandbox = restarts(0).await;
    folder.write("a.yaml", &manifest.replace("image: i,", "image: other,"));
    assert_eq!(restarts(1).await, sandbox);
    told(&place, "Killing", "Container main definition changed, will be restarted").await;
    folder.remove("c.yaml");
    folder.write("a.yaml", &manifest.replace("image: i,", "image: third,"));
    told(&place, "Failed", "Error: configmap \"c\" not found").await;
    folder.write(
        "c.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: test}, data: {A: b}}",
    );
    assert_eq!(restarts(2).await, sandbox);
    folder.write("a.yaml", &manifest.replace("image: i,", "imagePullPolicy: Often, image: i,"));
    told(&place, "InvalidSpec", "Unsupported value: \"Often\"").await;
    assert_eq!(restarts(2).await, sandbox);
    folder.write("a.yaml", &manifest.replace("image: i,", "image: third,"));
    told(&place, "SpecResolved", "Unsupported value: \"Often\"").await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn played_pods_can_be_read_as_from_a_kubelet() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let manifest = pod(
        "a",
        POLITE,
        "",
        ", env: [{name: KEY, value: secret}], readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}",
    );
    fs::write(place.at("pods.yaml"), manifest).unwrap();
    let mut running = start_with(&place, &[place.at("pods.yaml").to_str().unwrap(), "--http-pods"]).await;
    let http = until_shown(&place, &["status"], |status| {
        let is_ready = status["pods"][0]["ready"] == true && status["mode"] == "restart";
        is_ready.then(|| status["http"].as_str().unwrap().trim_start_matches("http://").to_owned())
    })
    .await;
    let list = get(&http, "/pods").await;
    let list: Value = serde_json::from_str(list.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&"PodList".into(), &"v1".into()));
    let status = &list["items"][0]["status"];
    assert_eq!((&status["phase"], &status["qosClass"]), (&"Running".into(), &"BestEffort".into()));
    let container = &status["containerStatuses"][0];
    assert!(
        container["ready"] == true && container["started"] == true && container["restartCount"] == 0,
        "{container}"
    );
    assert!(container["containerID"].as_str().unwrap().starts_with("procrun://"), "{container}");
    let spec = &list["items"][0]["spec"];
    assert_eq!(
        spec["containers"][0]["env"],
        serde_json::json!([{"name": "KEY"}]),
        "/pods must not contain values of environment variables"
    );
    let metrics = get(&http, "/metrics/probes").await;
    assert!(
        metrics.contains("prober_probe_total{") && metrics.contains("result=\"successful\""),
        "{metrics}"
    );
    let shown = place.ask(&["get", "pods", "-A"]).await.stdout;
    let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["test", "a", "1/1", "Running", "0"], "{shown}");
    assert_eq!(place.ask(&["mode", "kill"]).await.code, Some(2));
    let changed = place.ask(&["mode", "dry-run"]).await.stdout;
    assert_eq!(changed, "mode is now dry-run (was restart): probes run, and nothing is killed\n");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn a_hundred_played_pods_start_are_probed_and_end() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    // The image is present, because the number of pulls per second is limited.
    let first = played(&place, &pod("first", POLITE, "", ""), &["--until", "ready"]).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    let probe = ", imagePullPolicy: IfNotPresent, readinessProbe: {exec: {command: ['true']}, periodSeconds: 5, \
                 timeoutSeconds: 30}";
    let pods: String = (0..100).map(|number| pod(&format!("pod-{number}"), POLITE, "", probe)).collect();
    let answer = played(&place, &pods, &["--until", "ready", "--log", "warn"]).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
    is_clean(&place, runtime).await;
}
