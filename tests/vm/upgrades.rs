//! Upgrades of an installed probeshim during a call, and restarts after crashes and hangs.

use std::collections::BTreeSet;

use fixtures::need;
use fixtures::vm::Vm;

use crate::payload::payload;

#[test]
fn a_call_in_flight_outlives_twenty_upgrades_and_a_killed_or_hung_service_serves_again() {
    let vm = need!(Vm::new());
    let outcome = vm.run(need!(payload(include_str!("upgrades.sh"))));
    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);

    // Each upgrade starts another process, which systemd takes for the service.
    let pids = outcome.text("pids");
    let pids: BTreeSet<&str> = pids.lines().collect();
    assert_eq!(pids.len(), 20, "{pids:?}");
    assert_eq!(outcome.text("state-upgraded"), "NRestarts=0\nActiveState=active");
    // The call in flight has finished in the process that accepted it.
    assert_eq!(outcome.text("slow"), "finished");

    // SIGKILL and the watchdog lead to one restart each.
    assert_eq!(outcome.text("watchdog"), "Watchdog timeout");
    assert_eq!(outcome.text("state-killed"), "NRestarts=2\nActiveState=active");
}
