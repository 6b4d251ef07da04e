//! Tables 9.6 and 9.7: what Kubernetes' own end-to-end tests expect of probes, up to the point of the kill. Periods are a fifth of those
//! there, and the time that is watched is shorter; the rules are the same.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::containerd::{Containerd, Version};
use super::kubelet::statuses;
use super::life::Runtime as _;
use super::machine::tool;
use super::play::Player;
use super::probing::{PROBES, Pod, Probing, dress};
use super::server::wait_for;

/// For how long nothing may happen where nothing is expected to.
const WATCHED: Duration = Duration::from_secs(12);

/// A row.
pub(crate) struct Row {
    /// Its name in the table, in short.
    pub(crate) name: &'static str,
    /// What the container runs.
    command: Vec<String>,
    /// Its probes.
    probes: Value,
    expected: Expected,
}

/// What is expected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It would be killed, as often as this at least.
    Killed(u64),
    /// It would not be, and is ready.
    Well,
    /// It would not be, is ready, and a warning tells of this.
    Warned(&'static str),
    /// It would not be, and is not ready.
    NotReady,
    /// It would not be, and has not started.
    NotStarted,
    /// It would be killed with this grace period.
    KilledWithin(&'static str),
    /// It is ready, and has not been before so many seconds.
    ReadyAfter(u64),
    /// It is ready as soon as it has started, long before its period is over.
    ReadyWithStartup,
    /// It is not ready any more while it is being stopped, and no liveness probe fails meanwhile.
    NotReadyAtTheEnd,
}

/// All rows; in table 9.7 the same of a container that runs beside the main one.
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(crate) fn rows() -> Vec<Row> {
    use Expected::*;
    let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
    let serve = |healthy: &str| [PROBES, "serve", "-healthy", healthy].map(str::to_owned).to_vec();
    let file = || shell("touch /tmp/health; sleep 2; rm /tmp/health; sleep 600");
    let sleeping = || shell("touch /tmp/health; sleep 600");
    let ending = || {
        shell(
            "touch /tmp/ready /tmp/alive; trap 'rm -f /tmp/ready /tmp/alive; sleep 6; exit 0' TERM; while true; do sleep 0.2; done",
        )
    };
    let cat = || json!({"exec": {"command": ["cat", "/tmp/health"]}});
    let run = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}});
    let http = |path: &str, port: u16| json!({"httpGet": {"path": path, "port": port}});
    let with = |mut probe: Value, more: Value| {
        if probe.get("periodSeconds").is_none() {
            probe["periodSeconds"] = 2.into();
        }
        probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        probe
    };
    let one = |name: &str, probe: Value| json!({name: probe});
    let liveness = |probe: Value, more: Value| one("livenessProbe", with(probe, more));
    let readiness = |probe: Value, more: Value| one("readinessProbe", with(probe, more));
    let both = |first: Value, second: Value| {
        let mut probes = first;
        probes.as_object_mut().unwrap().extend(second.as_object().unwrap().clone());
        probes
    };
    let startup = |probe: Value, more: Value| one("startupProbe", with(probe, more));
    let forever = || serve("0s");
    let row = |name, command, probes, expected| Row { name, command, probes, expected };
    let d = |delay: u32, failures: u32| json!({"initialDelaySeconds": delay, "failureThreshold": failures});
    vec![
        row(
            "readiness not ready before initial delay",
            forever(),
            readiness(http("/", 8080), d(5, 3)),
            ReadyAfter(4),
        ),
        row("failing readiness never ready", forever(), readiness(http("/", 81), d(0, 3)), NotReady),
        row("restarted, exec cat", file(), liveness(cat(), d(3, 1)), Killed(1)),
        row("not restarted, exec cat", sleeping(), liveness(cat(), d(3, 1)), Well),
        row("restarted, /healthz http", serve("2s"), liveness(http("/healthz", 8080), d(3, 1)), Killed(1)),
        row(
            "not restarted, tcp:8080",
            serve("1s"),
            liveness(json!({"tcpSocket": {"port": 8080}}), d(3, 1)),
            Well,
        ),
        row(
            "monotonically increasing restart count",
            serve("1s"),
            liveness(http("/healthz", 8080), d(1, 1)),
            Killed(5),
        ),
        row(
            "not restarted, http /",
            forever(),
            liveness(http("/", 8080), json!({"timeoutSeconds": 5, "failureThreshold": 5})),
            Well,
        ),
        row("restarted, exec timeout", sleeping(), liveness(run("sleep 10"), d(0, 1)), Killed(1)),
        row("not ready, exec readiness timeout", sleeping(), readiness(run("sleep 10"), d(0, 3)), NotReady),
        row(
            "restarted, failing exec longer than timeout",
            sleeping(),
            liveness(run("sleep 10 & exit 1"), d(0, 1)),
            Killed(1),
        ),
        row(
            "restarted, local redirect",
            serve("2s"),
            liveness(http("/redirect?loc=/healthz", 8080), d(3, 1)),
            Killed(1),
        ),
        row(
            "not restarted, non-local redirect",
            forever(),
            liveness(http("/redirect?loc=http://0.0.0.0/", 8080), d(3, 1)),
            Warned(
                "Liveness probe warning: Probe terminated redirects, Response body: <a href=\"http://0.0.0.0/\">Found</a>.",
            ),
        ),
        row(
            "restarted, startup fails",
            sleeping(),
            both(startup(run("false"), d(3, 3)), liveness(run("true"), d(0, 1))),
            Killed(1),
        ),
        row(
            "not restarted because startup delays liveness",
            sleeping(),
            both(startup(run("false"), d(0, 60)), liveness(run("false"), d(0, 1))),
            NotStarted,
        ),
        row(
            "restarted by liveness after startup enables it",
            shell("sleep 2; touch /tmp/up; sleep 600"),
            both(startup(run("test -f /tmp/up"), d(0, 60)), liveness(run("false"), d(0, 1))),
            Killed(1),
        ),
        row(
            "ready immediately after startup succeeds",
            shell("sleep 6; touch /tmp/up; sleep 600"),
            both(
                startup(run("test -f /tmp/up"), json!({"failureThreshold": 60, "periodSeconds": 1})),
                readiness(run("test -f /tmp/up"), json!({"periodSeconds": 20})),
            ),
            ReadyWithStartup,
        ),
        row(
            "liveness-level grace overrides pod grace",
            sleeping(),
            liveness(
                http("/healthz", 8080),
                json!({"initialDelaySeconds": 2, "failureThreshold": 1, "terminationGracePeriodSeconds": 5}),
            ),
            KilledWithin("grace period of 5s"),
        ),
        row(
            "startup-level grace overrides",
            sleeping(),
            startup(
                http("/healthz", 8080),
                json!({"initialDelaySeconds": 2, "failureThreshold": 1, "terminationGracePeriodSeconds": 5}),
            ),
            KilledWithin("grace period of 5s"),
        ),
        row(
            "not restarted, gRPC",
            forever(),
            liveness(json!({"grpc": {"port": 5000}}), json!({"timeoutSeconds": 5})),
            Well,
        ),
        row(
            "restarted, gRPC",
            forever(),
            liveness(
                json!({"grpc": {"port": 2333}}),
                json!({"initialDelaySeconds": 3, "failureThreshold": 1}),
            ),
            Killed(1),
        ),
        row(
            "readiness false while terminating",
            ending(),
            readiness(run("test -f /tmp/ready"), json!({"periodSeconds": 1, "failureThreshold": 1})),
            NotReadyAtTheEnd,
        ),
        row(
            "readiness false and liveness disabled while terminating",
            ending(),
            both(
                readiness(run("test -f /tmp/ready"), json!({"periodSeconds": 1, "failureThreshold": 1})),
                liveness(run("test -f /tmp/alive"), json!({"periodSeconds": 1, "failureThreshold": 1})),
            ),
            NotReadyAtTheEnd,
        ),
    ]
}

