//! The environment of played pods: probes from other sources, modes, signals and a kubelet; and
//! `describe`.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use super::{POLITE, Watched, is_clean, played, pod, sandboxes, start, start_with, told};
use crate::admin::until_shown;
use crate::procrun::Runtime;
use crate::program::{Place, Running};

/// Probes from a rule or an annotation have the same effect as probes of the manifest, including
/// their grace periods.
#[tokio::test]
async fn play_runs_the_probes_of_rules_and_annotations() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    place.configure(
        "probes: [{match: {pod: a}, livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1, \
         terminationGracePeriodSeconds: 9}}]",
    );
    let never = r#"{"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 100}"#;
    let beside = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: b, namespace: test, annotations: {{probeshim.io/startup.side: '{never}'}}}}, spec: \
         {{terminationGracePeriodSeconds: 2, initContainers: [{{name: side, image: i, restartPolicy: Always, command: [sh, -c, \"{POLITE}\"]}}], \
         containers: [{{name: main, image: i, command: [sh, -c, \"{POLITE}\"]}}]}}}}"
    );
    fs::write(place.at("pods.yaml"), pod("a", POLITE, "", "") + &beside).unwrap();
    let mut running = start(&place, place.at("pods.yaml").to_str().unwrap()).await;
    let given = until_shown(&place, &["calls", "--method", "StopContainer"], |calls| {
        calls.as_array()?.iter().find_map(|call| call["kill"]["gracePeriodSeconds"].as_u64())
    })
    .await;
    assert_eq!(given, 9);
    told(&place, "Unhealthy", "Startup probe failed").await;
    let status = place.ask(&["status", "-o", "json"]).await.json();
    let waiting = status["pods"].as_array().unwrap().iter().find(|pod| pod["name"] == "b").unwrap();
    assert_eq!(waiting["status"], "Init:0/1", "the sidecar's startup probe has not succeeded: {waiting:#}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn play_kills_nothing_in_the_modes_off_and_dry_run() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let probes = ", livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1}, \
                  readinessProbe: {exec: {command: ['false']}, periodSeconds: 1}";
    // Probes are not run, and a container without probes is ready.
    let answer =
        played(&place, &pod("a", POLITE, "", probes), &["--enforce", "off", "--until", "ready"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    fs::write(place.at("pods.yaml"), pod("b", POLITE, "", probes)).unwrap();
    let manifests = place.at("pods.yaml");
    let mut running = start_with(&place, &[manifests.to_str().unwrap(), "--enforce", "dry-run"]).await;
    let often = until_shown(&place, &["events"], |events| {
        let would = events.as_array()?.iter().filter(|event| event["reason"] == "WouldKill");
        would.map(|event| event["count"].as_u64().unwrap()).max().filter(|count| *count >= 2)
    });
    often.await;
    let status = place.ask(&["status", "-o", "json"]).await.json();
    let pod = &status["pods"][0];
    let stands = (&pod["status"], &pod["restarts"], &pod["ready"]);
    assert_eq!(stands, (&"Running".into(), &0.into(), &false.into()), "{pod:#}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn a_second_signal_removes_played_pods_immediately() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let stubborn = "trap '' TERM; while true; do sleep 0.1; done";
    let manifest = pod("a", stubborn, "", "").replace("GracePeriodSeconds: 2", "GracePeriodSeconds: 3600");
    fs::write(place.at("pods.yaml"), manifest).unwrap();
    let mut running = start(&place, place.at("pods.yaml").to_str().unwrap()).await;
    let is = async |word: &'static str| {
        until_shown(&place, &["status"], |status| (status["pods"][0]["status"] == word).then_some(())).await;
    };
    is("Running").await;
    running.signal(Signal::INT);
    is("Terminating").await;
    running.signal(Signal::INT);
    assert_eq!(running.ended().await, Some(130));
    is_clean(&place, runtime).await;
}

/// With `--pod-logs`, logs stay after the end, and the next run continues their numbers.
#[tokio::test]
async fn log_numbers_continue_in_the_next_run_of_play() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let pods = pod("a", "echo hello; exit 1", "", "");
    for _ in 0..2 {
        let answer = played(&place, &pods, &["--until", "restarts=1"]).await;
        assert_eq!(answer.code, Some(0), "{answer:?}");
    }
    let mut folders = fs::read_dir(place.at("logs")).unwrap();
    let logs = folders.next().unwrap().unwrap().path().join("main");
    assert!(folders.next().is_none(), "the same manifest must result in the same pod");
    for attempt in 0..4 {
        let log = fs::read_to_string(logs.join(format!("{attempt}.log"))).unwrap();
        assert!(log.ends_with(" stdout F hello\n"), "attempt {attempt}: {log}");
    }
    is_clean(&place, runtime).await;
}

/// While a kubelet is connected, no pod is started, because both would manage the same runtime.
#[tokio::test]
async fn play_starts_no_pod_while_a_kubelet_is_connected() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    let mut running = start(&place, folder.path()).await;
    // A client is identified by the name of its program. This one calls the runtime when it starts.
    let kubelet = place.at("kubelet");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_probeshim"), &kubelet).unwrap();
    let mut client = Command::new(kubelet);
    client.args(["run", "--http", "off", "--record-limit", "off", "--log", "off"]);
    for (flag, name) in [
        ("--listen", "of-kubelet.sock"),
        ("--admin", "of-kubelet-admin.sock"),
        ("--upstream", "probeshim.sock"),
        ("--config", "config.yaml"),
    ] {
        client.arg(flag).arg(place.at(name));
    }
    let (socket, log) = (place.at("of-kubelet.sock"), place.at("log"));
    let mut client = Running { process: client.spawn().unwrap(), socket, log };
    told(&place, "PausedForKubelet", "").await;
    client.signal(Signal::TERM);
    assert_eq!(client.ended().await, Some(0));
    folder.write("a.yaml", &pod("a", POLITE, "", ""));
    until_shown(&place, &["status"], |status| (status["pods"][0]["phase"] == "Pending").then_some(())).await;
    assert_eq!(sandboxes(&mut runtime).await, 0);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn a_played_pod_is_described() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let more = ", resources: {limits: {cpu: 100m}}, \
                readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}, env: [{name: A, value: secret}]";
    let again = pod("a", "exit 7", "", more).replace("namespace: test", "namespace: other");
    fs::write(place.at("pods.yaml"), again + &pod("a", POLITE, "", more) + &pod("b", POLITE, "", ""))
        .unwrap();
    let mut running = start(&place, place.at("pods.yaml").to_str().unwrap()).await;
    let page = async |pod: &'static str| place.ask(&["describe", pod]).await;
    until_shown(&place, &["status"], |status| {
        let pods = status["pods"].as_array()?;
        let is = |namespace: &str, word: &str| {
            pods.iter()
                .any(|pod| pod["namespace"] == namespace && pod["name"] == "a" && pod["status"] == word)
        };
        (is("other", "CrashLoopBackOff") && is("test", "Running")).then_some(())
    })
    .await;
    let shown = page("other/a").await.stdout;
    for line in [
        "Name:             a",
        "Namespace:        other",
        "Status:           CrashLoopBackOff",
        "  main:",
        "    State:            Waiting",
        "      Reason:           CrashLoopBackOff",
        "    Last State:       Terminated",
        "      Exit Code:        7",
        "    Limits:           cpu: 100m",
        "QoS Class:        Burstable",
    ] {
        assert!(shown.lines().any(|known| known == line), "{line}: {shown}");
    }
    let has = |what: &[&str]| {
        shown.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(what))
    };
    assert!(has(&["Ready", "False", "ContainersNotReady"]) && has(&["Warning", "BackOff"]), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
    let ready = page("test/a").await.stdout;
    assert!(
        ready.contains(
            "    Readiness:        exec [true] delay=0s timeout=1s period=1s #success=1 #failure=3\n      \
             Result:           ok since"
        ),
        "{ready}"
    );
    let told = [page("a").await, page("c").await].map(|answer| (answer.code, answer.stderr));
    let one = "error: POD \"a\" is ambiguous: it may be other/a, test/a\n";
    let none = "error: POD \"c\" not found; the pods are other/a, test/a, test/b\n";
    assert_eq!(told, [one, none].map(|text| (Some(2), text.to_owned())));
    let whole = place.ask(&["pods", "b", "-o", "json"]).await.json();
    assert_eq!((&whole["metadata"]["name"], &whole["status"]["phase"]), (&"b".into(), &"Running".into()));
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

/// A pod is identified by its uid. Of two pods with the same uid, the second starts once the first
/// is gone.
#[tokio::test]
async fn two_pods_with_the_same_uid_run_one_after_the_other() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    let slow = "trap 'sleep 2; exit 0' TERM; while true; do sleep 0.1; done";
    let named = |name: &str| {
        pod(name, slow, "", "")
            .replace("GracePeriodSeconds: 2", "GracePeriodSeconds: 60")
            .replace("{name: ", "{uid: mine, name: ")
            .replace("{uid: mine, name: main", "{name: main")
    };
    folder.write("pod.yaml", &named("a"));
    let mut running = start(&place, folder.path()).await;
    let sandbox = async |name: &'static str| {
        until_shown(&place, &["status"], |status| {
            let [pod] = &status["pods"].as_array()?[..] else { return None };
            let is_it = pod["name"] == name && pod["status"] == "Running";
            is_it.then(|| pod["id"].as_str().unwrap().to_owned())
        })
        .await
    };
    let first = sandbox("a").await;
    folder.write("pod.yaml", &named("b"));
    assert_ne!(sandbox("b").await, first, "the second pod must have another sandbox");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

/// No pod was created, so `play` has no termination to wait for.
#[tokio::test]
async fn play_without_a_runtime_names_the_socket_and_ends_immediately() {
    let place = Place::new();
    let manifest = pod("a", POLITE, "", "").replace("GracePeriodSeconds: 2", "GracePeriodSeconds: 3600");
    let answer = played(&place, &manifest, &["--until", "ready", "--timeout", "1s"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let nobody =
        format!("cannot reach unix://{}: no such file or directory", place.at("runtime.sock").display());
    let warnings: Vec<&str> = answer.stderr.lines().filter(|line| line.contains("\"WARN\"")).collect();
    assert!(!warnings.is_empty() && warnings.iter().all(|line| line.contains(&nobody)), "{answer:?}");
    assert!(answer.stderr.contains("--timeout: after 1.00s not ready: test/a (Pending)"), "{answer:?}");
    assert!(!place.at("state").join("pods").read_dir().unwrap().any(|_| true), "play left files of pods");
}
