//! Pulls of images, with a runtime in memory.

use std::time::Duration;

use fixtures::wait::soon;
use tokio::time;
use tonic::Code;

use super::*;
use crate::events::EventFilter;
use crate::kubelet::images::IMAGE_GC_PERIOD;

/// A Secret with credentials for `private.test`.
const SECRET: &str = r#"{apiVersion: v1, kind: Secret, metadata: {name: NAME, namespace: test}, type: kubernetes.io/dockerconfigjson,
    stringData: {.dockerconfigjson: '{"auths": {"private.test": {"username": "USER", "password": "p"}}}'}}"#;

impl Node {
    /// Returns the messages of the events of a pod, each with its reason.
    pub(super) fn events(&self, pod: &str) -> Vec<String> {
        let events = self.events.select(&EventFilter::default());
        let is_its =
            |event: &&Arc<Event>| event.pod.as_ref().is_some_and(|it| it.name.as_deref() == Some(pod));
        events.iter().filter(is_its).map(|event| format!("{}: {}", event.reason, event.message)).collect()
    }

    /// Waits until the container of a pod waits for this reason. Returns the message.
    pub(super) async fn until_waiting(&self, pod: &str, reason: &str) -> String {
        let waiting = |published: &PublishedPod| {
            let status = published.status()?;
            let waiting = status.containers().next()?.waiting()?.clone();
            (waiting.reason.as_deref() == Some(reason)).then(|| waiting.message.unwrap_or_default())
        };
        let published = self.until(pod, |it| waiting(it).is_some()).await;
        waiting(&published).unwrap()
    }

    pub(super) async fn stop(self) {
        self.pods.send_replace(Vec::new());
        self.kubelet.force_terminate();
        self.end.cancel();
        self.run.await.unwrap();
    }
}

/// Returns a pod with one container of this image, with further fields of the pod and of the
/// container.
fn with_image(name: &str, image: &str, of_pod: &str, of_container: &str) -> Arc<Pod> {
    let spec = format!(
        "{{terminationGracePeriodSeconds: 1{of_pod}, containers: [{{name: main, image: '{image}'{of_container}}}]}}"
    );
    Arc::new(Pod { name: name.to_owned(), uid: format!("uid-of-{name}"), ..pod(&spec) })
}

#[tokio::test]
async fn a_failed_pull_shows_its_error_and_the_back_off_shows_it_too() {
    let node = Node::start();
    node.runtime.with_images(|images| {
        let error = (Code::NotFound, "no such image".to_owned());
        images.pull_errors.insert("missing:latest".to_owned(), error);
    });
    node.pods.send_replace(vec![with_image("a", "missing", "", "")]);
    let message = node.until_waiting("a", "ImagePullBackOff").await;
    let error = "rpc error: code = NotFound desc = no such image";
    assert_eq!(message, format!("Back-off pulling image \"missing\": ErrImagePull: {error}"));
    assert_eq!(
        node.events("a")[..5],
        [
            "Pulling: Pulling image \"missing\"".to_owned(),
            format!("Failed: Failed to pull image \"missing\": {error}"),
            "Failed: Error: ErrImagePull".to_owned(),
            "BackOff: Back-off pulling image \"missing\"".to_owned(),
            "Failed: Error: ImagePullBackOff".to_owned(),
        ]
    );
    node.stop().await;
}

