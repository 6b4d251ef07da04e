//! A real kubelet through the relay. `make conformance` has the long form, compared with a kubelet
//! directly on the runtime.

use fixtures::accounts;
use fixtures::need;
use fixtures::node::{Node, Part};
use fixtures::runtime::Runtime as _;

/// Returns a wrapped text as one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_relayed_kubelet_runs_pods_kills_failed_containers_and_survives_restarts() {
    let mut node = need!(Node::start(true));
    let seen = node.live();
    assert_eq!(
        seen,
        [
            "steady: ready true restarts 0",
            "healthy: ready true restarts 0",
            "probed: restarted, exit code 137 reason \"Error\"",
            "probed: failed true",
            "logs: started\n",
            r#"exec: ["out\n", "err\n", "Success"]"#,
            r#"failing exec: ["", "", "Failure"]"#,
        ]
    );
    let errors = node.transport_errors();
    assert!(errors.is_empty(), "{errors:#?}");
    let shim = node.shim.as_ref().unwrap();
    let kill = "Container main failed liveness probe, and the kubelet stopped it";
    for (calls, expected) in [
        (&["--method", "StopContainer"][..], format!("The event of this stop: {kill}")),
        (&["--probe", "liveness", "--failed"], "The container was stopped ".to_owned()),
    ] {
        let calls = shim.list(&[&["calls", "--pod", "probed-node"], calls].concat());
        let explained: Vec<String> =
            calls.iter().map(|call| shim.ask(&["explain", &call["id"].to_string()])).collect();
        // The last stop is that of the pod.
        assert!(
            explained.iter().any(|text| one_line(text).contains(&expected)),
            "{expected}: {explained:#?}"
        );
    }
    accounts::agree(|| accounts::by_code(&shim.counted()), || node.containerd.accounts().unwrap());
    for part in [Part::Probeshim, Part::Containerd, Part::Kubelet] {
        let before = node.running();
        node.restart(part);
        assert_eq!(node.running(), before, "{part:?} was restarted");
        assert_eq!(node.containers_ever(), [1, 1], "{part:?} was restarted");
    }
}
