//! What lives on through the end of who keeps it: probeshim is killed, or containerd, while pods are played, or kept for crictl.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::containerd::{Containerd, Version};
use super::crictl::Crictl;
use super::image::BUSYBOX;
use super::kubelet::{Kubelet, NODE, manifest};
use super::life::Runtime as _;
use super::play::Player;
use super::probing::Probing;
use super::server::wait_for;

/// A shell that ends when it is told to.
const POLITE: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

/// Who looks from outside that nothing is there twice.
struct Witness {
    crictl: Crictl,
    /// All attempts of each container of each pod, and their ids.
    seen: BTreeMap<(String, String), BTreeSet<(u64, String)>>,
}

impl Witness {
    fn of(containerd: &Containerd) -> Result<Self, String> {
        let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder())?;
        Ok(Self { crictl, seen: BTreeMap::new() })
    }

    /// Looks once. Returns the attempts that run, by pods and containers.
    fn look(&mut self) -> BTreeMap<(String, String), u64> {
        let mut running = BTreeMap::new();
        let listed: Value = serde_json::from_str(&self.crictl.ok(&["ps", "-a", "-o", "json"])).unwrap();
        for container in listed["containers"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let pod = text(&container["labels"]["io.kubernetes.pod.uid"]);
            let key = (pod, text(&container["metadata"]["name"]));
            let attempt = container["metadata"]["attempt"].as_u64().unwrap_or(0);
            if container["state"] == "CONTAINER_RUNNING" {
                let other = running.insert(key.clone(), attempt);
                assert_eq!(other, None, "{key:?} runs twice: {listed:#}");
            }
            self.seen.entry(key).or_default().insert((attempt, text(&container["id"])));
        }
        for (key, attempts) in &self.seen {
            let numbers: BTreeSet<u64> = attempts.iter().map(|(attempt, _)| *attempt).collect();
            assert_eq!(numbers.len(), attempts.len(), "{key:?}: two have one attempt: {attempts:?}");
        }
        running
    }

    /// Looks on for so long.
    fn watch(&mut self, lasts: Duration) {
        let begun = Instant::now();
        wait_for("enough time has been watched", || {
            self.look();
            (begun.elapsed() >= lasts).then_some(())
        });
    }
}

/// Pods that do everything in a few seconds: an init container, one beside the others, one that a probe kills once, hooks, one that crashes.
fn pods() -> Vec<(&'static str, Value)> {
    let container = |name: &str, script: &str| {
        json!({
            "name": name, "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "keep", "mountPath": "/keep"}],
        })
    };
    let with = |mut container: Value, more: Value| {
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        container
    };
    let pod = |name: &'static str, init: Vec<Value>, containers: Vec<Value>| {
        let spec = json!({
            "terminationGracePeriodSeconds": 3, "initContainers": init, "containers": containers,
            "volumes": [{"name": "keep", "emptyDir": {}}],
        });
        (name, json!({"kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": spec}))
    };
    let once = "echo x >> /keep/starts; ".to_owned() + POLITE;
    let probe = json!({
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", "[ $(wc -l < /keep/starts) -ne 1 ]"]}, "periodSeconds": 1, "failureThreshold": 2,
            "timeoutSeconds": 20,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
    });
    let beside = with(container("side", POLITE), json!({"restartPolicy": "Always"}));
    vec![
        pod("killed", Vec::new(), vec![with(container("main", &once), probe)]),
        pod("beside", vec![container("first", "sleep 1"), beside], vec![container("main", POLITE)]),
        pod("crashes", Vec::new(), vec![container("main", "sleep 1; exit 3")]),
    ]
}

/// Whether all of them are what they are to be in the end.
fn is_settled(running: &BTreeMap<(String, String), u64>, player: &Player) -> bool {
    let attempt = |pod: &str, name: &str| running.get(&(pod.to_owned(), name.to_owned())).copied();
    let restarts = |pod: &str| {
        let pod = player.pod(pod).unwrap_or_default();
        pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0)
    };
    attempt("killed", "main").is_some_and(|attempt| attempt > 0)
        && attempt("beside", "side").is_some()
        && attempt("beside", "main").is_some()
        && restarts("crashes") >= 2
}

/// Kills the task that containerd refuses to delete, if there is one.
///
/// A `StartContainer` whose client is killed can fail with "failed to get task pid: context canceled" after its task was created (containerd issue
/// 11037, open). The container is `CONTAINER_EXITED` then: `stopContainer` of `container_stop.go` returns at once, and `RemoveContainer` fails with
/// "cannot delete running task". So does every later attempt, whether `play` or a kubelet makes it.
fn kill_leaked_task(containerd: &Containerd, player: &Player) {
    let log = player.log();
    let Some((_, refused)) = log.rsplit_once("cannot delete running task ") else { return };
    let id: String = refused.chars().take_while(char::is_ascii_hexdigit).collect();
    // It may be gone by now.
    let _ = containerd.ctr_command(&["tasks", "kill", "--signal", "SIGKILL", &id]).output();
}

