//! Names of the probes of a real kubelet, without configuration.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use fixtures::containerd::{Containerd, Version};
use fixtures::kubelet::{Kubelet, manifest};
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::server::Server;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// A server of another user at a port.
const FOREIGN_SERVER: &str = "import socket, sys, time
server = socket.create_server((\"127.0.0.1\", int(sys.argv[1])))
time.sleep(1000)";

/// Returns a pod whose liveness probe is a command.
fn probed(name: &str) -> Value {
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 10});
    manifest(name, "sleep 100000", &probe)
}

/// Waits for a call of a pod's probe that has a name, and returns the name and its source.
fn named(shim: &Probeshim, pod: &str) -> (Value, Value) {
    wait_for(&format!("{pod}: its probe has a name"), || {
        let calls = shim.list_if_answered(&["calls", "--method", "ExecSync"])?;
        let calls = calls.iter().filter(|call| call["pod"]["name"] == pod);
        let mut probes = calls.map(|call| &call["exec"]["probe"]);
        let probe = probes.rfind(|probe| probe["type"] == "liveness")?;
        Some((probe["type"].clone(), probe["source"].clone()))
    })
}

/// Returns the sources of names, without their number of pods.
fn sources(shim: &Probeshim) -> Vec<Value> {
    shim.json(&["status"])["probeNames"]["sources"].as_array().unwrap().clone()
}

#[test]
fn the_probes_of_static_pods_have_names_with_and_without_a_read_only_port() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let shim = Probeshim::start_with(containerd.folder(), &containerd.socket(), &["--enforce", "dry-run"]);
    // The kubelet starts after probeshim.
    let kubelet = need!(Kubelet::start(containerd.folder(), shim.socket()));
    kubelet.run(&probed("open"));
    assert_eq!(named(&shim, "open-node"), (json!("liveness"), json!("read-only-port")));
    let port = kubelet.read_only_port();
    let known = sources(&shim);
    let descriptions: Vec<&str> =
        known.iter().map(|source| source["description"].as_str().unwrap()).collect();
    let directory = kubelet.manifests();
    let expected =
        [format!("the kubelet's read-only port {port}"), format!("static pods in {}", directory.display())];
    assert_eq!(descriptions, expected);
    kubelet.forget("open");
    wait_for("the pod is gone", || kubelet.pods().is_empty().then_some(()));
    drop(kubelet);

    // Another user binds the port while no kubelet does. The next kubelet cannot open it.
    let mut foreign = Command::new("python3");
    foreign.args(["-c", FOREIGN_SERVER, &port.to_string()]).uid(65_534);
    let _foreign = Server::start("foreign", &mut foreign, &containerd.folder().join("foreign.log"));
    let kubelet = need!(Kubelet::start_closed(containerd.folder(), shim.socket()));
    kubelet.run(&probed("closed"));
    assert_eq!(named(&shim, "closed-node"), (json!("liveness"), json!("static-pods")));
    // probeshim runs no probes of sources that it has found.
    assert!(shim.json(&["status"])["pods"].to_string().contains("closed-node"));
    assert_eq!(shim.list(&["probes"]), [json!(null); 0]);
    let names = shim.json(&["status"])["probeNames"].clone();
    assert!(names["namedContainers"].as_u64() >= Some(1), "{names:#}");
    assert_eq!(names["unnamedContainers"], 0, "{names:#}");
    kubelet.forget("closed");
}
