//! Compares ExecSync without the runtime with containerd, `runc exec` and `crun exec`.

use std::fs;
use std::path::Path;
use std::process::Command;

use fixtures::containerd::Containerd;
use fixtures::crictl::Crictl;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Number of rounds. The ways to execute the command take turns.
const ROUNDS: usize = 10;

/// Number of commands of `runc exec` and `crun exec` in each round.
const COMMANDS: u32 = 20;

/// Id of crun's container.
const CRUN_ID: &str = "bench";

/// Executes `$1` times what follows.
const REPEAT: &str =
    r#"count=$1; shift; while [ "$count" -gt 0 ]; do "$@" || exit 1; count=$((count - 1)); done"#;

/// Executes `true` in a container in each way, and prints the ratios of their times.
pub(crate) fn exec() {
    let containerd = Containerd::start_unified().unwrap();
    let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()).unwrap();
    let pod = Pod::new(&crictl, containerd.folder(), "exec");
    containerd.remove_wrappers();
    let shim = Probeshim::start_with(containerd.folder(), &containerd.socket(), &["--exec", "direct-all"]);
    let is_verified = || {
        shim.ask_with(&bench(&pod, "1"), &["--", "true"]);
        let status = shim.json(&["status"]);
        (status["execPolicies"]["directContainers"][0]["state"] == "verified").then_some(())
    };
    wait_for("the container is verified", is_verified);

    let state = containerd.folder().join("state");
    let runc = ["runc", "--root", "/run/containerd/runc/k8s.io", "exec", &pod.container, "true"];
    let crun_root = containerd.folder().join("crun-state");
    let crun = ["crun", "--root", crun_root.to_str().unwrap()];
    let task = state.join("io.containerd.runtime.v2.task/k8s.io").join(&pod.container);
    let bundle = crun_bundle(&containerd, &task);
    let run = ["run", "--detach", "--bundle", bundle.to_str().unwrap(), CRUN_ID];
    let has_crun = repeat(&containerd, 1, &[&crun[..], &run].concat());
    let crun_exec = [&crun[..], &["exec", CRUN_ID, "true"]].concat();

    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        let report: Value =
            serde_json::from_str(&shim.ask_with(&bench(&pod, "20"), &["--", "true"])).unwrap();
        for way in report["ways"].as_array().unwrap() {
            let samples = if way["way"] == "relay" { &mut samples.direct } else { &mut samples.containerd };
            let total = way["phases"].as_array().unwrap().iter().find(|phase| phase["phase"] == "total");
            samples.push((total.unwrap()["p50Ms"].as_f64().unwrap(), way["cpuMsPerCall"].as_f64().unwrap()));
        }
        samples.runc.push(time(&containerd, &runc));
        if has_crun {
            samples.crun.push(time(&containerd, &crun_exec));
        }
    }
    if has_crun {
        repeat(&containerd, 1, &[&crun[..], &["delete", "--force", CRUN_ID]].concat());
    }
    samples.print();
    pod.remove(&crictl);
}

/// Times of a command in milliseconds, one for each round.
#[derive(Default)]
struct Samples {
    /// ExecSync without the runtime, with the processor time of the node.
    direct: Vec<(f64, f64)>,
    /// ExecSync by containerd, with the processor time of the node.
    containerd: Vec<(f64, f64)>,
    runc: Vec<f64>,
    crun: Vec<f64>,
}

impl Samples {
    fn print(self) {
        let split = |samples: Vec<(f64, f64)>| -> (f64, f64) {
            let (times, cpu): (Vec<f64>, Vec<f64>) = samples.into_iter().unzip();
            (median(times), cpu.iter().sum::<f64>() / ROUNDS as f64)
        };
        let (direct, direct_cpu) = split(self.direct);
        let (containerd, containerd_cpu) = split(self.containerd);
        println!("\n`true` in a container: median time, and processor time of the node");
        println!("{:>32} {direct:>8.2} ms {direct_cpu:>8.2} ms", "ExecSync without the runtime");
        let row = |name: &str, time: f64, cpu: Option<f64>| {
            let cpu = cpu.map_or(String::new(), |cpu| {
                format!("{cpu:>8.2} ms, {:.1} times the processor time", cpu / direct_cpu)
            });
            println!("{name:>32} {time:>8.2} ms, {:.1} times as long {cpu}", time / direct);
        };
        row("ExecSync by containerd", containerd, Some(containerd_cpu));
        row("runc exec", median(self.runc), None);
        if self.crun.is_empty() {
            println!("crun cannot run a container here");
        } else {
            row("crun exec", median(self.crun), None);
        }
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Returns the arguments that measure ExecSync in a pod.
fn bench<'a>(pod: &'a Pod, calls: &'a str) -> [&'a str; 8] {
    ["bench", "exec", "--container", &pod.container, "--calls", calls, "--output", "json"]
}

/// Returns the mean time of a command, in milliseconds.
fn time(containerd: &Containerd, command: &[&str]) -> f64 {
    let started = Instant::now();
    assert!(repeat(containerd, COMMANDS, command), "{command:?} failed");
    started.elapsed().as_secs_f64() * 1000.0 / f64::from(COMMANDS)
}

/// Runs a command a number of times where containerd runs. Returns whether it succeeded each time.
fn repeat(containerd: &Containerd, count: u32, command: &[&str]) -> bool {
    let pid = containerd.pid().to_string();
    let mut repeated = Command::new("nsenter");
    repeated.args(["--target", &pid, "--mount", "sh", "-c", REPEAT, "sh", &count.to_string()]).args(command);
    // A container that stays in the background keeps the streams.
    let log = fs::File::create(containerd.folder().join("repeat.log")).unwrap();
    repeated.stdin(std::process::Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    repeated.status().unwrap().success()
}

/// Creates a bundle for crun from that of a container: with the same capabilities and seccomp
/// filter, and namespaces of its own.
fn crun_bundle(containerd: &Containerd, task: &Path) -> std::path::PathBuf {
    let bundle = containerd.folder().join("crun-bundle");
    let root = bundle.join("rootfs/bin");
    fs::create_dir_all(&root).unwrap();
    fs::copy("/bin/busybox", root.join("busybox")).unwrap();
    for name in ["true", "sleep"] {
        std::os::unix::fs::symlink("busybox", root.join(name)).unwrap();
    }
    let mut config: Value = serde_json::from_slice(&fs::read(task.join("config.json")).unwrap()).unwrap();
    for namespace in config["linux"]["namespaces"].as_array_mut().unwrap() {
        namespace.as_object_mut().unwrap().remove("path");
    }
    config["process"]["args"] = json!(["sleep", "1000000"]);
    config["process"]["terminal"] = json!(false);
    config["root"] = json!({"path": "rootfs"});
    config["mounts"].as_array_mut().unwrap().retain(|mount| mount["type"] != "bind");
    config["linux"]["cgroupsPath"] = json!("/probeshim-bench-crun");
    // crun needs a capability for these that a machine may lack.
    for (object, field) in [("process", "rlimits"), ("process", "oomScoreAdj"), ("linux", "resources")] {
        config[object].as_object_mut().unwrap().remove(field);
    }
    fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    bundle
}
