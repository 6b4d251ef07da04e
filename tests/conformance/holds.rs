//! Stops by a kubelet that no probe of probeshim explains.

use fixtures::image::BUSYBOX;
use fixtures::kubelet::manifest_of;
use fixtures::need;
use fixtures::node::Node;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Probes that probeshim knows in place of those of the pod: none of one container, and one of the
/// other.
const RULES: &str = "probes:
- match: {pod: 'pair*', container: stopped}
  livenessProbe: off
- match: {pod: 'pair*', container: judged}
  livenessProbe: {exec: {command: ['false']}, periodSeconds: 2, failureThreshold: 2}
";

/// A container that the kubelet kills again and again is in back-off for longer each time. The
/// other container of its pod is judged meanwhile.
#[test]
fn a_stop_without_a_known_reason_does_not_suspend_the_other_probes_of_the_pod() {
    let node = need!(Node::start_probing_with("dry-run", RULES));
    let container = |name: &str| {
        json!({
            "name": name,
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"],
        })
    };
    let mut stopped = container("stopped");
    stopped["livenessProbe"] =
        json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2});
    let spec = json!({"terminationGracePeriodSeconds": 5, "containers": [container("judged"), stopped]});
    node.kubelet.run(&manifest_of("pair", &spec));
    let shim = node.shim.as_ref().unwrap();
    let restarts = || {
        let pod = node.kubelet.pod("pair")?;
        let statuses = pod["status"]["containerStatuses"].as_array()?.clone();
        statuses.iter().find(|status| status["name"] == "stopped")?["restartCount"].as_u64()
    };
    let judged = || {
        let events = shim.list(&["events", "--reason", "WouldKill"]);
        let of_judged = |event: &&Value| event["container"] == "judged";
        events.iter().filter(of_judged).filter_map(|event| event["count"].as_u64()).sum::<u64>()
    };
    // The kubelet restarts it at once, after 10 s, after 20 s and then after 40 s.
    wait_for("the container was restarted three times and has ended again", || {
        (restarts()? >= 3).then_some(())?;
        let pod = node.kubelet.pod("pair")?;
        let statuses = pod["status"]["containerStatuses"].as_array()?.clone();
        let stopped = statuses.into_iter().find(|status| status["name"] == "stopped")?;
        stopped["state"]["running"].is_null().then_some(())
    });
    let (before, stops) = (judged(), restarts());
    wait_for("the other container is judged twice", || (judged() >= before + 2).then_some(()));
    assert_eq!(restarts(), stops, "it is judged before the first container runs again");
}
