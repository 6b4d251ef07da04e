//! A real kubelet as the judge: what it kills is compared with what probeshim beside it says it would, and so is what both hold to be
//! started and ready.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::kubelet::{NODE, manifest_of, statuses};
use super::machine::tool;
use super::node::Node;
use super::probing::{PROBES, dress};
use super::server::{looks, wait_for};

/// How much longer than a period of a probe both may differ after a change, beside the time that it takes to ask both.
const SLACK: Duration = Duration::from_secs(2);

/// A pod, and how it fares.
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: &'static str,
    spec: Value,
    /// How often it is killed at least while it is looked at; `None` for never.
    killed: Option<u64>,
    /// The longest period of its probes.
    period: Duration,
    /// It is taken away in the middle.
    is_removed: bool,
}

/// What the judge has found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Pods.
    pub(crate) pods: usize,
    /// Containers that the kubelet has killed for a probe and started again.
    pub(crate) kills: u64,
    /// Of its kills, those that were predicted, those that were not, and predicted kills that it did not make.
    pub(crate) agreement: [u64; 3],
    /// Containers that the kubelet has stopped, of the pods that are killed.
    pub(crate) stopped: usize,
    /// How often both were compared.
    pub(crate) looks: usize,
    /// Where they differed for too long.
    pub(crate) differences: Vec<String>,
    /// How often they differed for a moment, at a change.
    pub(crate) moments: usize,
    /// The longest time that it took to ask both.
    pub(crate) lag: Duration,
}

/// How a container stands: started, ready.
type Standing = (bool, bool);

/// How a container has stood on both sides.
#[derive(Default)]
struct Seen {
    /// Since when they differ.
    differ: Option<Instant>,
    is_told: bool,
}

