//! Measures storms of exec probes on real containerd: through a probeshim without policies, with
//! limits, and with coalescing.

use std::fs;

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Crictl;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::shim::Probeshim;
use serde_json::Value;

/// Number of pods. The calls are spread over their containers.
const PODS: usize = 5;

/// The modes, with their configurations.
const MODES: [(&str, &str); 4] = [
    ("plain", ""),
    ("limited", "maxExecSyncs: 2\n"),
    ("limited, fails", "maxExecSyncs: 2\nexecSyncOverflow: fail\n"),
    (
        "coalesced",
        "coalesceProbes: true\nprobes:\n- match: {}\n  livenessProbe: {exec: {command: ['true']}, timeoutSeconds: 1}\n",
    ),
];

/// Runs a storm in each mode, one after the other, and prints one table.
pub(crate) fn storm() {
    let containerd = Containerd::start(Version::V2_2).unwrap();
    let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()).unwrap();
    let pods: Vec<Pod> =
        (0..PODS).map(|pod| Pod::new(&crictl, containerd.folder(), &format!("storm-{pod}"))).collect();
    println!("\nstorms of `true` in {PODS} containers of containerd");
    println!("| Mode | Rate | Offered | Served | Failed | CPU | CPU per served call | p50 | p90 | p99 |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut saturations = Vec::new();
    for (mode, config) in MODES {
        let folder = containerd.folder().join(mode.replace(", ", "-"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("config.yaml"), config).unwrap();
        let shim = Probeshim::start(&folder, &containerd.socket());
        let mut arguments = vec!["bench", "exec", "--storm", "-o", "json"];
        arguments.extend(pods.iter().flat_map(|pod| ["--container", &pod.container]));
        let report: Value = serde_json::from_str(&shim.ask_with(&arguments, &["--", "true"])).unwrap();
        for step in report["steps"].as_array().unwrap() {
            println!("| {mode} | {} |", row(step));
        }
        saturations.push(format!("{mode}: {}", report["saturation"]));
        shim.stop();
    }
    println!("\nsaturation\n{}", saturations.join("\n"));
    for pod in pods {
        pod.remove(&crictl);
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
