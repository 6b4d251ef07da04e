//! Images of a private registry on containerd: only pods with the credentials use them.

use std::fs;

use fixtures::containerd::{Containerd, Version};
use fixtures::image::{Image, Store};
use fixtures::machine::program;
use fixtures::need;
use fixtures::registry::{AUTH, Registry};
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::play::Player;
use fixtures::wait::wait_for;
use serde_json::Value;

/// Name of the image in the private registry.
const PRIVATE: &str = "registry.test/private:1";

/// Returns a Secret with these credentials for the registry.
fn secret(name: &str, auth: &str) -> String {
    let config = format!(r#"{{"auths": {{"registry.test": {{"auth": "{auth}"}}}}}}"#);
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: e2e}}, type: kubernetes.io/dockerconfigjson, \
         stringData: {{.dockerconfigjson: '{config}'}}}}"
    )
}

/// Returns a pod with this pull secret and pull policy.
fn pod(name: &str, secret: &str, image: &str, policy: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: e2e}}, spec: {{terminationGracePeriodSeconds: 1, \
         imagePullSecrets: [{{name: {secret}}}], containers: [{{name: main, image: {image}, \
         imagePullPolicy: {policy}, command: [sh, -c, \"trap 'exit 0' TERM; while true; do sleep 0.1; done\"]}}]}}}}"
    )
}

fn container(player: &Player, name: &str) -> Option<Value> {
    Some(player.pod(name)?["status"]["containerStatuses"][0].clone())
}

/// Waits until the container of a pod waits for this reason, and returns the message.
fn waiting(player: &Player, name: &str, reason: &str) -> String {
    wait_for(&format!("{name}: {reason}"), || {
        let waiting = container(player, name)?["state"]["waiting"].clone();
        (waiting["reason"] == reason).then(|| waiting["message"].as_str().unwrap_or_default().to_owned())
    })
}

/// Waits until the container of a pod runs, and returns the name of its image.
fn running(player: &Player, name: &str) -> String {
    wait_for(&format!("{name} runs"), || {
        let status = container(player, name)?;
        let image = status["image"].as_str()?.to_owned();
        (status["state"]["running"] != Value::Null).then_some(image)
    })
}

#[test]
fn a_private_image_is_refused_to_pods_without_its_credentials_also_after_a_restart() {
    let mut store = Store::new(&need!(program("busybox", "busybox-static")));
    store.add(Image { name: PRIVATE, user: "", command: &["/bin/sh"] });
    let registry = Registry::serve_privately(store);
    let containerd = need!(Containerd::start(Version::V2_2));
    let folder = containerd.folder();
    fs::create_dir_all(folder.join("certs.d/_default")).unwrap();
    fs::write(folder.join("certs.d/_default/hosts.toml"), registry.hosts_toml()).unwrap();
    let mut player = Player::start(folder, &containerd.socket(), &[]);
    player.run("key", &secret("key", AUTH));
    player.run("copy", &secret("copy", AUTH));
    player.run("wrong", &secret("wrong", "eW91OndlYWs="));

    player.run("owner", &pod("owner", "key", PRIVATE, "IfNotPresent"));
    assert_eq!(running(&player, "owner"), PRIVATE);
    assert_eq!(player.count("owner", "Pulled", &format!("Successfully pulled image \"{PRIVATE}\"")), 1);
    for secret in ["absent", "wrong"] {
        let name = format!("with-{secret}");
        player.run(&name, &pod(&name, secret, PRIVATE, "IfNotPresent"));
        let message = waiting(&player, &name, "ImagePullBackOff");
        let begin = format!("Back-off pulling image \"{PRIVATE}\": ErrImagePull: ");
        assert!(
            message.starts_with(&begin) && message.contains("failed to pull and unpack image"),
            "{message}"
        );
    }
    let invalid = waiting_for_invalid_name(&player);
    assert!(invalid.contains("must be lowercase"), "{invalid}");

    player.crash_and_restart();
    player.run("other", &pod("other", "copy", PRIVATE, "Never"));
    running(&player, "other");
    player.run("never", &pod("never", "wrong", PRIVATE, "Never"));
    let message = waiting(&player, "never", "ErrImageNeverPull");
    assert_eq!(message, format!("Container image \"{PRIVATE}\" is not present with pull policy of Never"));
    assert_eq!(player.stop().code(), Some(143));
}

/// Plays a pod whose image has no valid name, and returns the message of its container.
fn waiting_for_invalid_name(player: &Player) -> String {
    player.run("invalid", &pod("invalid", "key", "registry.test/Private", "Always"));
    waiting(player, "invalid", "InvalidImageName")
}