/// The time by which pulls are delayed stands still, but for the steps of the test.
#[tokio::test]
async fn a_failed_pull_is_retried_after_10_and_after_20_seconds() {
    let node = Node::start();
    let fail = |error: &str| {
        let error = (Code::NotFound, error.to_owned());
        node.runtime.with_images(|images| images.pull_errors.insert("missing:latest".to_owned(), error));
    };
    let pulls = || node.runtime.with_images(|images| images.pulls.len());
    let back_off = async |error: &str, pulled: usize| {
        let message = node.until_waiting("a", "ImagePullBackOff").await;
        let error = format!("ErrImagePull: rpc error: code = NotFound desc = {error}");
        assert_eq!((message, pulls()), (format!("Back-off pulling image \"missing\": {error}"), pulled));
    };
    let (delayed, failed) = ("Error: ImagePullBackOff", "Error: ErrImagePull");
    let (_, mut events) = node.events.follow(&EventFilter::default());
    // Waits for a sync that begins after this time has passed, and ends with this event.
    let mut elapse = async |seconds: u64, message: &str| {
        while events.try_recv().is_ok() {}
        node.kubelet.context.stores.images.elapse(Duration::from_secs(seconds));
        node.kubelet.pod_workers.lock().values().for_each(|worker| worker.signals.sync.notify_one());
        // A sync that has begun before may still be delayed.
        let ended = async {
            loop {
                let event = events.recv().await.unwrap();
                if event.message == message || event.message == failed {
                    return event;
                }
            }
        };
        assert_eq!(soon(ended).await.message, message);
    };
    node.kubelet.context.stores.images.elapse(Duration::ZERO);
    fail("first");
    node.pods.send_replace(vec![with_image("a", "missing", "", "")]);
    back_off("first", 1).await;
    for (pulls_before, error, next_error, delay) in [(1, "first", "second", 10), (2, "second", "third", 20)] {
        fail(next_error);
        elapse(delay - 5, delayed).await;
        back_off(error, pulls_before).await;
        elapse(5, failed).await;
        assert_eq!(pulls(), pulls_before + 1);
        elapse(0, delayed).await;
        back_off(next_error, pulls_before + 1).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_text_that_is_no_image_name_is_not_sent_to_the_runtime() {
    let node = Node::start();
    node.pods.send_replace(vec![with_image("a", "Nginx", "", "")]);
    let message = node.until_waiting("a", "InvalidImageName").await;
    let expected = "Failed to apply default image tag \"Nginx\": couldn't parse image name \"Nginx\": invalid \
                    reference format: repository name (library/Nginx) must be lowercase";
    assert_eq!(message, expected);
    let events = node.events("a");
    assert_eq!(
        events[..2],
        [format!("InspectFailed: {expected}"), "Failed: Error: InvalidImageName".to_owned()]
    );
    node.stop().await;
}

#[tokio::test]
async fn an_image_that_cannot_be_inspected_gives_an_event_without_its_name() {
    let node = Node::start();
    node.runtime.with_images(|images| images.status_error = Some((Code::Internal, "disk".to_owned())));
    node.pods.send_replace(vec![with_image("a", "i:1", "", "")]);
    let message = node.until_waiting("a", "ImageInspectError").await;
    assert_eq!(message, "Failed to inspect image \"\": rpc error: code = Internal desc = disk");
    assert_eq!(node.events("a")[0], format!("InspectFailed: {message}"));
    node.stop().await;
}

#[tokio::test]
async fn the_request_for_a_pull_is_that_of_the_kubelet() {
    let node = Node::start();
    let secrets = ", runtimeClassName: fast, imagePullSecrets: [{name: absent}, {name: key}]";
    let class = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: fast}, handler: kata}";
    let objects = [&SECRET.replace("NAME", "key").replace("USER", "me"), class].join("\n---\n");
    node.objects.send_replace(pod_set(&objects).unwrap().objects);
    node.pods.send_replace(vec![with_image("a", "private.test/x", secrets, "")]);
    node.until("a", is_running).await;
    let pull = node.runtime.with_images(|images| images.pulls.remove(0));
    let spec = pull.image.unwrap();
    assert_eq!(spec.image, "private.test/x:latest");
    assert_eq!((spec.runtime_handler.as_str(), spec.user_specified_image.as_str()), ("", ""));
    assert_eq!(spec.annotations, pull.sandbox_config.unwrap().annotations);
    assert_eq!(pull.auth.map(|auth| auth.username).as_deref(), Some("me"));
    let events = node.events("a");
    let missing = "FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (absent); attempting \
                   to pull the image may not succeed.";
    assert_eq!(events[0], missing);
    let pulled = events.iter().find(|event| event.starts_with("Pulled: ")).unwrap();
    assert!(pulled.starts_with("Pulled: Successfully pulled image \"private.test/x\" in "), "{pulled}");
    assert!(pulled.ends_with(" including waiting). Image size: 7 bytes."), "{pulled}");
    node.stop().await;
}