/// Makes the pods of these rows, and looks whether each is as it is expected to be. In the twins of table 9.7 the container that is probed
/// runs beside the main one.
pub(crate) fn hold(rows: &[Row], is_sidecar: bool) -> Result<(), String> {
    let manifests: Vec<Value> =
        rows.iter().enumerate().map(|(place, row)| row.manifest(place, is_sidecar)).collect();
    let probing = Probing::start(&manifests, "dry-run")?;
    // A prober that is younger than a period lets its workers begin at any time within it.
    let period = rows.iter().flat_map(Row::periods).max().unwrap_or(0);
    let started = Instant::now();
    wait_for("the prober is old enough", || (started.elapsed() > Duration::from_secs(period)).then_some(()));
    // The first row is made last and looked at first, since it asks when something happened.
    let mut pods: Vec<(Pod, SystemTime)> = manifests
        .iter()
        .rev()
        .map(|manifest| {
            let pod = probing.run(manifest);
            (pod, SystemTime::now())
        })
        .collect();
    pods.reverse();
    let begun = Instant::now();
    for (row, (pod, since)) in rows.iter().zip(&pods) {
        row.check(&probing, pod, *since);
    }
    // Where nothing is expected it takes a while to be sure.
    wait_for("enough time has been watched", || (begun.elapsed() > WATCHED).then_some(()));
    for (row, (pod, _)) in rows.iter().zip(&pods) {
        row.check_again(&probing, pod, is_sidecar);
    }
    Ok(())
}

