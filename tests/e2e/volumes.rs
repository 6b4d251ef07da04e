//! subPaths on containerd: their content in containers, and the mounts that remain.

use std::fs;
use std::path::Path;
use std::process::Command;

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Crictl;
use fixtures::image::BUSYBOX;
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::play::Player;
use fixtures::wait::{looks, wait_for};
use serde_json::Value;

/// Returns a pod whose init container fills a volume, and whose main container mounts parts of that
/// volume.
fn manifest(name: &str) -> String {
    let container = format!("image: {BUSYBOX}, imagePullPolicy: Never");
    format!(
        "
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: e2e}}, data: {{key: of {name}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: e2e, uid: uid-of-{name}}}
spec:
  terminationGracePeriodSeconds: 2
  initContainers:
  - {{name: fill, {container}, command: [sh, -c, 'echo written by {name} > /v/file'], volumeMounts: [{{name: v, mountPath: /v, subPath: a/b}}]}}
  containers:
  - name: main
    image: {BUSYBOX}
    imagePullPolicy: Never
    command: [sh, -c, \"trap 'exit 0' TERM; while true; do sleep 0.2; done\"]
    volumeMounts:
    - {{name: v, mountPath: /directory, subPath: a/b}}
    - {{name: v, mountPath: /file, subPath: a/b/file}}
    - {{name: c, mountPath: /config, subPath: key}}
    - {{name: c, mountPath: /whole}}
  volumes:
  - {{name: v, emptyDir: {{}}}}
  - {{name: c, configMap: {{name: {name}}}}}
"
    )
}

/// Returns the manifest with an additional container that also has a subPath.
fn with_extra(name: &str) -> String {
    let extra = format!(
        "  - {{name: extra, image: {BUSYBOX}, imagePullPolicy: Never, command: [sleep, '100000'], volumeMounts: [{{name: c, mountPath: /config, subPath: key}}]}}\n  volumes:"
    );
    manifest(name).replace("  volumes:", &extra)
}

/// Returns the mount points of subPaths that this host has for the pods of a player.
fn mounted(folder: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let folder = folder.join("state/pods").display().to_string();
    points
        .filter(|point| point.starts_with(&folder) && point.contains("/volume-subpaths/"))
        .map(str::to_owned)
        .collect()
}

/// Returns the id of the pod's container once the container is running.
fn running(player: &Player, name: &str) -> String {
    wait_for(&format!("{name} runs"), || {
        let status = player.pod(name)?["status"]["containerStatuses"][0].clone();
        let is_running = status["state"]["running"] != Value::Null && status["restartCount"] == 0;
        let id = status["containerID"].as_str()?.strip_prefix("containerd://")?.to_owned();
        is_running.then_some(id)
    })
}

