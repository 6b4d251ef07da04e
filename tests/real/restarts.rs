//! Rows of tables 9.6, 9.7 and 9.8 that ask for a kill and a restart: probeshim kills, and a real kubelet, which knows of no probe,
//! restarts. To the kubelet these containers end by themselves: from the second time on it waits before it restarts them.

use std::path::Path;

use serde_json::{Value, json};

use super::containerd::{Containerd, Version};
use super::kubelet::{NODE, manifest_of, statuses};
use super::life::Runtime as _;
use super::machine::tool;
use super::node::Node;
use super::parity::Row;
use super::play::Player;
use super::probing::dress;
use super::server::wait_for;

/// A pod, and how it fares.
pub(crate) struct Story {
    name: String,
    /// What probeshim is told.
    spec: Value,
    expected: Expected,
}

/// How a pod fares.
enum Expected {
    /// The container that is probed is restarted so often.
    Restarted(u64),
    /// It is restarted so often, after its hook has run each time, and the main container does not start.
    RestartedWithHook(u64),
    /// Its hook runs, it ends, and the pod with it.
    EndedWithHook,
}

/// The rows of a table that ask for a kill; in the twins of table 9.7 the container that is probed runs beside the main one.
pub(crate) fn of_rows(rows: &[Row], is_sidecar: bool) -> Vec<Story> {
    let stories = rows.iter().enumerate().filter_map(|(place, row)| {
        let mut spec = row.manifest(place, is_sidecar)["spec"].clone();
        if !row.has_own_grace_period() {
            // Shells do not heed SIGTERM.
            spec["terminationGracePeriodSeconds"] = 2.into();
        }
        // Each further one takes twice as long.
        let restarts = row.kills()?.min(3);
        Some(Story { name: format!("row-{place}"), spec, expected: Expected::Restarted(restarts) })
    });
    stories.collect()
}

/// The rows of table 9.8 that ask for a kill, and that a node alone can have: an image that changes takes an API server.
pub(crate) fn of_lifecycle() -> Vec<Story> {
    let polite = || json!(["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"]);
    let failing = |field: &str| {
        let probe = json!({
            "exec": {"command": ["false"]}, "initialDelaySeconds": 3, "periodSeconds": 1, "failureThreshold": 1,
        });
        let hook = json!({"preStop": {"exec": {"command": ["sleep", "2"]}}});
        json!({"name": "probed", "command": polite(), field: probe, "lifecycle": hook})
    };
    let alone = |field: &str| json!({"restartPolicy": "Never", "containers": [failing(field)]});
    let beside = |field: &str| {
        let mut side = failing(field);
        side["restartPolicy"] = "Always".into();
        json!({
            "initContainers": [side],
            "containers": [{"name": "main", "command": polite()}],
        })
    };
    let story = |name: &str, spec, expected| Story { name: name.to_owned(), spec, expected };
    vec![
        story("pre-stop-startup", alone("startupProbe"), Expected::EndedWithHook),
        story("pre-stop-liveness", alone("livenessProbe"), Expected::EndedWithHook),
        story("side-startup", beside("startupProbe"), Expected::RestartedWithHook(2)),
        story("side-liveness", beside("livenessProbe"), Expected::RestartedWithHook(2)),
    ]
}

/// Has the kubelet run these pods, and looks how they fare.
pub(crate) fn hold(stories: &[Story]) -> Result<(), String> {
    let probes = tool("probes-1.36")?;
    let folder = tempfile::tempdir().unwrap();
    for story in stories {
        let manifest = manifest_of(&story.name, &story.spec);
        std::fs::write(folder.path().join(format!("{}.json", story.name)), manifest.to_string()).unwrap();
    }
    let node = Node::start_killing(folder.path())?;
    for story in stories {
        node.kubelet.run(&manifest_of(&story.name, &story.without_probes(&probes)));
    }
    for story in stories {
        story.check(&node);
    }
    Ok(())
}