/// Has the pods of these rows played, and looks whether each is as it is expected to be.
pub(crate) fn play(rows: &[Row], is_sidecar: bool) -> Result<(), String> {
    let probes = tool("probes-1.36")?;
    let containerd = Containerd::start(Version::V2_2)?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    for (place, row) in rows.iter().enumerate() {
        let mut manifest = row.manifest(place, is_sidecar);
        if !row.has_own_grace_period() && row.expected != Expected::NotReadyAtTheEnd {
            // Shells do not heed SIGTERM.
            manifest["spec"]["terminationGracePeriodSeconds"] = 2.into();
        }
        dress(&mut manifest["spec"], &probes);
        player.run(&format!("row-{place}"), &manifest.to_string());
    }
    let begun = Instant::now();
    for (place, row) in rows.iter().enumerate() {
        row.check_played(&player, &format!("row-{place}"), is_sidecar);
    }
    // Where nothing is expected it takes a while to be sure.
    wait_for("enough time has been watched", || (begun.elapsed() > WATCHED).then_some(()));
    for (place, row) in rows.iter().enumerate() {
        row.check_played_again(&player, &format!("row-{place}"), is_sidecar);
    }
    Ok(())
}

/// The container that is probed, as it is told of.
fn probed(player: &Player, pod: &str) -> Value {
    let pod = player.pod(pod).unwrap_or_default();
    statuses(&pod).find(|container| container["name"] == "probed").cloned().unwrap_or_default()
}

