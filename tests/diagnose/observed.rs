//! Incidents of a kubelet whose runtime is probeshim.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use fixtures::containerd::{Suspended, Version};
use fixtures::kubelet::NODE;
use fixtures::node::Node;
use fixtures::runtime::Runtime as _;
use fixtures::wait::seldom_looks;
use serde_json::Value;

use super::answer::Diagnosis;
use super::incident::{Act, Incident, Until};

/// Number of incidents at the same time. More would disturb each other on two processors.
const AT_ONCE: usize = 5;

/// An OCI runtime that takes two seconds to start a command in each container whose id is the name
/// of a file in the directory `slow`.
const WRAPPER: &str = r#"#!/bin/sh
for last; do :; done
case " $* " in *" exec "*) if [ -e "$(dirname "$0")/slow/$last" ]; then sleep 2; fi ;; esac
exec runc "$@"
"#;

/// An intervention that lasts, and its end.
enum Intervention {
    /// The container is frozen: the file with its state, and the text that ends it.
    Frozen(PathBuf, &'static str),
    /// The runtime is suspended.
    Suspended(#[expect(dead_code, reason = "it continues when this is dropped")] Suspended),
    /// The intervention needs no end.
    Endless,
}

impl Drop for Intervention {
    fn drop(&mut self) {
        if let Self::Frozen(state, thawed) = self {
            let _ = fs::write(state, thawed);
        }
    }
}

/// Runs the incidents, and returns their diagnoses. Fails if a program is missing.
pub(crate) fn diagnose(version: Version, incidents: &[&Incident]) -> Result<Vec<Diagnosis>, String> {
    let node = Node::start_observed(version, WRAPPER)?;
    fs::create_dir(node.containerd.folder().join("slow")).unwrap();
    let (alone, others): (Vec<&Incident>, Vec<&Incident>) = incidents.iter().partition(|it| it.alone);
    let diagnoses = Mutex::new(Vec::new());
    let run = |incident: &Incident| {
        let diagnosis = run(&node, incident);
        eprintln!("{diagnosis}");
        diagnoses.lock().unwrap().push(diagnosis);
    };
    let queue = Mutex::new(VecDeque::from(others));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(incident) = queue.lock().unwrap().pop_front() else { break };
                    run(incident);
                }
            });
        }
    });
    alone.into_iter().for_each(run);
    Ok(diagnoses.into_inner().unwrap())
}

/// Runs the pod of an incident until its condition holds, and reads the answers.
fn run(node: &Node, incident: &Incident) -> Diagnosis {
    let shim = node.shim.as_ref().unwrap();
    let pod = format!("{}-{NODE}", incident.name);
    node.kubelet.run(&incident.manifest());
    let missed = reached(node, incident, &pod).err();
    let diagnosis = Diagnosis::read(incident, &pod, missed, &|arguments| shim.try_ask(arguments));
    node.kubelet.forget(&incident.name);
    diagnosis
}

/// Waits until the condition of an incident holds. The error names the missing part.
fn reached(node: &Node, incident: &Incident, pod: &str) -> Result<(), String> {
    let shim = node.shim.as_ref().unwrap();
    let intervention = match incident.act {
        Some(act) => Some(intervene(node, act, pod)?),
        None => None,
    };
    if let Some(lint) = &incident.until.finding {
        let is_found = || {
            let found = shim.list_if_answered(&["lint"])?;
            found.iter().any(|found| found["lint"] == lint.as_str()).then_some(())
        };
        wait(&format!("a finding of {lint}"), is_found)?;
    }
    let is_suspended = matches!(intervention, Some(Intervention::Suspended(_)));
    let guard = if is_suspended { None } else { intervention };
    let mut missing = String::new();
    let result = wait("", || {
        let calls = ["calls", "--method", "ExecSync", "--namespace", "e2e", "--pod", pod];
        let calls = shim.list_if_answered(&calls).unwrap_or_default();
        let restarts = node.kubelet.pod(&incident.name);
        let restarts = restarts.and_then(|it| it["status"]["containerStatuses"][0]["restartCount"].as_u64());
        let events = shim.list_if_answered(&["events"]).unwrap_or_default();
        let events: Vec<&Value> = events.iter().filter(|event| event["pod"] == pod).collect();
        missing = missing_parts(&incident.until, &calls, restarts.unwrap_or(0), &events);
        missing.is_empty().then_some(())
    });
    drop(guard);
    result.map_err(|_| missing)
}