#[test]
fn subpaths_are_mounted_only_while_their_containers_run_also_if_play_is_killed() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let crictl = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let folder = containerd.folder().canonicalize().unwrap();
    let mut player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    let find = |id: &str, name: &str| {
        let found =
            crictl.ok(&["exec", "-s", id, "cat", "/directory/file", "/file", "/config", "/whole/key"]);
        assert_eq!(found, format!("written by {name}\nwritten by {name}\nof {name}of {name}"));
    };
    for name in ["first", "second"] {
        player.run(name, &manifest(name));
    }
    let ids = ["first", "second"].map(|name| {
        let id = running(&player, name);
        find(&id, name);
        id
    });
    // The mounts of the init containers are gone with the init containers.
    wait_for("only mounts of running containers are left", || (mounted(&folder).len() == 6).then_some(()));
    assert!(mounted(&folder).iter().all(|point| point.contains("/main/")), "{:?}", mounted(&folder));

    player.crash_and_restart();
    for (name, id) in ["first", "second"].into_iter().zip(&ids) {
        assert_eq!(&running(&player, name), id, "{name} is adopted");
        find(id, name);
    }
    assert_eq!(mounted(&folder).len(), 6);
    // A process has its working directory on a mount of the pod that is removed.
    let point = mounted(&folder)
        .into_iter()
        .find(|point| point.contains("uid-of-first") && Path::new(point).is_dir());
    let mut busy = Command::new("sleep").arg("infinity").current_dir(point.unwrap()).spawn().unwrap();
    player.forget("first");
    let retried = "removal of a pod's files failed and is retried";
    let is_retried = looks().any(|()| player.log().contains(retried));
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert!(is_retried, "the removal of a mount in use is retried: {}", player.log());
    wait_for("the mounts of the removed pod are gone", || (mounted(&folder).len() == 3).then_some(()));
    wait_for("the first pod's files are gone", || {
        (!folder.join("state/pods/uid-of-first").exists()).then_some(())
    });

    // No source has the other pod any more when probeshim restarts.
    player.crash();
    assert_eq!(mounted(&folder).len(), 3);
    player.forget("second");
    player.restart();
    wait_for("the mounts of an earlier run are gone", || mounted(&folder).is_empty().then_some(()));
    wait_for("the second pod's files are gone", || {
        (!folder.join("state/pods/uid-of-second").exists()).then_some(())
    });
    let wrong = need!(player.ends_cleanly(&containerd));
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_container_removed_from_its_manifest_leaves_no_mounts() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let crictl = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let folder = containerd.folder().canonicalize().unwrap();
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    player.run("pod", &with_extra("pod"));
    wait_for("both containers have their mounts", || (mounted(&folder).len() == 4).then_some(()));
    let extra = wait_for("the container that leaves the manifest runs", || {
        let ids = crictl.ok(&["ps", "-q", "--name", "extra", "--state", "running"]);
        Some(ids.trim().to_owned()).filter(|id| !id.is_empty())
    });
    player.run("pod", &manifest("pod"));
    wait_for("the container has left the manifest", || {
        let count = player.pod("pod")?["spec"]["containers"].as_array()?.len();
        (count == 1).then_some(())
    });
    assert_eq!(mounted(&folder).len(), 4, "the container still runs");
    crictl.ok(&["stop", "-t", "0", &extra]);
    wait_for("the mounts of the stopped container are gone", || (mounted(&folder).len() == 3).then_some(()));
    let wrong = need!(player.ends_cleanly(&containerd));
    assert_eq!(wrong, Vec::<String>::new());
}

/// The mount namespace is private, as under systemd with `PrivateMounts=`.
#[test]
fn a_private_mount_namespace_is_reported_and_fails_containers_with_subpaths() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let folder = containerd.folder().canonicalize().unwrap();
    let unshare = ["unshare", "--mount", "--propagation", "private"];
    let player = Player::start_by(&unshare, containerd.folder(), &containerd.socket(), &[]);
    let told = "the runtime (pid ";
    wait_for("the private mount namespace is reported at the start", || {
        let is_it = |event: &Value| {
            event["reason"] == "MountsUnreachable"
                && event["message"].as_str().is_some_and(|it| {
                    it.contains(told) && it.ends_with("and emptyDirs in memory are on disk")
                })
        };
        player.list(&["events"]).iter().any(is_it).then_some(())
    });
    player.run("private", &manifest("private"));
    let message = wait_for("the private mount namespace is reported at the container", || {
        let waiting =
            player.pod("private")?["status"]["initContainerStatuses"][0]["state"]["waiting"].clone();
        (waiting["reason"] == "CreateContainerConfigError")
            .then(|| waiting["message"].as_str().map(str::to_owned))?
    });
    let told = format!("mounts of subPaths cannot reach the runtime: {told}");
    assert!(message.starts_with(&told) && message.contains("is not shared"), "{message}");
    assert_eq!(mounted(&folder), Vec::<String>::new());
    let wrong = need!(player.ends_cleanly(&containerd));
    assert_eq!(wrong, Vec::<String>::new());
}
