//! Probes, made by probeshim on a real containerd: a few of the rows of `make parity`.

use crate::real::parity::{self, Row, hold};
use crate::support::skip::need;

/// One row for each handler and each type of probe.
const ROWS: [&str; 8] = [
    "restarted, exec cat",
    "restarted, /healthz http",
    "not restarted, tcp:8080",
    "not restarted, gRPC",
    "restarted, exec timeout",
    "failing readiness never ready",
    "restarted by liveness after startup enables it",
    "readiness false and liveness disabled while terminating",
];

#[test]
fn containers_would_be_killed_as_by_a_kubelet() {
    let rows: Vec<Row> = parity::rows().into_iter().filter(|row| ROWS.contains(&row.name)).collect();
    assert_eq!(rows.len(), ROWS.len());
    need!(hold(&rows, false));
}
