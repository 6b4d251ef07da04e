//! Tables 9.6 and 9.7: what Kubernetes' own end-to-end tests expect of probes. Periods are a fifth of those there, and the time that is watched
//! is shorter; the rules are the same.

pub(crate) mod dry_run;
pub(crate) mod played;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::probing::PROBES;
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

impl Row {
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
        // It ends when it is told to: what runs beside it ends after it.
        let main = json!({"name": "main", "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]});
        let mut spec = json!({"terminationGracePeriodSeconds": 500, "containers": [probed]});
        if is_sidecar {
            probed["restartPolicy"] = "Always".into();
            spec["initContainers"] = json!([probed]);
            spec["containers"] = json!([main]);
        }
        json!({"kind": "Pod", "metadata": {"name": format!("row-{place}"), "namespace": "parity"}, "spec": spec})
    }
}

/// Where nothing is expected it takes a while to be sure.
fn watch(begun: Instant) {
    wait_for("enough time has been watched", || (begun.elapsed() > WATCHED).then_some(()));
}
