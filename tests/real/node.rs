//! A node: a real kubelet on a real containerd, directly or through the relay.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::containerd::{Containerd, Version};
use super::crictl::Crictl;
use super::kubelet::{Kubelet, NODE, manifest};
use super::life::Runtime as _;
use super::machine::free_address;
use super::server::wait_for;
use super::shim::Probeshim;

/// What stands in a kubelet's log where its connection to the runtime failed it.
const TRANSPORT_ERRORS: [&str; 6] =
    ["code = Unavailable", "transport: ", "connection refused", ": EOF", "GOAWAY", "RST_STREAM"];

/// A kubelet on a containerd.
#[derive(Debug)]
pub(crate) struct Node {
    // In the order in which they go.
    pub(crate) kubelet: Kubelet,
    pub(crate) shim: Option<Probeshim>,
    crictl: Crictl,
    /// The pods that go on.
    pods: Vec<String>,
    pub(crate) containerd: Containerd,
}

/// What can be restarted under running pods.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// probeshim, if it is there.
    Probeshim,
    /// containerd, by a crash.
    Containerd,
    /// The kubelet, by a crash.
    Kubelet,
}

/// The id of the one running container of each pod.
pub(crate) type Running = BTreeMap<String, String>;

impl Node {
    /// Starts all of it, with or without a relay between.
    pub(crate) fn start(relayed: bool) -> Result<Self, String> {
        let containerd = Containerd::start(Version::V2_2)?;
        let shim = relayed.then(|| Probeshim::start(containerd.folder(), &containerd.socket()));
        let endpoint = shim.as_ref().map_or_else(|| containerd.socket(), |shim| shim.socket().to_owned());
        let crictl = Crictl::new("crictl-1.36", &endpoint, containerd.folder())?;
        let kubelet = Kubelet::start(containerd.folder(), &endpoint)?;
        let pods = ["healthy", "steady"].map(str::to_owned).into();
        Ok(Self { kubelet, shim, crictl, pods, containerd })
    }

    /// The same with a relay that makes the pods' probes itself; this kubelet tells it of them.
    pub(crate) fn start_probing(mode: &str) -> Result<Self, String> {
        let containerd = Containerd::start(Version::V2_2)?;
        let (config, token) = (containerd.folder().join("config.yaml"), containerd.folder().join("token"));
        // The kubelet is not there yet, and cannot be before the relay is.
        let port = free_address();
        std::fs::write(&token, "nobody checks it here").unwrap();
        let text = format!(
            "enforce: {mode}\nkubelet: {{url: 'https://{port}', insecureSkipVerify: true, tokenFile: {}, interval: 1s}}\n",
            token.display()
        );
        std::fs::write(&config, text).unwrap();
        let shim = Probeshim::start(containerd.folder(), &containerd.socket());
        let crictl = Crictl::new("crictl-1.36", shim.socket(), containerd.folder())?;
        let kubelet = Kubelet::start_at(containerd.folder(), shim.socket(), port)?;
        Ok(Self { kubelet, shim: Some(shim), crictl, pods: Vec::new(), containerd })
    }

    /// The same with a relay that kills what fails by these manifests. This kubelet is told of no probes, and restarts what has ended.
    pub(crate) fn start_killing(manifests: &Path) -> Result<Self, String> {
        let containerd = Containerd::start(Version::V2_2)?;
        let flags = ["--enforce", "kill", "--max-kills", "off", "--manifests", manifests.to_str().unwrap()];
        let shim = Probeshim::start_with(containerd.folder(), &containerd.socket(), &flags);
        let crictl = Crictl::new("crictl-1.36", shim.socket(), containerd.folder())?;
        let kubelet = Kubelet::start(containerd.folder(), shim.socket())?;
        Ok(Self { kubelet, shim: Some(shim), crictl, pods: Vec::new(), containerd })
    }

