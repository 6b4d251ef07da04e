//! Pods with a user namespace, with a runtime in memory.

use super::*;
use crate::cri::v1::{NamespaceMode, RuntimeHandler, RuntimeHandlerFeatures};

/// Returns a pod, `a`, with a user namespace.
fn with_user_namespace() -> Arc<Pod> {
    let spec = "{terminationGracePeriodSeconds: 1, hostUsers: false, volumes: [{name: v}], containers: \
                [{name: main, image: 'i:1', imagePullPolicy: Never, volumeMounts: [{name: v, mountPath: /v}]}]}";
    Arc::new(Pod { name: "a".to_owned(), uid: "uid".to_owned(), ..pod(spec) })
}

fn default_handler(user_namespaces: bool) -> RuntimeHandler {
    let features = RuntimeHandlerFeatures { user_namespaces, ..RuntimeHandlerFeatures::default() };
    RuntimeHandler { name: String::new(), features: Some(features) }
}

#[tokio::test]
async fn a_pod_with_a_user_namespace_has_a_range_of_ids_until_it_is_removed() {
    let node = Node::start();
    node.runtime.set_handlers(vec![default_handler(true)]);
    node.pods.send_replace(vec![with_user_namespace()]);
    node.until("a", is_running).await;
    let config = node.runtime.container_configs().remove(0);
    let options = config.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
    let namespace = options.userns_options.unwrap();
    assert_eq!(namespace.mode(), NamespaceMode::Pod);
    assert_eq!((namespace.uids.len(), namespace.uids[0].length), (1, 65_536));
    assert!(config.mounts.len() > 1);
    for mount in config.mounts {
        assert_eq!((&mount.uid_mappings, &mount.gid_mappings), (&namespace.uids, &namespace.gids));
    }
    let namespaces = || node.kubelet.context.stores.user_namespaces.count();
    assert_eq!(namespaces(), 1);
    let mut changes = node.kubelet.changes();
    node.pods.send_replace(Vec::new());
    while namespaces() > 0 {
        changes.changed().await.unwrap();
    }
    node.stop().await;
}

#[tokio::test]
async fn a_runtime_without_user_namespaces_gives_the_error_of_the_kubelet() {
    let node = Node::start();
    node.runtime.set_handlers(vec![default_handler(false)]);
    let (_, mut events) = node.events.follow(&EventFilter::default());
    node.pods.send_replace(vec![with_user_namespace()]);
    let event = events.recv().await.unwrap();
    let error = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
    let message = format!("Failed to create pod sandbox: {error}");
    assert_eq!((event.reason, event.message.as_str()), ("FailedCreatePodSandBox", message.as_str()));
    assert_eq!(node.kubelet.context.stores.user_namespaces.count(), 0);
    assert!(node.runtime.is_empty());
    node.stop().await;
}
