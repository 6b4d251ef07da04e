//! A real kubelet without an API server: it runs the pods whose manifests lie in a folder.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::http::get;
use super::image::BUSYBOX;
use super::machine::{free_address, program, tool};
use super::server::{Server, wait_for};

/// The namespace of the pods.
const NAMESPACE: &str = "e2e";

/// The name of the node. Names of static pods end with it.
pub(crate) const NODE: &str = "node";

/// Speaks to the port with TLS, whose certificate is the kubelet's own.
const PORT_CLIENT: &str = include_str!("kubelet_port.py");

/// A kubelet that runs.
#[derive(Debug)]
pub(crate) struct Kubelet {
    server: Option<Server>,
    program: PathBuf,
    folder: PathBuf,
    /// Its port with TLS: logs, exec, metrics.
    secure: SocketAddr,
    /// Its port that tells of pods, without TLS.
    read_only: SocketAddr,
    healthz: SocketAddr,
}

impl Kubelet {
    /// Starts one on the runtime behind `socket`, with everything that is its own in `folder`.
    pub(crate) fn start(folder: &Path, socket: &Path) -> Result<Self, String> {
        Self::start_at(folder, socket, free_address())
    }

    /// The same, with this port for those who speak TLS.
    pub(crate) fn start_at(folder: &Path, socket: &Path, secure: SocketAddr) -> Result<Self, String> {
        let kubelet = tool("kubelet-1.36")?.join("kubelet");
        program("python3", "python3")?;
        fs::create_dir_all(folder.join("manifests")).unwrap();
        let [read_only, healthz] = [(); 2].map(|()| free_address());
        let at = |name: &str| folder.join(name);
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": format!("unix://{}", socket.display()),
            "staticPodPath": at("manifests"),
            "podLogsDir": at("pod-logs"),
            "cgroupDriver": "cgroupfs",
            // Its groups would be those of the whole machine, where another kubelet's would be in its way.
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            "makeIPTablesUtilChains": false,
            "oomScoreAdj": 0,
            "resolvConf": "",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "address": "127.0.0.1",
            "port": secure.port(),
            "readOnlyPort": read_only.port(),
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": healthz.port(),
            // Manifests are looked at when they change, and this often.
            "fileCheckFrequency": "1s",
            "volumePluginDir": at("volume-plugins"),
        });
        fs::write(at("kubelet.json"), config.to_string()).unwrap();
        let folder = folder.to_owned();
        let mut kubelet = Self { server: None, program: kubelet, folder, secure, read_only, healthz };
        kubelet.launch();
        Ok(kubelet)
    }

    fn launch(&mut self) {
        // Some places are fixed: its links to logs and the sockets of device plugins. Those of this machine's own kubelet, if it has
        // one, are hidden from ours.
        let hidden = r#"mount -t tmpfs none /var/lib && mount -t tmpfs none /var/log && exec "$0" "$@""#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", hidden]).arg(&self.program);
        command.arg("--root-dir").arg(self.folder.join("kubelet"));
        command.arg("--config").arg(self.folder.join("kubelet.json"));
        command.arg("--cert-dir").arg(self.folder.join("kubelet-pki"));
        command.args(["--hostname-override", NODE]);
        let server =
            self.server.insert(Server::start("kubelet", &mut command, &self.folder.join("kubelet.log")));
        server.wait_until(|_| get(self.healthz, "/healthz").is_ok_and(|answer| answer == "ok"));
    }

    /// Kills it, as a crash would, and starts it again; pods live on.
    pub(crate) fn crash_and_restart(&mut self) {
        self.server.take().unwrap().crash();
        self.launch();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("kubelet.log")).unwrap_or_default()
    }

    /// Gives it a pod to run.
    pub(crate) fn run(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let path = self.folder.join("manifests").join(format!("{name}.json"));
        // Written elsewhere and moved, so that it never sees a half.
        let new = self.folder.join("new.json");
        fs::write(&new, pod.to_string()).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Takes a pod away.
    pub(crate) fn forget(&self, name: &str) {
        fs::remove_file(self.folder.join("manifests").join(format!("{name}.json"))).unwrap();
    }

    /// How all pods stand that the kubelet knows.
    pub(crate) fn pods(&self) -> Vec<Value> {
        let pods =
            get(self.read_only, "/pods").ok().and_then(|pods| serde_json::from_str::<Value>(&pods).ok());
        pods.and_then(|pods| pods["items"].as_array().cloned()).unwrap_or_default()
    }

    /// How the pod of this manifest stands, if the kubelet knows it.
    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        let name = format!("{name}-{NODE}");
        self.pods().into_iter().find(|pod| pod["metadata"]["name"] == name.as_str())
    }

    /// Waits until a pod's first container is as it should be, and returns its status.
    pub(crate) fn container_when(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        wait_for(&format!("{name}: {what}"), || {
            let status = self.pod(name)?["status"]["containerStatuses"][0].clone();
            is(&status).then_some(status)
        })
    }

    /// What a container has printed, read through the kubelet.
    pub(crate) fn logs(&self, pod: &str) -> String {
        self.ask_port("get", &format!("/containerLogs/{NAMESPACE}/{pod}-{NODE}/main"), &[])
    }

    /// What a script in a container printed on stdout and stderr, and whether it went well, run through the kubelet.
    pub(crate) fn exec(&self, pod: &str, script: &str) -> [String; 3] {
        let path = format!("/exec/{NAMESPACE}/{pod}-{NODE}/main");
        serde_json::from_str(&self.ask_port("exec", &path, &["sh", "-c", script])).unwrap()
    }

    /// How many probes of a pod have failed.
    pub(crate) fn failed_probes(&self, pod: &str) -> u64 {
        let pod = format!("pod=\"{pod}-{NODE}\"");
        let metrics = self.ask_port("get", "/metrics/probes", &[]);
        let counts = metrics.lines().filter(|line| line.contains(&pod) && line.contains("result=\"failed\""));
        counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    }

    fn ask_port(&self, verb: &str, path: &str, words: &[&str]) -> String {
        let mut command = Command::new("python3");
        command.args(["-c", PORT_CLIENT, verb, &self.secure.port().to_string(), path]).args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// What a kubelet says of the containers of a pod, of those that run before the others as well.
pub(crate) fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["containerStatuses", "initContainerStatuses"].map(|field| &pod["status"][field]);
    lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten())
}

/// A pod with one container, `main`, which runs a script, and its liveness probe, or null.
pub(crate) fn manifest(name: &str, script: &str, liveness: &Value) -> Value {
    let main = json!({
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "livenessProbe": liveness,
    });
    manifest_of(name, &json!({"terminationGracePeriodSeconds": 1, "containers": [main]}))
}

/// A pod of this spec.
pub(crate) fn manifest_of(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    })
}
