//! The whole life of a pod, directly and through the relay: both have the same output and the same
//! exit codes.

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::{Crictl, Running};
use fixtures::image::BUSYBOX;
use fixtures::need;
use fixtures::pod::{Pod, configs};
use fixtures::procrun::Procrun;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::life;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;

#[test]
fn the_life_of_a_pod_on_containerd_2_2_is_the_same_directly_and_relayed() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let shim = Probeshim::start(containerd.folder(), &containerd.socket());
    need!(life::compare(&containerd, shim));
}

#[test]
fn the_life_of_a_pod_on_containerd_1_6_is_the_same_directly_and_relayed() {
    let containerd = need!(Containerd::start(Version::V1_6));
    let shim = Probeshim::start(containerd.folder(), &containerd.socket());
    need!(life::compare(&containerd, shim));
}

#[test]
fn the_life_of_a_pod_on_procrun_is_the_same_directly_and_relayed() {
    let procrun = Procrun::start();
    let crictl = need!(Crictl::new("crictl-1.36", &procrun.socket(), procrun.folder()));
    // The relayed life comes second and finds the images that the direct life has pulled, so pull
    // them before both.
    for image in [BUSYBOX, "127.0.0.1:1/nobody/is:here"] {
        crictl.ok(&["pull", image]);
    }
    let shim = Probeshim::start(procrun.folder(), &procrun.socket());
    need!(life::compare(&procrun, shim));
}

#[test]
fn the_relay_continues_after_a_crash_of_containerd() {
    let mut containerd = need!(Containerd::start(Version::V2_2));
    let shim = Probeshim::start(containerd.folder(), &containerd.socket());
    let crictl = need!(Crictl::new("crictl-1.36", shim.socket(), containerd.folder()));
    let direct = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let pod = Pod::new(&crictl, containerd.folder(), "survivor");
    // Calls in flight are lost, both with the relay and without it.
    let in_flight =
        [&crictl, &direct].map(|crictl| crictl.spawn(&["exec", "-s", &pod.container, "sleep", "60"]));
    pod.runs_twice(&crictl, "sleep 60");
    containerd.crash_and_restart();
    for lost in in_flight.map(Running::output) {
        assert!(lost.code == Some(1) && lost.stderr.contains("code = Unavailable"), "{lost:?}");
    }
    assert_eq!(crictl.ok(&["exec", "-s", &pod.container, "echo", "still here"]), "still here");
    pod.remove(&crictl);
    let log = shim.stop();
    assert!(log.contains("\"status\":\"connection-lost\""), "the call in flight is not in the log: {log}");
}

/// crictl runp calls only RunPodSandbox, whose response has no address.
#[test]
fn the_address_of_a_pod_that_crictl_runs_is_shown() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let shim = Probeshim::start(containerd.folder(), &containerd.socket());
    let crictl = need!(Crictl::new("crictl-1.36", shim.socket(), containerd.folder()));
    let [pod, _] = configs(containerd.folder(), "addressed");
    let id = crictl.ok(&["runp", &pod]);
    let address = wait_for("the pod has an address", || {
        shim.json(&["status"])["pods"][0]["ip"].as_str().map(str::to_owned)
    });
    let status = crictl.ok(&["inspectp", &id]);
    assert!(status.contains(&format!("\"ip\": \"{address}\"")), "{address}: {status}");
    crictl.ok(&["rmp", "-f", &id]);
    shim.stop();
}