/// So many random walks: who plays is killed at times of chance, also while pods end.
pub(crate) fn walks(count: usize) -> Result<(), String> {
    let containerd = Containerd::start(Version::V2_2)?;
    for walk in 0..count {
        let seed = fastrand::u64(..);
        // Shown with a walk that goes wrong.
        eprintln!("walk {walk}: seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut witness = Witness::of(&containerd)?;
        let mut player = Player::start(containerd.folder(), &containerd.socket(), &[]);
        for (name, manifest) in pods() {
            player.run(name, &manifest.to_string());
        }
        for _ in 0..3 {
            witness.watch(Duration::from_millis(chance.u64(0..4000)));
            player.crash_and_restart();
        }
        wait_for("all is as it is to be", || is_settled(&witness.look(), &player).then_some(()));
        for (name, _) in pods() {
            player.forget(name);
        }
        witness.watch(Duration::from_millis(chance.u64(0..5000)));
        player.crash_and_restart();
        wait_for("all pods are gone", || {
            kill_leaked_task(&containerd, &player);
            witness.look();
            (witness.crictl.ok(&["pods", "-q"]).is_empty() && player.pods().is_empty()).then_some(())
        });
        let wrong = player.ends_cleanly(&containerd)?;
        assert_eq!(wrong, [""; 0], "walk {walk}, seed {seed}");
    }
    Ok(())
}

/// containerd is killed, and restarted, while pods are played, and one of them is in back-off.
pub(crate) fn containerd_ends() -> Result<(), String> {
    let mut containerd = Containerd::start(Version::V2_2)?;
    let mut witness = Witness::of(&containerd)?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    for (name, manifest) in pods() {
        player.run(name, &manifest.to_string());
    }
    for is_killed in [true, false, true] {
        wait_for("one is in back-off", || {
            witness.look();
            let pod = player.pod("crashes")?;
            let state = &pod["status"]["containerStatuses"][0]["state"];
            (state["waiting"]["reason"] == "CrashLoopBackOff").then_some(())
        });
        let before = witness.look();
        if is_killed {
            containerd.crash_and_restart();
        } else {
            containerd.restart();
        }
        let after = witness.look();
        assert_eq!(before.get(&key("beside")), after.get(&key("beside")), "what runs goes on");
    }
    wait_for("all is as it is to be", || is_settled(&witness.look(), &player).then_some(()));
    let wrong = player.ends_cleanly(&containerd)?;
    assert_eq!(wrong, [""; 0]);
    Ok(())
}

fn key(pod: &str) -> (String, String) {
    (pod.to_owned(), "main".to_owned())
}

/// A pod as `Probing` has crictl make it.
fn pod(name: &str, script: &str, more: &Value) -> Value {
    let mut main = json!({"name": "main", "command": ["sh", "-c", script]});
    main.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "kind": "Pod", "metadata": {"name": name, "namespace": "parity"},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [main]},
    })
}

/// A container of a pod: its attempt, its state and its id.
type Attempt = (u64, String, String);

/// The containers of a pod, by their attempts; of which one runs at most, and no two have one attempt.
fn attempts(probing: &Probing, pod: &str) -> Vec<Attempt> {
    let listed: Value = serde_json::from_str(&probing.crictl.ok(&["ps", "-a", "-o", "json"])).unwrap();
    let pods: Value = serde_json::from_str(&probing.crictl.ok(&["pods", "-o", "json"])).unwrap();
    let is_of_it = |container: &&Value| {
        let sandboxes = pods["items"].as_array().unwrap();
        sandboxes.iter().any(|it| it["id"] == container["podSandboxId"] && it["metadata"]["name"] == pod)
    };
    let containers = listed["containers"].as_array().cloned().unwrap_or_default();
    let attempt = |it: &Value| {
        let text = |field: &str| it[field].as_str().unwrap().to_owned();
        (it["metadata"]["attempt"].as_u64().unwrap_or(0), text("state"), text("id"))
    };
    let mut all: Vec<Attempt> = containers.iter().filter(is_of_it).map(attempt).collect();
    all.sort();
    assert!(all.iter().filter(|it| it.1 == "CONTAINER_RUNNING").count() <= 1, "{all:?}");
    assert!(all.windows(2).all(|two| two[0].0 != two[1].0), "{all:?}");
    all
}

