//! Image volumes, with a runtime in memory.

use tonic::Code;

use super::*;
use crate::cri::v1::{ImageSpec, Mount};

/// Returns a pod, `a`, with these volumes and volumeMounts.
fn with_volumes(volumes: &str, mounts: &str) -> Arc<Pod> {
    let spec = format!(
        "{{terminationGracePeriodSeconds: 1, runtimeClassName: fast, volumes: [{volumes}], containers: [\
         {{name: main, image: 'own:1', imagePullPolicy: Never, volumeMounts: [{mounts}]}}]}}"
    );
    Arc::new(Pod { name: "a".to_owned(), uid: "uid".to_owned(), ..pod(&spec) })
}

impl Node {
    /// Adds a runtime class, and runs the pod.
    fn run_with_class(&self, pod: Arc<Pod>) {
        let class = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: fast}, handler: kata}";
        self.objects.send_replace(pod_set(class).unwrap().objects);
        self.pods.send_replace(vec![pod]);
    }
}

#[tokio::test]
async fn an_image_volume_is_pulled_and_mounted_by_the_runtime() {
    let node = Node::start();
    node.runtime.with_images(|images| images.missing.insert("data:1".to_owned()));
    let volumes = "{name: data, image: {reference: 'data:1'}}, {name: other, emptyDir: {}}";
    let mounts = "{name: data, mountPath: /d}, {name: data, mountPath: /e, subPathExpr: sub/$(DIR)}, \
                  {name: other, mountPath: /o, subPath: in}";
    let pod = with_volumes(volumes, &mounts.replace("$(DIR)", "dir"));
    node.run_with_class(pod.clone());
    node.until("a", is_running).await;
    let config = node.runtime.container_configs().remove(0);
    let image = ImageSpec {
        image: "id of data:1".to_owned(),
        user_specified_image: "data:1".to_owned(),
        runtime_handler: "kata".to_owned(),
        annotations: config.mounts[0].image.clone().unwrap().annotations,
        ..ImageSpec::default()
    };
    for (key, value) in &pod.annotations {
        assert_eq!(image.annotations.get(key), Some(value));
    }
    let mount = |path: &str, sub_path: &str| Mount {
        container_path: path.to_owned(),
        readonly: true,
        image: Some(image.clone()),
        image_sub_path: sub_path.to_owned(),
        ..Mount::default()
    };
    assert_eq!(config.mounts[..2], [mount("/d", ""), mount("/e", "sub/dir")]);
    // The kubelet sets the field for all mounts of such a pod.
    let Mount { host_path, readonly, image, image_sub_path, .. } = &config.mounts[2];
    assert!(!host_path.is_empty() && !readonly && image.is_none(), "{host_path}");
    assert_eq!(image_sub_path, "in");
    let events = node.events("a");
    assert_eq!(events[0], "Pulling: Pulling image \"data:1\"");
    assert!(events[1].starts_with("Pulled: Successfully pulled image \"data:1\" in "), "{events:?}");
    node.stop().await;
}

/// Kubelet: `SyncPod` calls `getImageVolumes` whatever the pod needs.
#[tokio::test]
async fn each_sync_requests_the_images_of_volumes() {
    let node = Node::start();
    let (_, mut events) = node.events.follow(&EventFilter::default());
    node.run_with_class(with_volumes("{name: data, image: {reference: data}}", ""));
    node.until("a", is_running).await;
    let pulls = || node.runtime.with_images(|images| images.pulls.len());
    let before = pulls();
    node.kubelet.pod_workers.lock().values().for_each(|worker| worker.signals.sync.notify_one());
    // An event follows each pull.
    while pulls() == before {
        events.recv().await.unwrap();
    }
    assert_eq!(node.runtime.created(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_container_waits_for_the_image_of_a_volume_that_it_mounts() {
    let node = Node::start();
    node.runtime.with_images(|images| {
        let error = (Code::NotFound, "no such image".to_owned());
        images.pull_errors.insert("absent:1".to_owned(), error);
        images.missing.insert("absent:1".to_owned());
    });
    let volumes = "{name: absent, image: {reference: 'absent:1'}}, {name: never, image: {reference: Upper, pullPolicy: Never}}";
    node.run_with_class(with_volumes(volumes, "{name: absent, mountPath: /a}"));
    let message = node.until_waiting("a", "ImagePullBackOff").await;
    let error = "rpc error: code = NotFound desc = no such image";
    assert_eq!(message, format!("Back-off pulling image \"absent:1\": ErrImagePull: {error}"));
    let invalid = "InspectFailed: Failed to apply default image tag \"Upper\": couldn't parse image name \"Upper\": invalid \
                   reference format: repository name (library/Upper) must be lowercase";
    let events = node.events("a").into_iter();
    let (of_unused, events): (Vec<String>, Vec<String>) =
        events.partition(|event| event.starts_with("InspectFailed"));
    assert_eq!(of_unused, [invalid]);
    assert_eq!(
        events[..5],
        [
            "Pulling: Pulling image \"absent:1\"".to_owned(),
            format!("Failed: Failed to pull image \"absent:1\": {error}"),
            "Failed: Error: ErrImagePull".to_owned(),
            "BackOff: Back-off pulling image \"absent:1\"".to_owned(),
            "Failed: Error: ImagePullBackOff".to_owned(),
        ]
    );
    assert_eq!(node.runtime.created(), 0);
    node.stop().await;
}
