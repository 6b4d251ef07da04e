//! Kubernetes' own end-to-end specs of probes.

use fixtures::cluster::Cluster;
use fixtures::need;

/// Number of specs that the focus selects in version 1.36.
const SPECS: usize = 46;

/// Number of specs that run at the same time. Each waits for a probe most of the time.
const PROCESSES: usize = 12;

#[test]
fn upstream_probe_specs_pass_through_the_relay() {
    let cluster = need!(Cluster::start());
    let results = need!(cluster.run_specs("Probing (restartable init )?container", PROCESSES));
    let failed: Vec<_> = results.iter().filter(|result| !result.passed).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:#?}", failed.len(), results.len());
    assert_eq!(results.len(), SPECS, "{results:#?}");
    let metrics = cluster.shim.metrics();
    let relayed = exec_syncs(&metrics);
    assert!(relayed > SPECS, "only {relayed} ExecSyncs passed through the relay: {metrics}");
}

/// Returns the number of relayed ExecSyncs.
fn exec_syncs(metrics: &str) -> usize {
    let series = metrics.lines().filter(|line| line.starts_with("probeshim_calls_total{"));
    let execs = series.filter(|line| line.contains("method=\"ExecSync\""));
    execs.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}
