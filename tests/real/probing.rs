//! Pods as their manifests say, made with crictl, and probed by probeshim.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::containerd::{Containerd, Version};
use super::crictl::Crictl;
use super::image::BUSYBOX;
use super::life::Runtime as _;
use super::machine::tool;
use super::server::wait_for;
use super::shim::Probeshim;

/// Where containers find what is probed.
pub(crate) const PROBES: &str = "/probes/probes";

/// A containerd with pods that probeshim probes.
pub(crate) struct Probing {
    pub(crate) shim: Probeshim,
    pub(crate) crictl: Crictl,
    pub(crate) containerd: Containerd,
    probes: PathBuf,
}

/// A pod that is there.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) sandbox: String,
    /// The ids of its containers, in the order of the manifest, those that run before the others first.
    pub(crate) containers: Vec<String>,
}

impl Probing {
    /// Starts a containerd and probeshim, which is told of these pods, and what to do about them.
    pub(crate) fn start(manifests: &[Value], mode: &str) -> Result<Self, String> {
        let probes = tool("probes-1.36")?;
        let containerd = Containerd::start(Version::V2_2)?;
        let folder = containerd.folder().join("pods");
        std::fs::create_dir(&folder).unwrap();
        for (place, manifest) in manifests.iter().enumerate() {
            std::fs::write(folder.join(format!("{place:03}.json")), manifest.to_string()).unwrap();
        }
        let flags = ["--enforce", mode, "--manifests", folder.to_str().unwrap()];
        let shim = Probeshim::start_with(containerd.folder(), &containerd.socket(), &flags);
        let crictl = Crictl::new("crictl-1.36", shim.socket(), containerd.folder())?;
        Ok(Self { shim, crictl, containerd, probes })
    }

    /// Makes a pod as its manifest says, with names and labels as the kubelet gives them.
    pub(crate) fn run(&self, manifest: &Value) -> Pod {
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        let folder = self.containerd.folder();
        let logs = folder.join("logs").join(&name);
        std::fs::create_dir_all(&logs).unwrap();
        let sandbox = write(
            folder,
            &format!("{name}-sandbox"),
            &json!({
                "metadata": {"name": name, "namespace": "parity", "uid": format!("uid-{name}"), "attempt": 0},
                "log_directory": logs,
                "linux": {},
            }),
        );
        let id = self.crictl.ok(&["runp", &sandbox]);
        let spec = &manifest["spec"];
        let all = [&spec["initContainers"], &spec["containers"]];
        let all = all.into_iter().flat_map(|list| list.as_array().into_iter().flatten());
        let containers = all.map(|container| self.create(&name, &id, &sandbox, container)).collect();
        Pod { name, sandbox: id, containers }
    }

    /// Makes the one container of a pod once more, as somebody does who restarts it.
    pub(crate) fn restart(&self, pod: &Pod, manifest: &Value, attempt: u32) -> String {
        let folder = self.containerd.folder();
        let sandbox = folder.join(format!("{}-sandbox.json", pod.name)).display().to_string();
        let container = &manifest["spec"]["containers"][0];
        self.create_again(&pod.name, &pod.sandbox, &sandbox, container, attempt)
    }

    fn create(&self, pod: &str, id: &str, sandbox: &str, container: &Value) -> String {
        self.create_again(pod, id, sandbox, container, 0)
    }

    fn create_again(&self, pod: &str, id: &str, sandbox: &str, container: &Value, attempt: u32) -> String {
        let folder = self.containerd.folder();
        let name = container["name"].as_str().unwrap();
        let config = write(
            folder,
            &format!("{pod}-{name}"),
            &json!({
                "metadata": {"name": name, "attempt": attempt},
                "image": {"image": BUSYBOX},
                "command": container["command"],
                "annotations": container["annotations"],
                "log_path": format!("{name}.log"),
                "mounts": [{"host_path": self.probes, "container_path": "/probes", "readonly": true}],
                "linux": {},
            }),
        );
        let container = self.crictl.ok(&["create", id, &config, sandbox]);
        self.crictl.ok(&["start", &container]);
        container
    }

    /// What `probeshim status` says of a pod.
    pub(crate) fn status(&self, pod: &str) -> Value {
        let status = self.shim.json(&["status"]);
        let pods = status["pods"].as_array().unwrap();
        pods.iter().find(|known| known["name"] == pod).cloned().unwrap_or_default()
    }

    /// What `probeshim events` says of a pod: reasons and messages, as often as they came.
    pub(crate) fn events(&self, pod: &str) -> Vec<Value> {
        self.shim.list(&["events"]).into_iter().filter(|event| event["pod"] == pod).collect()
    }

    /// How often something was told of a pod.
    pub(crate) fn count(&self, pod: &str, reason: &str, message: &str) -> u64 {
        let is_it = |event: &&Value| {
            event["reason"] == reason && event["message"].as_str().unwrap().contains(message)
        };
        self.events(pod).iter().filter(is_it).map(|event| event["count"].as_u64().unwrap()).sum()
    }

    /// The calls that stopped a container, once there are so many.
    pub(crate) fn stops(&self, container: &str, count: usize) -> Vec<Value> {
        wait_for(&format!("{container} is stopped {count} times"), || {
            let calls = self.shim.list(&["calls", "--method", "StopContainer", "--container", container]);
            (calls.len() >= count).then_some(calls)
        })
    }

    /// Waits until something has been told of a pod so often.
    pub(crate) fn wait_for_event(&self, pod: &str, reason: &str, message: &str, count: u64) {
        wait_for(&format!("{reason} {message:?} of {pod}"), || {
            (self.count(pod, reason, message) >= count).then_some(())
        });
    }

    /// When a container of a pod was seen to be ready first, within a while: how long after a time.
    pub(crate) fn ready_after(&self, pod: &str, container: &str, since: SystemTime) -> Option<Duration> {
        let is_ready = |status: &Value| {
            let containers = status["containers"].as_array().cloned().unwrap_or_default();
            containers.iter().any(|known| known["name"] == container && known["ready"] == true)
        };
        is_ready(&self.status(pod)).then(|| since.elapsed().unwrap())
    }
}

/// Gives the containers of a pod their image, and what is probed from its folder on this host.
pub(crate) fn dress(spec: &mut Value, probes: &Path) {
    let add = |to: &mut Value, field: &str, what: Value| {
        let list = to.as_object_mut().unwrap().entry(field).or_insert_with(|| json!([]));
        list.as_array_mut().unwrap().push(what);
    };
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container["image"] = BUSYBOX.into();
            container["imagePullPolicy"] = "Never".into();
            let folder = PROBES.rsplit_once('/').unwrap().0;
            add(container, "volumeMounts", json!({"name": "probes", "mountPath": folder, "readOnly": true}));
        }
    }
    add(spec, "volumes", json!({"name": "probes", "hostPath": {"path": probes}}));
}

fn write(folder: &Path, name: &str, config: &Value) -> String {
    let path = folder.join(format!("{name}.json"));
    std::fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}