impl Row {
    /// Waits for what is expected to happen.
    fn check_played(&self, player: &Player, name: &str, is_sidecar: bool) {
        let (what, probed) = (self.name, || probed(player, name));
        match self.expected {
            Expected::Killed(_) | Expected::KilledWithin(_) => {
                // Each further one takes twice as long.
                let restarts = self.kills().unwrap_or(1).min(3);
                wait_for(what, || (probed()["restartCount"].as_u64()? >= restarts).then_some(()));
                let message =
                    if is_sidecar { "Init container probed failed" } else { "Container probed failed" };
                assert!(player.count(name, "Killing", message) >= restarts, "{what}");
            }
            Expected::Warned(text) => {
                wait_for(what, || (player.count(name, "ProbeWarning", text) > 0).then_some(()));
            }
            Expected::NotReady | Expected::NotStarted => {
                wait_for(what, || (player.count(name, "Unhealthy", "") >= 2).then_some(()));
            }
            Expected::ReadyAfter(seconds) => {
                wait_for(what, || (probed()["ready"] == true).then_some(()));
                let pod = player.pod(name).unwrap();
                let time = |time: &Value| time.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
                let started = time(&probed()["state"]["running"]["startedAt"]);
                let conditions = pod["status"]["conditions"].as_array().unwrap();
                let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
                let after = time(&ready["lastTransitionTime"]) - started;
                assert!(after >= i64::try_from(seconds).unwrap(), "{what}: ready after {after}s");
            }
            Expected::ReadyWithStartup => {
                wait_for(what, || (probed()["started"] == true).then_some(()));
                let started = Instant::now();
                wait_for(what, || (probed()["ready"] == true).then_some(()));
                assert!(started.elapsed() < Duration::from_secs(10), "{what}");
            }
            Expected::Well | Expected::NotReadyAtTheEnd => {
                wait_for(what, || (probed()["ready"] == true).then_some(()));
            }
        }
    }

    /// Looks whether what must not happen has not.
    fn check_played_again(&self, player: &Player, name: &str, is_sidecar: bool) {
        let what = self.name;
        let now = probed(player, name);
        let stands = (now["restartCount"] == 0, now["ready"] == true, now["started"] == true);
        match self.expected {
            Expected::Killed(_) | Expected::KilledWithin(_) => {}
            Expected::Well | Expected::Warned(_) | Expected::ReadyAfter(_) | Expected::ReadyWithStartup => {
                assert_eq!(stands, (true, true, true), "{what}: {now:#}");
            }
            Expected::NotReady => assert_eq!(stands, (true, false, true), "{what}: {now:#}"),
            Expected::NotStarted => assert_eq!(stands, (true, false, false), "{what}: {now:#}"),
            Expected::NotReadyAtTheEnd => {
                player.forget(name);
                wait_for(what, || (probed(player, name)["ready"] == false).then_some(()));
                wait_for(what, || player.pod(name).is_none().then_some(()));
                // Those that run beside the main one are probed to the very end.
                let failed = player.count(name, "Unhealthy", "Liveness probe failed");
                assert!(is_sidecar || failed == 0, "{what}: {failed}");
            }
        }
    }

    /// The periods of its probes, in seconds.
    fn periods(&self) -> impl Iterator<Item = u64> {
        let probes = self.probes.as_object().unwrap().values();
        probes.filter_map(|probe| probe["periodSeconds"].as_u64())
    }

    /// How often its container is killed at least, if it is.
    pub(crate) fn kills(&self) -> Option<u64> {
        match self.expected {
            Expected::Killed(count) => Some(count),
            Expected::KilledWithin(_) => Some(1),
            _ => None,
        }
    }

    /// Whether its probe has a grace period of its own.
    pub(crate) fn has_own_grace_period(&self) -> bool {
        matches!(self.expected, Expected::KilledWithin(_))
    }

    pub(crate) fn manifest(&self, place: usize, is_sidecar: bool) -> Value {
        let mut probed = json!({"name": "probed", "command": self.command});
        probed.as_object_mut().unwrap().extend(self.probes.as_object().unwrap().clone());
        let main = json!({"name": "main", "command": ["sleep", "600"]});
        let mut spec = json!({"terminationGracePeriodSeconds": 500, "containers": [probed]});
        if is_sidecar {
            probed["restartPolicy"] = "Always".into();
            spec["initContainers"] = json!([probed]);
            spec["containers"] = json!([main]);
        }
        json!({"kind": "Pod", "metadata": {"name": format!("row-{place}"), "namespace": "parity"}, "spec": spec})
    }

