//! Upgrades of an installed probeshim under calls, and restarts after a crash and a hang.

use std::collections::BTreeSet;

use fixtures::need;
use fixtures::vm::Vm;

use crate::payload::node_with_kubelet_unit;

/// Number of upgrades.
const UPGRADES: usize = 20;

#[test]
fn no_call_fails_in_twenty_upgrades_and_a_killed_or_hung_service_serves_again() {
    let vm = need!(Vm::new());
    let outcome = vm.run(need!(node_with_kubelet_unit(include_str!("upgrades.sh"))));
    let text = |name: &str| outcome.text(name);
    assert_eq!(outcome.exit_code, 0, "{}\n{}", outcome.log, text("journal"));

    // Each upgrade starts another process, which systemd takes for the service.
    let pids = text("pids");
    assert_eq!(pids.lines().collect::<BTreeSet<&str>>().len(), UPGRADES + 1, "{pids}");
    assert_eq!(text("state-upgraded"), "NRestarts=0\nActiveState=active", "{}", text("journal"));
    // The call in flight ended in the process that accepted it, after all upgrades.
    assert_eq!(text("slow"), "finished");
    assert_eq!(text("failed-calls"), "");
    let calls: usize = text("calls").parse().unwrap();
    assert!(calls >= UPGRADES, "{calls}");

    // SIGKILL and the watchdog lead to one restart each.
    assert_eq!(text("watchdog"), "1", "{}", text("journal"));
    assert_eq!(text("state-restarted"), "NRestarts=2\nActiveState=active", "{}", text("journal"));
    assert_eq!(text("endpoint-restarted"), "unix:///run/probeshim/probeshim.sock");

    // A second hang, also one during the start, points the kubelet back.
    assert_eq!(text("endpoint-bypassed"), "unix:///run/containerd-2.2/containerd.sock");
}
