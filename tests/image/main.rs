//! `make image-test`: the container image as a privileged pod on a real containerd, with crictl
//! through it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Crictl;
use fixtures::machine::program_under_test;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Environment variable with the path of the image archive, which `tests/run image` builds.
const ARCHIVE: &str = "PROBESHIM_IMAGE";

/// Name of the image in the archive.
const IMAGE: &str = "probeshim.test/probeshim:test";

/// The CRI's `NamespaceMode` NODE: the namespace of the node.
const NODE_NAMESPACE: i32 = 2;

#[test]
fn crictl_works_through_the_image_in_a_privileged_pod() {
    let archive = need!(
        std::env::var(ARCHIVE).map_err(|_| "the image is not built (run `make image-test`)".to_owned())
    );
    let containerd = need!(Containerd::start(Version::V2_2));
    containerd.import_archive(Path::new(&archive));
    let folder = containerd.folder();
    let direct = need!(Crictl::new("crictl-1.36", &containerd.socket(), folder));
    let (socket, admin) = (folder.join("image/probeshim.sock"), folder.join("image/admin.sock"));
    fs::create_dir(folder.join("image")).unwrap();

    let [sandbox, container] = configs(folder, &containerd.socket(), &socket, &admin);
    let relay = direct.ok(&["runp", &sandbox]);
    let container = direct.ok(&["create", &relay, &container, &sandbox]);
    direct.ok(&["start", &container]);
    wait_for("the image listens", || UnixStream::connect(&socket).ok());

    let relayed = need!(Crictl::new("crictl-1.36", &socket, folder));
    let pod = Pod::new(&relayed, folder, "behind");
    assert_eq!(relayed.ok(&["exec", "-s", &pod.container, "echo", "through the image"]), "through the image");
    assert!(relayed.ok(&["ps", "--quiet"]).contains(&container), "its own container is listed");
    let shown = Command::new(program_under_test())
        .args(["calls", "--method", "ExecSync", "-o", "json", "--admin"])
        .arg(&admin)
        .output()
        .unwrap();
    let calls: Vec<Value> = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(calls.len(), 1, "{}", String::from_utf8_lossy(&shown.stderr));
    assert_eq!((&calls[0]["code"], &calls[0]["pod"]["name"]), (&"OK".into(), &"behind".into()));
    assert_eq!(calls[0]["peer"]["program"], "crictl", "{}", calls[0]["peer"]);
    pod.remove(&relayed);

    direct.ok(&["stop", "--timeout", "10", &container]);
    let status: Value = serde_json::from_str(&direct.ok(&["inspect", &container])).unwrap();
    assert_eq!(status["status"]["exitCode"], 0, "{}", direct.run(&["logs", &container]).stderr);
    assert!(!socket.exists(), "probeshim left its socket behind");
}

/// Writes the configurations of the sandbox and of the relay's container, and returns their paths.
fn configs(folder: &Path, upstream: &Path, socket: &Path, admin: &Path) -> [String; 2] {
    let security = json!({
        "privileged": true,
        "namespace_options": {"network": NODE_NAMESPACE, "pid": NODE_NAMESPACE, "ipc": NODE_NAMESPACE},
    });
    let sandbox = json!({
        "metadata": {"name": "probeshim", "namespace": "kube-system", "uid": "uid-probeshim"},
        "log_directory": folder.join("logs/probeshim"),
        "linux": {"security_context": security},
    });
    let container = json!({
        "metadata": {"name": "probeshim"},
        "image": {"image": IMAGE},
        "args": ["run", "--listen", socket, "--upstream", upstream, "--admin", admin, "--http", "off",
                 "--state-dir", folder.join("image/state")],
        "mounts": [{"host_path": folder, "container_path": folder}],
        "log_path": "probeshim.log",
        "linux": {"security_context": security},
    });
    fs::create_dir_all(folder.join("logs/probeshim")).unwrap();
    [("sandbox", sandbox), ("container", container)].map(|(kind, config)| {
        let path: PathBuf = folder.join(format!("probeshim-{kind}.json"));
        fs::write(&path, config.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    })
}