    /// Waits for what is expected to happen.
    fn check(&self, probing: &Probing, pod: &Pod, since: SystemTime) {
        let (name, what) = (&pod.name, self.name);
        let container = || {
            let status = probing.status(name);
            let containers = status["containers"].as_array().cloned().unwrap_or_default();
            containers.into_iter().find(|container| container["name"] == "probed").unwrap_or_default()
        };
        match self.expected {
            Expected::Killed(count) => probing.wait_for_event(name, "WouldKill", "", count),
            Expected::KilledWithin(grace) => probing.wait_for_event(name, "WouldKill", grace, 1),
            Expected::Warned(text) => probing.wait_for_event(name, "ProbeWarning", text, 1),
            Expected::ReadyAfter(seconds) => {
                let after = wait_for(what, || probing.ready_after(name, "probed", since));
                assert!(after >= Duration::from_secs(seconds), "{what}: ready after {after:?}");
            }
            Expected::ReadyWithStartup => {
                wait_for(what, || (container()["started"] == true).then_some(()));
                let started = Instant::now();
                wait_for(what, || (container()["ready"] == true).then_some(()));
                let (after, events) = (started.elapsed(), probing.events(name));
                assert!(after < Duration::from_secs(10), "{what}: after {after:?} {events:#?}");
            }
            Expected::Well => {
                wait_for(what, || (container()["ready"] == true).then_some(()));
            }
            Expected::NotReady | Expected::NotStarted => {
                probing.wait_for_event(name, "Unhealthy", "", 2);
            }
            Expected::NotReadyAtTheEnd => {
                wait_for(what, || (container()["ready"] == true).then_some(()));
                let id = pod.containers.first().unwrap();
                let stopping = probing.crictl.spawn(&["stop", "--timeout", "20", id]);
                wait_for(what, || {
                    let now = container();
                    (now["ready"] == false && now["state"] == "running").then_some(())
                });
                stopping.output();
            }
        }
    }

    /// Looks whether what must not happen has not.
    fn check_again(&self, probing: &Probing, pod: &Pod, is_sidecar: bool) {
        let (name, what) = (&pod.name, self.name);
        let status = probing.status(name);
        let containers = status["containers"].as_array().unwrap();
        let probed = containers.iter().find(|container| container["name"] == "probed").unwrap();
        let kills = probing.count(name, "WouldKill", "");
        let shown = || format!("{what}: {status:#} {:#?}", probing.events(name));
        match self.expected {
            Expected::Killed(_) | Expected::KilledWithin(_) => {
                let message =
                    if is_sidecar { "Init container probed failed" } else { "Container probed failed" };
                // One look: while another is taken one more may be told.
                let events = probing.events(name);
                let mut told = events.iter().filter(|event| event["reason"] == "WouldKill");
                let says_so = |event: &Value| event["message"].as_str().unwrap().starts_with(message);
                assert!(kills > 0 && told.all(says_so), "{}", shown());
            }
            Expected::Well | Expected::Warned(_) | Expected::ReadyAfter(_) | Expected::ReadyWithStartup => {
                assert_eq!(kills, 0, "{}", shown());
                assert_eq!((&probed["ready"], &status["ready"]), (&json!(true), &json!(true)), "{}", shown());
            }
            Expected::NotReady => {
                assert_eq!(kills, 0, "{}", shown());
                assert_eq!(
                    (&probed["ready"], &status["ready"]),
                    (&json!(false), &json!(false)),
                    "{}",
                    shown()
                );
            }
            Expected::NotStarted => {
                assert_eq!(kills, 0, "{}", shown());
                assert_eq!(
                    (&probed["started"], &status["ready"]),
                    (&json!(false), &json!(false)),
                    "{}",
                    shown()
                );
            }
            Expected::NotReadyAtTheEnd => {
                assert_eq!(kills, 0, "{}", shown());
                // Those that run beside the main one are probed to the very end.
                let failed = probing.count(name, "Unhealthy", "Liveness probe failed");
                assert!(is_sidecar || failed == 0, "{}", shown());
            }
        }
    }
}
