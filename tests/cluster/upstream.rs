//! Upstream's own end-to-end tests.

use fixtures::cluster::Cluster;
use fixtures::need;

/// Specs that the focus selects in version 1.36.
const SPECS: usize = 46;

/// Specs that are run at once. Most of the time each waits for a probe.
const PROCESSES: usize = 12;

#[test]
fn upstreams_specs_of_probes_pass_through_the_relay() {
    let cluster = need!(Cluster::start());
    let results = need!(cluster.run_specs("Probing (restartable init )?container", PROCESSES));
    let failed: Vec<_> = results.iter().filter(|result| !result.passed).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:#?}", failed.len(), results.len());
    assert_eq!(results.len(), SPECS, "{results:#?}");
    // None of them took another way to the runtime.
    let metrics = cluster.shim.metrics();
    assert!(metrics.contains("method=\"ExecSync\""), "{metrics}");
}
