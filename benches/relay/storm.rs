//! Measures storms of exec probes on real containerd: through a probeshim without policies, with
//! limits, with coalescing, and with direct exec.

use std::fs;

use fixtures::containerd::Containerd;
use fixtures::crictl::Crictl;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::shim::Probeshim;
use serde_json::Value;

/// Number of pods on each runtime handler. The calls are spread over their containers.
const PODS: usize = 5;

/// Name of the mode in which probeshim executes the commands.
const DIRECT: &str = "direct";

/// The modes, with their configurations. The first is that without policies.
const MODES: [(&str, &str); 5] = [
    ("plain", ""),
    ("limited", "maxExecSyncs: 2\n"),
    ("limited-fails", "maxExecSyncs: 2\nexecSyncOverflow: fail\n"),
    (
        "coalesced",
        "coalesceProbes: true\nprobes:\n- match: {}\n  livenessProbe: {exec: {command: ['true']}, timeoutSeconds: 1}\n",
    ),
    (DIRECT, "exec: direct-all\n"),
];

/// Runs one storm that compares the modes with runc, and the runtime and direct exec with crun, and
/// prints the results.
pub(crate) fn storm() {
    let containerd = Containerd::start_unified().unwrap();
    let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()).unwrap();
    let start = |handler: &str| -> Result<Vec<Pod>, String> {
        let name = |pod| format!("storm-{handler}-{pod}");
        (0..PODS).map(|pod| Pod::on_handler(&crictl, containerd.folder(), &name(pod), handler)).collect()
    };
    let runc = start("runc").unwrap();
    let crun = start("crun").unwrap_or_else(|reason| {
        println!("\ncrun is not measured: {reason}");
        Vec::new()
    });
    containerd.remove_wrappers();
    let shims = MODES.map(|(mode, config)| {
        let folder = containerd.folder().join(mode);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("config.yaml"), config).unwrap();
        (mode, Probeshim::start(&folder, &containerd.socket()))
    });
    let with_runc = shims.iter().flat_map(|(mode, shim)| endpoint(mode, shim, &runc));
    let with_crun = shims
        .iter()
        .filter(|(mode, _)| !crun.is_empty() && ["plain", DIRECT].contains(mode))
        .flat_map(|(mode, shim)| endpoint(&format!("{mode}-crun"), shim, &crun));
    let endpoints: Vec<String> = with_runc.chain(with_crun).collect();
    let mut arguments = vec!["bench", "exec", "--storm", "-o", "json"];
    arguments.extend(endpoints.iter().map(String::as_str));
    let report = shims[0].1.ask_with(&arguments, &["--", "true"]);
    print(&serde_json::from_str(&report).unwrap());
    for (_, shim) in shims.iter().filter(|(mode, _)| *mode == DIRECT) {
        assert_verified(shim, runc.len() + crun.len());
    }
    for (_, shim) in shims {
        shim.stop();
    }
    for pod in runc.into_iter().chain(crun) {
        pod.remove(&crictl);
    }
}

/// Returns the flags of an endpoint and its containers.
fn endpoint(name: &str, shim: &Probeshim, pods: &[Pod]) -> Vec<String> {
    let socket = format!("--endpoint={name}=unix://{}", shim.socket().display());
    let containers = pods.iter().map(|pod| format!("--container={name}={}", pod.container));
    [socket].into_iter().chain(containers).collect()
}

/// Asserts that a probeshim has verified this number of containers, and prints the number of
/// commands that it has executed and forwarded.
fn assert_verified(shim: &Probeshim, count: usize) {
    let policies = &shim.json(&["status"])["execPolicies"];
    let containers = policies["directContainers"].as_array().unwrap();
    let verified = containers.iter().filter(|container| container["state"] == "verified").count();
    assert_eq!(verified, count, "{containers:?}");
    let counters = ["probeshim_direct_execs_total", "probeshim_forwarded_execs_total"];
    let metrics = shim.metrics();
    let lines = metrics.lines().filter(|line| counters.iter().any(|counter| line.starts_with(counter)));
    println!("\n{}", lines.collect::<Vec<_>>().join("\n"));
}

/// Prints a table of the steps, and one of the saturation of each mode.
fn print(report: &Value) {
    let endpoints = report["endpoints"].as_array().unwrap();
    println!("\nstorms of `true` in {PODS} containers of containerd");
    println!("| Mode | Rate | Offered | Served | Failed | CPU | CPU per served call | p50 | p90 | p99 |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for endpoint in endpoints {
        for step in endpoint["steps"].as_array().unwrap() {
            println!("| {} | {} |", endpoint["name"].as_str().unwrap(), row(step));
        }
    }
    let rate = endpoints.iter().find_map(|endpoint| endpoint["comparison"]["rate"].as_u64());
    let rate = rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
    println!(
        "\n| Mode | Saturated at | Most served per second | CPU at {rate}, times plain | p50 at {rate}, times plain |"
    );
    println!("|---|---|---|---|---|");
    for endpoint in endpoints {
        let ratio = |name: &str| match endpoint["comparison"][name].as_f64() {
            Some(ratio) => format!("{ratio:.2}"),
            None => "-".to_owned(),
        };
        let saturated = endpoint["saturation"]["rate"].as_u64();
        let saturated = saturated.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
        let most = endpoint["maxServedPerSecond"].as_f64().unwrap();
        let name = endpoint["name"].as_str().unwrap();
        println!("| {name} | {saturated} | {most:.0} | {} | {} |", ratio("cpuRatio"), ratio("p50Ratio"));
    }
}

/// Returns the cells of a step.
fn row(step: &Value) -> String {
    let time = |name: &str| match step[name].as_f64() {
        Some(time) if time >= 1000.0 => format!("{:.2} s", time / 1000.0),
        Some(time) => format!("{time:.0} ms"),
        None => "-".to_owned(),
    };
    let kinds = step["failures"].as_array().unwrap().iter();
    let kinds: Vec<String> =
        kinds.map(|kind| format!("{} {}", kind["count"], kind["kind"].as_str().unwrap())).collect();
    let failed = if kinds.is_empty() { "0".to_owned() } else { kinds.join(", ") };
    let cpu = step["cpuPercent"].as_f64().map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.0} %"));
    let numbers = ["rate", "offered", "served"].map(|name| step[name].to_string());
    let times = ["cpuMsPerServed", "p50Ms", "p90Ms", "p99Ms"].map(time);
    [&numbers[..], &[failed, cpu], &times[..]].concat().join(" | ")
}