/// The pods: each handler, each type of probe, thresholds, delays, timeouts, sidecars, grace periods, pods that end.
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(crate) fn cases() -> Vec<Case> {
    let shell = |script: &str| json!(["sh", "-c", script]);
    let serve = |healthy: &str| json!([PROBES, "serve", "-healthy", healthy]);
    let sleeping = || shell("trap 'exit 0' TERM; touch /tmp/ok; while true; do sleep 0.1; done");
    let dying =
        || shell("trap 'exit 0' TERM; touch /tmp/ok; sleep 6; rm /tmp/ok; while true; do sleep 0.1; done");
    let deaf = || shell("trap '' TERM; while true; do sleep 0.1; done");
    let cat = || json!({"exec": {"command": ["cat", "/tmp/ok"]}});
    let run = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}});
    let http = |port: u16| json!({"httpGet": {"path": "/healthz", "port": port}});
    let tcp = |port: u16| json!({"tcpSocket": {"port": port}});
    let grpc = |port: u16| json!({"grpc": {"port": port}});
    let with = |mut probe: Value, period: u32, failures: u32, more: Value| {
        probe["periodSeconds"] = period.into();
        probe["failureThreshold"] = failures.into();
        // Patient, for machines that are busy; what fails does so at once.
        probe["timeoutSeconds"] = 5.into();
        probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        probe
    };
    let none = || json!({});
    let live = |probe: Value| json!({"livenessProbe": probe});
    let ready = |probe: Value| json!({"readinessProbe": probe});
    let start = |probe: Value| json!({"startupProbe": probe});
    let both = |mut one: Value, other: Value| {
        one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        one
    };
    let all = |command: Value, probes: Value, of_pod: Value, killed: Option<u64>| {
        let mut main = json!({"name": "main", "command": command});
        main.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
        let mut spec = json!({"terminationGracePeriodSeconds": 2, "containers": [main]});
        spec.as_object_mut().unwrap().extend(of_pod.as_object().unwrap().clone());
        (spec, killed)
    };
    let beside = |(mut spec, killed): (Value, Option<u64>)| {
        let mut side = spec["containers"][0].take();
        side["name"] = "side".into();
        side["restartPolicy"] = "Always".into();
        spec["initContainers"] = json!([side]);
        spec["containers"] = json!([{"name": "main", "command": ["sleep", "100000"]}]);
        (spec, killed)
    };
    let case = |name, (spec, killed): (Value, Option<u64>)| {
        let period = |list: &Value| {
            let containers = list.as_array().cloned().unwrap_or_default();
            let fields = ["startupProbe", "readinessProbe", "livenessProbe"];
            let periods =
                containers.iter().flat_map(|it| fields.map(|field| it[field]["periodSeconds"].as_u64()));
            periods.flatten().max().unwrap_or(0)
        };
        let period = period(&spec["containers"]).max(period(&spec["initContainers"]));
        Case { name, spec, killed, period: Duration::from_secs(period), is_removed: false }
    };
    let removed = |case: Case| Case { is_removed: true, ..case };
    let within = |seconds: u32| json!({"terminationGracePeriodSeconds": seconds});
    let after = |seconds: u32| json!({"initialDelaySeconds": seconds});
    let hook = |probes: Value| {
        both(probes, json!({"lifecycle": {"preStop": {"exec": {"command": ["sleep", "2"]}}}}))
    };
    vec![
        case("exec-well", all(sleeping(), live(with(cat(), 1, 1, none())), none(), None)),
        case("exec-dies", all(dying(), live(with(cat(), 2, 2, none())), none(), Some(2))),
        case("http-dies", all(serve("6s"), live(with(http(8080), 1, 3, none())), none(), Some(2))),
        case("startup-fails", all(sleeping(), start(with(run("false"), 1, 5, none())), none(), Some(2))),
        case("side-dies", beside(all(dying(), live(with(cat(), 1, 2, none())), none(), Some(2)))),
        removed(case("removed", all(sleeping(), live(with(cat(), 1, 2, none())), within(10), None))),
        case("http-well", all(serve("0s"), live(with(http(8080), 1, 1, none())), none(), None)),
        case("tcp-well", all(serve("1s"), live(with(tcp(8080), 1, 1, none())), none(), None)),
        case("tcp-dead", all(serve("0s"), live(with(tcp(81), 2, 3, none())), none(), Some(2))),
        case("grpc-well", all(serve("0s"), live(with(grpc(5000), 2, 2, none())), none(), None)),
        case(
            "grpc-dead",
            all(serve("0s"), live(with(grpc(2333), 2, 2, json!({"timeoutSeconds": 1}))), none(), Some(2)),
        ),
        case(
            "exec-hangs",
            all(sleeping(), live(with(run("sleep 10"), 3, 2, json!({"timeoutSeconds": 1}))), none(), Some(1)),
        ),
        case("delayed", all(sleeping(), live(with(run("false"), 2, 2, after(7))), none(), Some(2))),
        case(
            "startup-then-dies",
            all(
                dying(),
                both(start(with(cat(), 1, 30, none())), live(with(cat(), 1, 3, none()))),
                none(),
                Some(2),
            ),
        ),
        case(
            "startup-slow",
            all(
                shell("trap 'exit 0' TERM; sleep 8; touch /tmp/up; while true; do sleep 0.1; done"),
                both(
                    start(with(run("test -f /tmp/up"), 1, 60, none())),
                    ready(with(run("test -f /tmp/up"), 5, 3, none())),
                ),
                none(),
                None,
            ),
        ),
        case(
            "ready-thrice",
            all(serve("0s"), ready(with(http(8080), 2, 1, json!({"successThreshold": 3}))), none(), None),
        ),
        case("never-ready", all(sleeping(), ready(with(tcp(81), 1, 1, none())), none(), None)),
        case(
            "flapping",
            all(
                shell("trap 'exit 0' TERM; while true; do touch /tmp/r; sleep 7; rm /tmp/r; sleep 7; done"),
                ready(with(run("test -f /tmp/r"), 1, 2, none())),
                none(),
                None,
            ),
        ),
        case(
            "side-starts",
            beside(all(
                shell("trap 'exit 0' TERM; sleep 5; touch /tmp/up; while true; do sleep 0.1; done"),
                both(
                    start(with(run("test -f /tmp/up"), 1, 60, none())),
                    ready(with(run("test -f /tmp/up"), 2, 3, none())),
                ),
                none(),
                None,
            )),
        ),
        case(
            "grace-of-probe",
            all(
                deaf(),
                live(with(run("false"), 3, 2, json!({"terminationGracePeriodSeconds": 3}))),
                within(100),
                Some(1),
            ),
        ),
        case("grace-of-pod", all(deaf(), live(with(run("false"), 3, 2, none())), within(4), Some(1))),
        case("hook", all(sleeping(), hook(live(with(run("false"), 3, 2, none()))), within(8), Some(1))),
        case(
            "on-failure",
            all(dying(), live(with(cat(), 1, 2, none())), json!({"restartPolicy": "OnFailure"}), Some(1)),
        ),
        case(
            "never",
            all(dying(), live(with(cat(), 1, 2, none())), json!({"restartPolicy": "Never"}), Some(0)),
        ),
        case("crashes", all(shell("sleep 9; exit 3"), live(with(run("true"), 1, 2, none())), none(), None)),
        removed(case(
            "removed-unready",
            all(
                shell("touch /tmp/r; trap 'rm /tmp/r; sleep 4; exit 0' TERM; while true; do sleep 0.1; done"),
                both(
                    ready(with(run("test -f /tmp/r"), 1, 1, none())),
                    live(with(run("test -f /tmp/r"), 1, 1, none())),
                ),
                within(10),
                None,
            ),
        )),
    ]
}