/// Waits until `look` returns a value. The error is `what`.
fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    seldom_looks().find_map(|()| look()).ok_or_else(|| what.to_owned())
}

/// Returns the parts of a condition that do not hold yet; an empty text if it holds.
fn missing_parts(until: &Until, calls: &[Value], restarts: u64, events: &[&Value]) -> String {
    let assessed = |name: &str| calls.iter().filter(|call| call["exec"]["assessment"] == name).count();
    let has_code = |code: &String| calls.iter().any(|call| call["code"] == code.as_str());
    let has_event = |reason: &String| events.iter().any(|event| event["reason"] == reason.as_str());
    let parts = [
        (calls.len() < until.calls).then(|| format!("{} of {} calls", calls.len(), until.calls)),
        (assessed("failed") < until.failed)
            .then(|| format!("{} of {} failed calls", assessed("failed"), until.failed)),
        (assessed("slow") < until.slow)
            .then(|| format!("{} of {} slow calls", assessed("slow"), until.slow)),
        (restarts < until.restarts).then(|| format!("{restarts} of {} restarts", until.restarts)),
        until.code.as_ref().filter(|code| !has_code(code)).map(|code| format!("a call with {code}")),
        until.event.as_ref().filter(|reason| !has_event(reason)).map(|reason| format!("an event {reason}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Intervenes in the first container of a pod, once it runs.
fn intervene(node: &Node, act: Act, pod: &str) -> Result<Intervention, String> {
    let label = format!("io.kubernetes.pod.name={pod}");
    let id = wait("a running container", || {
        let ids = node.crictl.run(&["ps", "--quiet", "--label", &label]).stdout;
        ids.lines().next().map(str::to_owned)
    })?;
    let cgroup = |controller: &str| {
        let template = ["inspect", "-o", "go-template", "--template", "{{.info.pid}}"];
        let pid = node.crictl.ok(&[&template[..], &[&id]].concat());
        cgroup_of(pid.trim(), controller)
    };
    Ok(match act {
        Act::Freeze => {
            let cgroup = cgroup("freezer");
            let [first, second] = [("freezer.state", "FROZEN", "THAWED"), ("cgroup.freeze", "1", "0")];
            let (file, frozen, thawed) = if cgroup.join(first.0).exists() { first } else { second };
            fs::write(cgroup.join(file), frozen).unwrap();
            Intervention::Frozen(cgroup.join(file), thawed)
        }
        Act::LimitProcesses => {
            let pids = cgroup("pids");
            let count = wait("twenty processes", || {
                let count = fs::read_to_string(pids.join("pids.current")).unwrap();
                count.trim().parse::<u32>().ok().filter(|count| *count > 20)
            })?;
            fs::write(pids.join("pids.max"), count.to_string()).unwrap();
            Intervention::Endless
        }
        Act::SlowStarts => {
            fs::write(node.containerd.folder().join("slow").join(id), "").unwrap();
            Intervention::Endless
        }
        Act::SuspendRuntime => {
            let shim = node.shim.as_ref().unwrap();
            wait("probes before the runtime is suspended", || {
                let calls = shim.list_if_answered(&["calls", "--method", "ExecSync", "--pod", pod])?;
                (calls.len() >= 5).then_some(())
            })?;
            Intervention::Suspended(node.containerd.suspend())
        }
    })
}

/// Returns the directory of a process's cgroup of a controller: version 1 if the machine has it,
/// or else version 2.
fn cgroup_of(pid: &str, controller: &str) -> PathBuf {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = text.lines().find_map(|line| line.split_once(&format!(":{controller}:"))).map(|(_, path)| path);
    match path {
        Some(path) => Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/')),
        None => {
            let path = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
            Path::new("/sys/fs/cgroup").join(path)
        }
    }
}