#[tokio::test]
async fn a_pull_secret_that_cannot_be_read_fails_the_pull() {
    let node = Node::start();
    let broken = |name: &str, secret_type: &str| {
        let secret = SECRET.replace("\"username\": \"USER\"", "\"auth\": \"d!\"");
        secret.replace("NAME", name).replace("kubernetes.io/dockerconfigjson", secret_type)
    };
    let secrets = [
        SECRET.replace("NAME", "key").replace("USER", "me"),
        broken("broken", "kubernetes.io/dockerconfigjson"),
        broken("opaque", "Opaque"),
    ];
    node.objects.send_replace(pod_set(&secrets.join("\n---\n")).unwrap().objects);
    let with = |name: &str, secrets: &str, policy: &str| {
        let secrets = format!(", imagePullSecrets: [{secrets}]");
        with_image(name, "private.test/x:1", &secrets, &format!(", imagePullPolicy: {policy}"))
    };
    let broken = with("broken", "{name: key}, {name: broken}", "Always");
    node.pods.send_replace(vec![broken.clone()]);
    let error = "illegal base64 data at input byte 1";
    assert_eq!(node.until_waiting("broken", error).await, error);
    assert_eq!(node.events("broken")[0], format!("Failed: Error: {error}"));
    assert!(node.runtime.with_images(|images| images.pulls.is_empty()));
    // Neither a Secret of another type is read, nor a Secret for an image that is on the node.
    let opaque = with("opaque", "{name: opaque}", "Always");
    let present = with("present", "{name: broken}", "IfNotPresent");
    node.pods.send_replace(vec![broken, opaque, present]);
    node.until("opaque", is_running).await;
    node.until("present", is_running).await;
    node.stop().await;
}

#[tokio::test]
async fn images_are_pulled_one_after_the_other() {
    let node = Node::start();
    let names = ["a", "b", "c", "d", "e"];
    node.pods.send_replace(names.iter().map(|name| with_image(name, name, "", "")).collect());
    for name in names {
        node.until(name, is_running).await;
    }
    let pulls = node.runtime.with_images(|images| (images.pulls.len(), images.max_pulls_in_flight));
    assert_eq!(pulls, (5, 1));
    node.stop().await;
}

#[tokio::test]
async fn an_image_pulled_with_a_secret_is_refused_to_pods_without_its_credentials() {
    let node = Node::start();
    let secrets = [("key", "me"), ("copy", "me"), ("wrong", "you")];
    let secrets = secrets.map(|(name, user)| SECRET.replace("NAME", name).replace("USER", user));
    node.objects.send_replace(pod_set(&secrets.join("\n---\n")).unwrap().objects);
    let (image, full) = ("private.test/x:1", "private.test/x:1".to_owned());
    node.runtime.with_images(|images| {
        images.missing.insert(full.clone());
        images.private.insert(full, "me".to_owned());
    });
    let with = |name: &str, secret: &str, policy: &str| {
        let secret = format!(", imagePullSecrets: [{{name: {secret}}}]");
        with_image(name, image, &secret, &format!(", imagePullPolicy: {policy}"))
    };
    let owner = with("owner", "key", "IfNotPresent");
    node.pods.send_replace(vec![owner.clone()]);
    node.until("owner", is_running).await;
    let with_copy = with("copy", "copy", "Never");
    node.pods.send_replace(vec![
        owner,
        with_copy,
        with("wrong", "wrong", "IfNotPresent"),
        with_image("without", image, "", ", imagePullPolicy: IfNotPresent"),
        with_image("never", image, "", ", imagePullPolicy: Never"),
    ]);
    node.until("copy", is_running).await;
    for pod in ["wrong", "without"] {
        let message = node.until_waiting(pod, "ImagePullBackOff").await;
        assert_eq!(
            message,
            format!("Back-off pulling image \"{image}\": ErrImagePull: authorization failed")
        );
    }
    let message = node.until_waiting("never", "ErrImageNeverPull").await;
    assert_eq!(message, format!("Container image \"{image}\" is not present with pull policy of Never"));
    node.stop().await;
}

#[tokio::test]
async fn records_of_images_that_are_gone_are_removed_every_five_minutes() {
    let node = Node::start();
    let secret = SECRET.replace("NAME", "key").replace("USER", "me");
    node.objects.send_replace(pod_set(&secret).unwrap().objects);
    let image = "private.test/x:1";
    node.runtime.with_images(|images| images.missing.insert(image.to_owned()));
    let owner = with_image("owner", image, ", imagePullSecrets: [{name: key}]", "");
    node.pods.send_replace(vec![owner.clone()]);
    node.until("owner", is_running).await;
    let lists = node.runtime.with_images(|images| images.lists);
    time::pause();
    time::advance(IMAGE_GC_PERIOD).await;
    time::resume();
    let is_listed = async {
        while node.runtime.with_images(|images| images.lists) == lists {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(Duration::from_secs(30), is_listed).await.unwrap();
    node.pods.send_replace(vec![owner, with_image("other", image, "", "")]);
    node.until("other", is_running).await;
    node.stop().await;
}