    /// Lives with three pods: one that goes on, one whose liveness probe passes, and one whose probe fails until it is restarted.
    /// Returns what was seen, which is the same whatever the way to the runtime.
    pub(crate) fn live(&self) -> Vec<String> {
        let command = ["sh", "-c", "test -f /tmp/healthy && echo probed >> /tmp/probes"];
        // Patient, for machines that are busy; a probe that fails does so at once.
        let probe = json!({
            "exec": {"command": command},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 2,
        });
        let kubelet = &self.kubelet;
        kubelet.run(&manifest("steady", "echo started; sleep 100000", &Value::Null));
        kubelet.run(&manifest("healthy", "touch /tmp/healthy; sleep 100000", &probe));
        kubelet.run(&manifest(
            "probed",
            "echo started; touch /tmp/healthy; sleep 2; rm /tmp/healthy; sleep 100000",
            &probe,
        ));
        let mut seen = Vec::new();
        for name in ["steady", "healthy"] {
            let status =
                kubelet.container_when(name, "running", |status| status["state"]["running"].is_object());
            seen.push(format!("{name}: ready {} restarts {}", status["ready"], status["restartCount"]));
        }
        let restarted = kubelet
            .container_when("probed", "restarted", |status| status["restartCount"].as_u64() >= Some(1));
        let last = &restarted["lastState"]["terminated"];
        seen.push(format!("probed: restarted, exit code {} reason {}", last["exitCode"], last["reason"]));
        seen.push(format!("probed: failed {}", kubelet.failed_probes("probed") >= 2));
        seen.push(format!("logs: {}", kubelet.logs("steady")));
        seen.push(format!("exec: {:?}", kubelet.exec("steady", "echo out; echo err >&2")));
        seen.push(format!("failing exec: {:?}", kubelet.exec("steady", "exit 3")));
        kubelet.forget("probed");
        wait_for("probed is gone", || self.containers("probed").is_empty().then_some(()));
        seen
    }

    /// Gives the kubelet one more pod that goes on.
    pub(crate) fn runs_another(&mut self, name: &str) {
        self.kubelet.run(&manifest(name, "sleep 100000", &Value::Null));
        self.pods.push(name.to_owned());
    }

    /// The one running container of each pod that goes on; waits until each has one, in one sandbox.
    pub(crate) fn running(&self) -> Running {
        wait_for("one sandbox and one container for each pod", || {
            let running = self.pods.iter().map(|name| (name, self.containers(name), self.sandboxes(name)));
            let running: Vec<_> = running.collect();
            let is_one =
                running.iter().all(|(_, containers, sandboxes)| containers.len() == 1 && *sandboxes == 1);
            is_one.then(|| {
                running.into_iter().map(|(name, mut ids, _)| (name.clone(), ids.remove(0))).collect()
            })
        })
    }

    /// The running containers of a pod.
    fn containers(&self, pod: &str) -> Vec<String> {
        let ids = self.crictl.run(&["ps", "--quiet", "--label", &label(pod)]);
        ids.stdout.split_whitespace().map(str::to_owned).collect()
    }

    /// How many containers each of the pods has had that were there from the start. Theirs have never ended.
    pub(crate) fn containers_ever(&self) -> Vec<usize> {
        let all = |pod: &str| self.crictl.run(&["ps", "--all", "--quiet", "--label", &label(pod)]).stdout;
        ["healthy", "steady"].map(|pod| all(pod).split_whitespace().count()).into()
    }

    /// How many sandboxes of a pod are ready.
    fn sandboxes(&self, pod: &str) -> usize {
        let ids = self.crictl.run(&["pods", "--quiet", "--state", "ready", "--label", &label(pod)]);
        ids.stdout.split_whitespace().count()
    }

    /// Waits until the pod whose probe passes has been probed so many times more.
    pub(crate) fn wait_for_probes(&self, times: usize) {
        let before = wait_for("a probe", || self.probes());
        wait_for("probes go on", || (self.probes()? >= before + times).then_some(()));
    }

    /// How often the pod whose probe passes has been probed, if it can be asked.
    fn probes(&self) -> Option<usize> {
        let [id] = &self.containers("healthy")[..] else { return None };
        let probes = self.crictl.run(&["exec", "-s", id, "cat", "/tmp/probes"]);
        (probes.code == Some(0)).then(|| probes.stdout.lines().count())
    }

    /// Restarts a part, and waits until the kubelet and the runtime speak again: until pods are probed.
    pub(crate) fn restart(&mut self, part: Part) {
        match part {
            Part::Probeshim => {
                if let Some(shim) = &mut self.shim {
                    shim.restart();
                }
            }
            Part::Containerd => self.containerd.crash_and_restart(),
            Part::Kubelet => self.kubelet.crash_and_restart(),
        }
        self.wait_for_probes(2);
    }

    /// The lines of the kubelet's log that tell of a failed connection.
    pub(crate) fn transport_errors(&self) -> Vec<String> {
        let log = self.kubelet.log();
        let tells = |line: &&str| TRANSPORT_ERRORS.iter().any(|error| line.contains(error));
        log.lines().filter(tells).map(str::to_owned).collect()
    }
}

/// The label by which the runtime knows a pod of the kubelet's.
fn label(pod: &str) -> String {
    format!("io.kubernetes.pod.name={pod}-{NODE}")
}
