//! ConfigMaps, Secrets and RuntimeClasses on containerd: a pod waits for missing objects and
//! follows changes of objects.

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Crictl;
use fixtures::image::BUSYBOX;
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::play::Player;
use fixtures::wait::wait_for;
use serde_json::Value;

/// Returns a pod of this name with additional fields of the pod and of its container.
fn pod(name: &str, of_pod: &str, of_container: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: e2e}}, spec: {{terminationGracePeriodSeconds: 1{of_pod}, \
         containers: [{{name: main, image: {BUSYBOX}, imagePullPolicy: Never, command: [sh, -c, \"trap 'exit 0' TERM; \
         while true; do sleep 0.1; done\"]{of_container}}}]}}}}"
    )
}

fn config_map(value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings, namespace: e2e}}, data: {{mode: {value}}}}}"
    )
}

fn secret(value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: keys, namespace: e2e}}, stringData: {{token: {value}}}}}"
    )
}

/// Waits until the container of a pod waits for this reason, and returns the message.
fn waiting(player: &Player, name: &str, reason: &str) -> String {
    wait_for(&format!("{name}: {reason}"), || {
        let state = player.pod(name)?["status"]["containerStatuses"][0]["state"].clone();
        let waiting = &state["waiting"];
        (waiting["reason"] == reason).then(|| waiting["message"].as_str().unwrap_or_default().to_owned())
    })
}

/// Returns the id of the pod's container once the container is running.
fn running(player: &Player, name: &str) -> String {
    wait_for(&format!("{name} runs"), || {
        let status = player.pod(name)?["status"]["containerStatuses"][0].clone();
        let id = status["containerID"].as_str()?.strip_prefix("containerd://")?.to_owned();
        (status["state"]["running"] != Value::Null).then_some(id)
    })
}

#[test]
fn a_pod_waits_for_missing_objects_runs_once_they_exist_and_follows_their_changes() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let crictl = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let mut player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    let told = |pod: &str, reason: &str, message: &str| {
        wait_for(&format!("{pod}: {reason}: {message}"), || {
            (player.count(pod, reason, message) > 0).then_some(())
        });
    };
    let env = ", env: [{name: MODE, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}]";
    player.run("env", &pod("env", ", imagePullSecrets: [{name: absent}]", env));
    let mount = ", volumeMounts: [{name: v, mountPath: /v}]";
    player.run("files", &pod("files", ", volumes: [{name: v, secret: {secretName: keys}}]", mount));
    player.run("class", &pod("class", ", runtimeClassName: plain", ""));
    assert_eq!(waiting(&player, "env", "CreateContainerConfigError"), "configmap \"settings\" not found");
    told("env", "Failed", "Error: configmap \"settings\" not found");
    let pull_secret =
        "Unable to retrieve some image pull secrets (absent); attempting to pull the image may not succeed.";
    told("env", "FailedToRetrieveImagePullSecret", pull_secret);
    told("files", "FailedMount", "MountVolume.SetUp failed for volume \"v\" : secret \"keys\" not found");
    waiting(&player, "files", "ContainerCreating");
    let class = "Failed to create pod sandbox: runtimeclass.node.k8s.io \"plain\" not found";
    told("class", "FailedCreatePodSandBox", class);
    assert!(!crictl.ok(&["pods", "-o", "json"]).contains("\"name\": \"class\""));
    player
        .run("odd", "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: odd}, handler: odd}");
    player.run("handler", &pod("handler", ", runtimeClassName: odd", ""));
    told("handler", "FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error: code = ");
    player.forget("handler");

    player.run("settings", &config_map("fast"));
    player.run("keys", &secret("first"));
    player.run(
        "plain",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: plain}, handler: runc}",
    );
    let id = running(&player, "env");
    assert_eq!(crictl.ok(&["exec", "-s", &id, "sh", "-c", "echo $MODE"]), "fast");
    let files = running(&player, "files");
    assert_eq!(crictl.ok(&["exec", "-s", &files, "cat", "/v/token"]), "first");
    running(&player, "class");
    assert!(crictl.ok(&["pods", "-o", "json"]).contains("\"runtimeHandler\": \"runc\""));

    player.run("keys", &secret("second"));
    wait_for("the volume has the new content", || {
        (crictl.ok(&["exec", "-s", &files, "cat", "/v/token"]) == "second").then_some(())
    });
    let failed = || player.count("files", "FailedMount", "secret \"keys\" not found");
    let before = failed();
    player.forget("keys");
    wait_for("the missing secret is reported", || (failed() > before).then_some(()));
    assert_eq!(running(&player, "files"), files, "a running pod keeps its files");
    player.crash_and_restart();
    assert_eq!([running(&player, "files"), running(&player, "env")], [files, id], "both pods are adopted");
    assert_eq!(player.stop().code(), Some(143));
}

#[test]
fn the_final_status_of_a_pod_can_be_read_once_its_manifest_is_removed() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let crictl = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    let manifest = pod("a", ", restartPolicy: Never", "").replace("'exit 0' TERM", "'exit 7' TERM");
    player.run("a", &manifest);
    running(&player, "a");
    player.forget("a");
    let removed = wait_for("the final status of the removed pod", || player.removed("a"));
    assert_eq!(removed["status"]["phase"], "Failed", "{removed:#}");
    let ended = &removed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&7.into(), &"Error".into()), "{removed:#}");
    assert_eq!(crictl.ok(&["pods", "-q"]), "", "the runtime has no sandbox of the removed pod");
    player.run("a", &manifest);
    running(&player, "a");
    assert!(player.removed("a").is_none(), "the restarted pod replaces the removed pod of its name");
    assert_eq!(player.stop().code(), Some(143));
}
