//! `make image-test`: the container image as the pod of docker/daemonset.yaml on a real containerd,
//! with crictl through it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Crictl;
use fixtures::machine::{free_address, program_under_test, repository};
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Environment variable with the path of the image archive, which `tests/run image` builds.
const ARCHIVE: &str = "PROBESHIM_IMAGE";

/// Name of the image in the archive.
const IMAGE: &str = "probeshim.test/probeshim:test";

/// The CRI's `NamespaceMode` POD: a namespace of the pod.
const POD_NAMESPACE: i32 = 0;

/// The CRI's `NamespaceMode` NODE: the namespace of the node.
const NODE_NAMESPACE: i32 = 2;

/// Manifest of the documented pod.
const MANIFEST: &str = "docker/daemonset.yaml";

#[test]
fn crictl_works_through_the_pod_of_the_manifest() {
    let archive = need!(
        std::env::var(ARCHIVE).map_err(|_| "the image is not built (run `make image-test`)".to_owned())
    );
    let containerd = need!(Containerd::start(Version::V2_2));
    containerd.import_archive(Path::new(&archive));
    let folder = containerd.folder();
    let direct = need!(Crictl::new("crictl-1.36", &containerd.socket(), folder));
    let node = Node::new(folder, &containerd.socket());
    let (socket, admin) =
        (node.path("/run/probeshim/probeshim.sock"), node.path("/run/probeshim/admin.sock"));

    let manifest = manifest();
    let [sandbox, container] = node.configs(&manifest);
    let relay = direct.ok(&["runp", &sandbox]);
    let container = direct.ok(&["create", &relay, &container, &sandbox]);
    direct.ok(&["start", &container]);
    wait_for("the image listens", || UnixStream::connect(&socket).ok());
    for probe in ["livenessProbe", "readinessProbe"] {
        let command = manifest["containers"][0][probe]["exec"]["command"].as_array().unwrap();
        let command = command.iter().map(|argument| argument.as_str().unwrap());
        let execute: Vec<&str> = ["exec", "-s", &container].into_iter().chain(command).collect();
        wait_for(probe, || (direct.run(&execute).stdout.trim() == "ok").then_some(()));
    }

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

#[test]
fn the_manifest_is_valid() {
    let check = Command::new(program_under_test())
        .args(["check", MANIFEST])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

/// Returns the spec of the manifest's pod.
fn manifest() -> Value {
    let text = fs::read_to_string(repository().join(MANIFEST)).unwrap();
    let manifest: Value = serde_saphyr::from_str(&text).unwrap();
    manifest["spec"]["template"]["spec"].clone()
}

/// A directory in the place of the node's root directory, because this machine may have a
/// probeshim of its own.
struct Node<'a> {
    folder: &'a Path,
    http: SocketAddr,
}

impl<'a> Node<'a> {
    /// Creates the directory, with the runtime's socket at its usual path.
    fn new(folder: &'a Path, runtime: &Path) -> Self {
        let node = Self { folder, http: free_address() };
        let usual = node.path("/run/containerd/containerd.sock");
        fs::create_dir_all(usual.parent().unwrap()).unwrap();
        fs::hard_link(runtime, usual).unwrap();
        node
    }

    /// Returns the path on this machine of a path on the node.
    fn path(&self, path: &str) -> PathBuf {
        self.folder.join("node").join(path.trim_start_matches('/'))
    }

    /// Writes the configurations of the sandbox and of the container of a pod, as a kubelet sends
    /// them, and returns their paths. The image, the node's paths and the HTTP address are those of
    /// the test.
    fn configs(&self, spec: &Value) -> [String; 2] {
        let spec_container = &spec["containers"][0];
        assert_eq!(spec_container["image"], "docker.io/library/probeshim:latest", "`make image` tags it");
        let namespace = |field: &str| if spec[field] == true { NODE_NAMESPACE } else { POD_NAMESPACE };
        let security = json!({
            "privileged": spec_container["securityContext"]["privileged"],
            "namespace_options": {
                "network": namespace("hostNetwork"), "pid": namespace("hostPID"), "ipc": namespace("hostIPC"),
            },
        });
        let sandbox = json!({
            "metadata": {"name": "probeshim", "namespace": "kube-system", "uid": "uid-probeshim"},
            "log_directory": self.folder.join("logs/probeshim"),
            "linux": {"security_context": security},
        });
        let mut arguments = spec_container["args"].as_array().unwrap().clone();
        arguments.extend(["--http".into(), self.http.to_string().into()]);
        let mounts = spec_container["volumeMounts"].as_array().unwrap().iter();
        let mounts: Vec<Value> = mounts.map(|mount| self.mount(spec, mount)).collect();
        let container = json!({
            "metadata": {"name": spec_container["name"]},
            "image": {"image": IMAGE},
            "args": arguments,
            "mounts": mounts,
            "log_path": "probeshim.log",
            "linux": {"security_context": security},
        });
        fs::create_dir_all(self.folder.join("logs/probeshim")).unwrap();
        [("sandbox", sandbox), ("container", container)].map(|(kind, config)| {
            let path: PathBuf = self.folder.join(format!("probeshim-{kind}.json"));
            fs::write(&path, config.to_string()).unwrap();
            path.to_str().unwrap().to_owned()
        })
    }

    /// Returns the mount of a volume, whose directory is created.
    fn mount(&self, spec: &Value, mount: &Value) -> Value {
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let host_path = self.path(volume["hostPath"]["path"].as_str().unwrap());
        fs::create_dir_all(&host_path).unwrap();
        json!({"host_path": host_path, "container_path": mount["mountPath"]})
    }
}
