//! Incidents of a kubelet whose runtime is probeshim.

use std::fs;
use std::path::{Path, PathBuf};

use fixtures::containerd::{Suspended, Version};
use fixtures::kubelet::NODE;
use fixtures::node::Node;
use fixtures::runtime::Runtime as _;
use rustix::process::{Pid, Signal, kill_process};

use super::answer::{Ask, Diagnosis};
use super::condition::{found, list, reached, wait};
use super::incident::{Act, Incident};
use super::{shown, side_by_side};

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
    let (alone, others): (Vec<&Incident>, Vec<&Incident>) = incidents.iter().partition(|it| it.alone);
    let mut diagnoses = Vec::new();
    if !others.is_empty() {
        let node = start(version)?;
        diagnoses = side_by_side(&others, |incident| run(&node, incident));
        let ask = |arguments: &[&str]| node.shim.as_ref().unwrap().try_ask(arguments);
        diagnoses.push(shown(Diagnosis::read_node("the node of all", &ask)));
    }
    // Findings about a node are about all incidents on it.
    for incident in alone {
        diagnoses.push(shown(run(&start(version)?, incident)));
    }
    Ok(diagnoses)
}

fn start(version: Version) -> Result<Node, String> {
    let node = Node::start_observed(version, WRAPPER)?;
    fs::create_dir(node.containerd.folder().join("slow")).unwrap();
    Ok(node)
}

/// Runs the pod of an incident until its condition holds, and reads the answers.
fn run(node: &Node, incident: &Incident) -> Diagnosis {
    let (shim, pod) = (node.shim.as_ref().unwrap(), format!("{}-{NODE}", incident.pod_name));
    let ask = |arguments: &[&str]| shim.try_ask(arguments);
    let missed = start_pod(node, incident, &pod, &ask);
    let missed = missed.and_then(|after| reach(node, incident, &pod, after, &ask)).err();
    let diagnosis = Diagnosis::read(incident, &pod, missed, &ask);
    node.kubelet.forget(&incident.pod_name);
    diagnosis
}

/// Starts the pod of an incident. If it has an earlier version, that runs first, until its
/// condition holds. Returns the id of the last call of the earlier version, or zero. The error
/// names the missing part.
fn start_pod(node: &Node, incident: &Incident, pod: &str, ask: Ask<'_>) -> Result<u64, String> {
    let (kubelet, unused) = (&node.kubelet, node.containerd.unused_address());
    let manifest = incident.manifest(unused);
    let Some((until, earlier)) = incident.earlier_manifest(unused) else {
        kubelet.run(&manifest);
        return Ok(0);
    };
    kubelet.run(&earlier);
    reached(until, pod, 0, ask, || kubelet.pod(&incident.pod_name))?;
    let uid = || Some(kubelet.pod(&incident.pod_name)?["metadata"]["uid"].clone());
    let earlier = uid();
    kubelet.run(&manifest);
    wait("the pod with the new manifest", || uid().filter(|uid| Some(uid) != earlier.as_ref()))?;
    let calls = list(ask, &["calls", "--method", "ExecSync", "--pod", pod]);
    Ok(calls.iter().filter_map(|call| call["id"].as_u64()).max().unwrap_or(0))
}

/// Waits until the condition of an incident holds, during its intervention. Calls up to the id
/// `after` do not count. The error names the missing part.
fn reach(node: &Node, incident: &Incident, pod: &str, after: u64, ask: Ask<'_>) -> Result<(), String> {
    let mut intervention = match incident.act {
        Some(act) => Some(intervene(node, act, pod, ask)?),
        None => None,
    };
    if let Some(lint) = &incident.until.finding {
        found(lint, ask)?;
    }
    if incident.act == Some(Act::SuspendRuntime) {
        // Calls end only after the runtime has continued.
        intervention = None;
    }
    let result = reached(&incident.until, pod, after, ask, || node.kubelet.pod(&incident.pod_name));
    drop(intervention);
    result
}

/// Intervenes in the first container of a pod, once it runs.
fn intervene(node: &Node, act: Act, pod: &str, ask: Ask<'_>) -> Result<Intervention, String> {
    let label = format!("io.kubernetes.pod.name={pod}");
    let running = || {
        let ids = node.crictl.run(&["ps", "--quiet", "--label", &label]).stdout;
        ids.lines().next().map(str::to_owned)
    };
    let id = wait("a running container", running)?;
    let pid_of = |id: &str| {
        let template = ["inspect", "-o", "go-template", "--template", "{{.info.pid}}"];
        node.crictl.ok(&[&template[..], &[id]].concat()).trim().to_owned()
    };
    let cgroup = |controller: &str| cgroup_of(&pid_of(&id), controller);
    let kill = |id: &str| {
        let pid = pid_of(id).parse::<i32>().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    };
    Ok(match act {
        Act::Freeze => {
            let cgroup = cgroup("freezer");
            let [first, second] = [("freezer.state", "FROZEN", "THAWED"), ("cgroup.freeze", "1", "0")];
            let (file, frozen, thawed) = if cgroup.join(first.0).exists() { first } else { second };
            fs::write(cgroup.join(file), frozen).unwrap();
            Intervention::Frozen(cgroup.join(file), thawed)
        }
        Act::Kill => {
            kill(&id);
            let next = wait("a restarted container", || running().filter(|next| *next != id))?;
            kill(&next);
            Intervention::Endless
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
            wait("probes before the runtime is suspended", || {
                let calls = list(ask, &["calls", "--method", "ExecSync", "--pod", pod]);
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
    let path =
        text.lines().find_map(|line| line.split_once(&format!(":{controller}:"))).map(|(_, path)| path);
    let mount = Path::new("/sys/fs/cgroup");
    if let Some(path) = path {
        return mount.join(controller).join(path.trim_start_matches('/'));
    }
    mount.join(text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap())
}
