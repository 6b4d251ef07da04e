//! Pods that the node rejects, with a runtime in memory.

use super::*;

/// Returns a pod with a host port.
fn with_port(name: &str, uid: &str, port: u16) -> Arc<Pod> {
    let pod = pod(&format!(
        "{{terminationGracePeriodSeconds: 2, containers: [{{name: main, image: i, imagePullPolicy: Never, \
         ports: [{{containerPort: 80, hostPort: {port}}}]}}]}}"
    ));
    Arc::new(Pod { name: name.to_owned(), uid: uid.to_owned(), ..pod })
}

#[tokio::test]
async fn a_pod_with_a_used_host_port_fails_and_other_pods_run() {
    let node = Node::start();
    let (_, mut events) = node.events.follow(&EventFilter::default());
    let [a, b, c] = [("a", 80), ("b", 80), ("c", 81)].map(|(name, port)| with_port(name, name, port));
    node.pods.send_replace(vec![a, b.clone(), c]);
    for name in ["a", "c"] {
        node.until(name, is_running).await;
    }
    let rejected = node.until("b", |it| it.phase() == WorkerPhase::Terminated).await;
    let status = rejected.status().unwrap();
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    let full_message = format!("Pod was rejected: {message}");
    assert_eq!(
        (status.phase(), status.reason.as_deref(), status.message.as_deref()),
        ("Failed", Some("NodePorts"), Some(full_message.as_str()))
    );
    assert!(rejected.has_failed() && rejected.summary().status_column == "NodePorts");
    let event = loop {
        let event = events.recv().await.unwrap();
        if event.reason == "NodePorts" {
            break event;
        }
    };
    assert_eq!((event.message.as_str(), node.runtime.created()), (message, 2));
    // The rejected pod stays rejected after the end of the other pod.
    node.pods.send_replace(vec![b.clone()]);
    node.until("a", |it| it.removed().is_some()).await;
    node.until("b", |it| it.phase() == WorkerPhase::Terminated && it.removed().is_none()).await;
    // A changed pod is decided about again.
    node.pods.send_replace(vec![with_port("b", "changed", 80)]);
    node.until("b", |it| is_running(it) && it.uid() == "changed").await;
    node.end.cancel();
    assert!(node.run.await.unwrap() && node.runtime.is_empty());
}