/// Lives with these pods for at least so long, until each has been compared and killed as often as it should be, and compares.
pub(crate) fn judge(cases: &[Case], lasts: Duration) -> Result<Verdict, String> {
    let probes = tool("probes-1.36")?;
    let node = Node::start_probing("dry-run")?;
    for case in cases {
        node.kubelet.run(&case.manifest(&probes));
    }
    let shim = node.shim.as_ref().unwrap();
    let status = || shim.json(&["status"]);
    let mut verdict = Verdict { pods: cases.len(), ..Verdict::default() };
    let (mut seen, mut removed) = (BTreeMap::<(String, String), Seen>::new(), false);
    let restarts = |case: &Case| node.kubelet.pod(case.name).map_or(0, |pod| restarts(&pod));
    let begun = Instant::now();
    wait_for("every pod is compared, and killed as often as it should be", || {
        for () in looks().take(5) {
            let asked = Instant::now();
            let (ours, theirs) = (status(), node.kubelet.pods());
            verdict.lag = verdict.lag.max(asked.elapsed());
            verdict.compare(cases, &ours, &theirs, &mut seen);
        }
        let is_compared = |case: &Case| {
            let name = format!("{}-{NODE}", case.name);
            seen.keys().any(|(pod, _)| *pod == name)
        };
        let are_compared = cases.iter().all(is_compared);
        if !removed && are_compared && begun.elapsed() > lasts / 2 {
            removed = true;
            for case in cases.iter().filter(|case| case.is_removed) {
                node.kubelet.forget(case.name);
            }
        }
        let are_killed = cases.iter().all(|case| restarts(case) >= case.killed.unwrap_or(0));
        (removed && are_killed && begun.elapsed() >= lasts).then_some(())
    });
    verdict.kills = cases.iter().filter(|case| case.killed.is_some()).map(restarts).sum();
    let agreement = status()["agreement"].clone();
    verdict.agreement =
        ["predicted", "unpredicted", "notObserved"].map(|field| agreement[field].as_u64().unwrap());
    let killed: Vec<String> =
        cases.iter().filter(|it| it.killed.is_some()).map(|it| format!("{}-{NODE}", it.name)).collect();
    // A call is known once it has ended, and what was foreseen may be under way.
    verdict.stopped = wait_for("those that were being stopped have been", || {
        let stops = shim.list(&["calls", "--method", "StopContainer"]);
        let of_killed =
            stops.iter().filter(|stop| killed.iter().any(|pod| stop["pod"]["name"] == pod.as_str()));
        let ids: BTreeSet<&str> = of_killed.filter_map(|stop| stop["container"]["id"].as_str()).collect();
        (ids.len() as u64 >= verdict.agreement[0]).then_some(ids.len())
    });
    let events = shim.list(&["events"]);
    let about = |event: &&Value| {
        ["KillUnpredicted", "KillNotObserved"].iter().any(|reason| event["reason"] == *reason)
    };
    verdict.differences.extend(events.iter().filter(about).map(ToString::to_string));
    Ok(verdict)
}

/// How often the containers of a pod have been restarted.
fn restarts(pod: &Value) -> u64 {
    statuses(pod).filter_map(|container| container["restartCount"].as_u64()).sum()
}

impl Case {
    fn manifest(&self, probes: &Path) -> Value {
        let mut spec = self.spec.clone();
        dress(&mut spec, probes);
        manifest_of(self.name, &spec)
    }
}

impl Verdict {
    /// Compares what both say of each container at a moment.
    fn compare(
        &mut self,
        cases: &[Case],
        ours: &Value,
        theirs: &[Value],
        seen: &mut BTreeMap<(String, String), Seen>,
    ) {
        let now = Instant::now();
        for case in cases {
            let name = format!("{}-{NODE}", case.name);
            let Some(pod) = theirs.iter().find(|pod| pod["metadata"]["name"] == name.as_str()) else {
                continue;
            };
            for container in statuses(pod) {
                let container_name = container["name"].as_str().unwrap().to_owned();
                let theirs = (container["started"] == true, container["ready"] == true);
                let id = container["containerID"].as_str().unwrap_or_default().rsplit('/').next().unwrap();
                let Some(ours) = ours_of(ours, &name, id) else { continue };
                let both = seen.entry((name.clone(), container_name)).or_default();
                self.looks += 1;
                if ours == theirs {
                    *both = Seen::default();
                    continue;
                }
                self.moments += 1;
                let since = now - *both.differ.get_or_insert(now);
                if since > case.period + SLACK + self.lag && !std::mem::replace(&mut both.is_told, true) {
                    let container = &container["name"];
                    self.differences.push(format!(
                        "{name} {container} (started, ready): ours {ours:?}, the kubelet's {theirs:?} for {since:?}"
                    ));
                }
            }
        }
    }
}

/// How we see a container that both mean.
fn ours_of(status: &Value, pod: &str, id: &str) -> Option<Standing> {
    let pods = status["pods"].as_array()?;
    let mut of_pod = pods.iter().filter(|known| known["name"] == pod);
    let containers = of_pod.find_map(|known| {
        let containers = known["containers"].as_array()?;
        containers.iter().find(|container| container["id"] == id)
    });
    let container = containers.filter(|container| container["state"] == "running")?;
    Some((container["started"].as_bool()?, container["ready"].as_bool()?))
}