/// Has these pods played, and looks how they fare.
pub(crate) fn play(stories: &[Story]) -> Result<(), String> {
    let probes = tool("probes-1.36")?;
    let containerd = Containerd::start(Version::V2_2)?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    for story in stories {
        let mut spec = story.spec.clone();
        dress(&mut spec, &probes);
        player.run(&story.name, &manifest_of(&story.name, &spec).to_string());
    }
    for story in stories {
        story.check_played(&player);
    }
    Ok(())
}

impl Story {
    fn check_played(&self, player: &Player) {
        let name = &self.name;
        let ended = |restarts: u64| {
            let pod = player.pod(name)?;
            let probed = statuses(&pod).find(|container| container["name"] == "probed").cloned()?;
            let phase = pod["status"]["phase"].as_str()?.to_owned();
            (probed["restartCount"].as_u64()? >= restarts).then_some((phase, probed["restartCount"].clone()))
        };
        let (restarts, hooks) = match self.expected {
            Expected::Restarted(count) => (count, 0),
            Expected::RestartedWithHook(count) => (count, count),
            Expected::EndedWithHook => (0, 1),
        };
        wait_for(&format!("{name} is restarted {restarts} times"), || ended(restarts));
        if matches!(self.expected, Expected::EndedWithHook) {
            let told = wait_for(&format!("{name} ends"), || {
                ended(0).filter(|(phase, _)| phase != "Running" && phase != "Pending")
            });
            assert_eq!(told, ("Succeeded".to_owned(), json!(0)), "{name}");
        }
        let run = player.hooks(name);
        assert!(run as u64 >= hooks, "{name}: {run} hooks have gone well, not {hooks}");
    }

    /// What the kubelet is told: the same, but for the probes.
    fn without_probes(&self, probes: &Path) -> Value {
        let mut spec = self.spec.clone();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
                    container.as_object_mut().unwrap().remove(field);
                }
            }
        }
        dress(&mut spec, probes);
        spec
    }

    fn check(&self, node: &Node) {
        let name = &self.name;
        let probed = || -> Option<Value> {
            let pod = node.kubelet.pod(name)?;
            statuses(&pod).find(|container| container["name"] == "probed").cloned()
        };
        match self.expected {
            Expected::Restarted(count) | Expected::RestartedWithHook(count) => {
                wait_for(&format!("{name} is restarted {count} times"), || {
                    (probed()?["restartCount"].as_u64()? >= count).then_some(())
                });
            }
            Expected::EndedWithHook => {
                let ended = wait_for(&format!("{name} ends"), || {
                    let phase = node.kubelet.pod(name)?["status"]["phase"].as_str()?.to_owned();
                    (phase == "Succeeded" || phase == "Failed").then_some(phase)
                });
                assert_eq!(ended, "Succeeded", "{name}");
                assert_eq!(probed().unwrap()["restartCount"], 0, "{name}");
            }
        }
        let shim = node.shim.as_ref().unwrap();
        let pod = format!("e2e/{name}-{NODE}");
        let calls = |method: &str| -> Vec<Value> { shim.list(&["calls", "--method", method, "--pod", &pod]) };
        let kills = calls("StopContainer").iter().filter(|call| call["kill"].is_object()).count() as u64;
        let restarts = probed().unwrap()["restartCount"].as_u64().unwrap();
        assert!(kills >= restarts.max(1), "{name}: {kills} kills, {restarts} restarts");
        if matches!(self.expected, Expected::Restarted(_)) {
            return;
        }
        let is_hook = |call: &&Value| call["exec"]["timeoutSeconds"] == 0 && call["exec"]["exitCode"] == 0;
        let hooks = calls("ExecSync").iter().filter(is_hook).count() as u64;
        assert!(hooks >= restarts.max(1), "{name}: {hooks} hooks, {restarts} restarts");
    }
}