fn last(probing: &Probing, pod: &str) -> Attempt {
    attempts(probing, pod).pop().unwrap()
}

fn reaches(probing: &Probing, pod: &str, attempt: u64) {
    wait_for(&format!("attempt {attempt} of {pod}"), || (last(probing, pod).0 >= attempt).then_some(()));
}

/// crictl makes pods through the relay: they live on, through ends of probeshim and containerd as well, until crictl stops or removes them.
pub(crate) fn of_crictl() -> Result<(), String> {
    let failing = json!({
        "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 20},
    });
    let stories = [
        pod("fails", POLITE, &failing),
        pod("ends", "sleep 1; exit 3", &json!({})),
        pod("large", "sleep 1; exit 3", &json!({"annotations": {"large": "x".repeat(5 << 20)}})),
        pod("last", "sleep 1; exit 3", &json!({})),
    ];
    let mut probing = Probing::start(&stories, "restart")?;
    for story in &stories[..3] {
        probing.run(story);
    }
    let too_long = "its CreateContainer was not seen whole: it is too long";
    probing.wait_for_event("large", "NotRestartable", too_long, 1);
    let told = probing.status("large")["containers"][0]["notRestartable"].as_str().unwrap().to_owned();
    assert_eq!(told, too_long);
    for attempt in 1..=3 {
        for pod in ["fails", "ends"] {
            reaches(&probing, pod, attempt);
        }
        // In back-off, or just running.
        probing.shim.crash_and_restart();
        match attempt {
            1 => probing.containerd.crash_and_restart(),
            2 => probing.containerd.restart(),
            _ => {}
        }
    }
    let stopped = wait_for("one that runs", || {
        Some(last(&probing, "fails")).filter(|(_, state, _)| state == "CONTAINER_RUNNING")
    });
    probing.crictl.ok(&["stop", &stopped.2]);
    let removed = wait_for("one that has ended", || {
        Some(last(&probing, "ends")).filter(|(_, state, _)| state == "CONTAINER_EXITED")
    });
    probing.crictl.ok(&["rm", &removed.2]);
    let left = attempts(&probing, "ends");
    wait_for("it is known that it is its owner's", || {
        let containers = probing.status("fails")["containers"].clone();
        let own = containers.as_array()?.last()?["notRestartable"].clone();
        (own == "stopped or removed by a client").then_some(())
    });
    probing.run(&stories[3]);
    // That takes about as long as they would have been waited for, or longer.
    reaches(&probing, "last", 3);
    assert_eq!(last(&probing, "fails").2, stopped.2, "it was stopped for good");
    assert_eq!(last(&probing, "large").0, 0, "nobody knows how it was made");
    assert_eq!(attempts(&probing, "ends"), left, "it was removed for good");
    Ok(())
}

/// Beside a kubelet nothing is restarted, and what it has made, or ended since it does not know it, is never. Once it has been gone for a
/// minute, what crictl has made since is.
pub(crate) fn beside_a_kubelet() -> Result<(), String> {
    let stories = ["ends", "last"].map(|name| pod(name, "sleep 1; exit 3", &json!({})));
    let probing = Probing::start(&stories, "restart")?;
    probing.run(&stories[0]);
    reaches(&probing, "ends", 1);
    let kubelet = Kubelet::start(probing.containerd.folder(), probing.shim.socket())?;
    wait_for("it is known that a kubelet is there", || {
        probing.shim.list(&["events"]).iter().any(|event| event["reason"] == "PausedForKubelet").then_some(())
    });
    let sandboxes = |pod: &str| probing.crictl.ok(&["pods", "-q", "--state", "ready", "--name", pod]);
    wait_for("the kubelet has ended what it does not know", || sandboxes("ends").is_empty().then_some(()));
    kubelet.run(&manifest("theirs", "sleep 1; exit 3", &Value::Null));
    kubelet.container_when("theirs", "restarted", |status| status["restartCount"].as_u64() >= Some(2));
    let theirs = format!("theirs-{NODE}");
    let left = wait_for("one that has ended", || {
        Some(last(&probing, &theirs)).filter(|(_, state, _)| state == "CONTAINER_EXITED")
    });
    drop(kubelet);
    probing.run(&stories[1]);
    reaches(&probing, "last", 2);
    assert_eq!(last(&probing, &theirs), left, "it is the kubelet's");
    assert_eq!(sandboxes("ends"), "", "the kubelet has ended it");
    let told = &probing.status(&theirs)["containers"][0]["notRestartable"];
    assert_eq!(told, "a kubelet has made it");
    Ok(())
}
