//! `probeshim play` on a runtime.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::containerd::{Containerd, Version};
use super::crictl::Crictl;
use super::http::get;
use super::image::BUSYBOX;
use super::life::Runtime as _;
use super::machine::free_address;
use super::server::{Server, wait_for};
use super::story::{Case, Observer};
use crate::support::logs::{are_consecutive, log_files, log_names, numbers_of};

/// How long a story may take.
const PATIENCE: Duration = Duration::from_secs(150);

/// One that plays.
#[derive(Debug)]
pub(crate) struct Player {
    server: Option<Server>,
    folder: PathBuf,
    upstream: PathBuf,
    more: Vec<String>,
    /// Command that runs it, if any does.
    wrapper: Vec<String>,
    admin: PathBuf,
    log: PathBuf,
    http: std::net::SocketAddr,
    /// The folder of the manifests.
    pub(crate) manifests: PathBuf,
}

impl Player {
    /// Plays the manifests of a folder, which has to be there, on the runtime behind `upstream`; with everything of its own in `folder`.
    pub(crate) fn start(folder: &Path, upstream: &Path, more: &[&str]) -> Self {
        Self::start_by(&[], folder, upstream, more)
    }

    /// Starts it by a command that becomes it, with its arguments.
    pub(crate) fn start_by(wrapper: &[&str], folder: &Path, upstream: &Path, more: &[&str]) -> Self {
        // Whatever the machine has of its own.
        std::fs::write(folder.join("config.yaml"), "").unwrap();
        let (folder, upstream) = (folder.to_owned(), upstream.to_owned());
        let (log, http, manifests) = (folder.join("play.log"), free_address(), folder.join("played"));
        std::fs::create_dir_all(&manifests).unwrap();
        let (admin, more) = (folder.join("admin.sock"), more.iter().map(ToString::to_string).collect());
        let wrapper = wrapper.iter().map(ToString::to_string).collect();
        let mut player = Self { server: None, folder, upstream, more, wrapper, admin, log, http, manifests };
        player.launch();
        player.wait();
        player
    }

    fn launch(&mut self) {
        let at = |name: &str| self.folder.join(name);
        let mut words = self.wrapper.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_probeshim")]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg("play").arg(&self.manifests).arg("--upstream").arg(&self.upstream);
        command.arg("--config").arg(at("config.yaml")).arg("--listen").arg(at("probeshim.sock"));
        command.arg("--admin").arg(&self.admin).arg("--pod-logs").arg(at("pod-logs"));
        command.arg("--state-dir").arg(at("state")).args(["--http", &self.http.to_string(), "--http-pods"]);
        command.args(["--log", "info,probeshim::kubelet=debug"]).args(&self.more);
        self.server = Some(Server::start("probeshim play", &mut command, &self.log));
    }

    fn wait(&mut self) {
        let http = self.http;
        let server = self.server.as_mut().unwrap();
        server.wait_until(|_| get(http, "/healthz").is_ok_and(|answer| answer == "ok\n"));
    }

    /// Kills it, as a crash would, and starts it again.
    pub(crate) fn crash_and_restart(&mut self) {
        self.crash();
        self.restart();
    }

    /// Kills it, as a crash would.
    pub(crate) fn crash(&mut self) {
        self.server.take().unwrap().crash();
    }

    /// Starts it again.
    pub(crate) fn restart(&mut self) {
        self.launch();
        self.wait();
    }

    /// Gives it a pod to play.
    pub(crate) fn run(&self, name: &str, manifest: &str) {
        let (new, path) = (self.manifests.join("new"), self.manifests.join(format!("{name}.yaml")));
        std::fs::write(&new, manifest).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// Takes a pod away.
    pub(crate) fn forget(&self, name: &str) {
        std::fs::remove_file(self.manifests.join(format!("{name}.yaml"))).unwrap();
    }

    /// Returns the pods of `/pods`, without those of which nothing is left.
    pub(crate) fn pods(&self) -> Vec<Value> {
        let mut pods = self.listed();
        pods.retain(|pod| pod["metadata"]["annotations"]["probeshim.io/removed"].is_null());
        pods
    }

    /// Returns a pod of which nothing is left, as it is in `/pods`.
    pub(crate) fn removed(&self, name: &str) -> Option<Value> {
        let is_it = |pod: &Value| {
            pod["metadata"]["name"] == name
                && !pod["metadata"]["annotations"]["probeshim.io/removed"].is_null()
        };
        self.listed().into_iter().find(is_it)
    }

    fn listed(&self) -> Vec<Value> {
        let pods = get(self.http, "/pods").ok().and_then(|pods| serde_json::from_str::<Value>(&pods).ok());
        pods.and_then(|pods| pods["items"].as_array().cloned()).unwrap_or_default()
    }

    /// How one of them stands.
    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        self.pods().into_iter().find(|pod| pod["metadata"]["name"] == name)
    }

    /// How often something was told of a pod.
    pub(crate) fn count(&self, pod: &str, reason: &str, message: &str) -> u64 {
        let events = self.list(&["events"]);
        let is_it = |event: &&Value| {
            event["pod"] == pod
                && event["reason"] == reason
                && event["message"].as_str().unwrap().contains(message)
        };
        events.iter().filter(is_it).filter_map(|event| event["count"].as_u64()).sum()
    }

    /// How many commands of a pod's hooks have gone well.
    pub(crate) fn hooks(&self, pod: &str) -> usize {
        let calls = self.list(&["calls", "--method", "ExecSync", "--pod", &format!("e2e/{pod}")]);
        let is_hook = |call: &&Value| call["exec"]["timeoutSeconds"] == 0 && call["exec"]["exitCode"] == 0;
        calls.iter().filter(is_hook).count()
    }

    /// What `probeshim events` or another command prints, as JSON.
    pub(crate) fn list(&self, arguments: &[&str]) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        let output =
            command.args(arguments).args(["-o", "json", "--admin"]).arg(&self.admin).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.server.take().unwrap().terminate()
    }
}

/// Plays these cases on one containerd, until the story of each is told or cannot be any more. Returns what went otherwise.
pub(crate) fn tell(cases: &[Case]) -> Result<Vec<String>, String> {
    let containerd = Containerd::start(Version::V2_2)?;
    let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder())?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    for case in cases {
        player.run(&case.name, &case.manifest);
    }
    let mut wrong = player.tells(&mut Observer::new(crictl, ""), cases);
    wrong.extend(player.ends_cleanly(&containerd)?);
    Ok(wrong)
}

/// Plays so many pods at once until all are ready, and ends them. Returns what went otherwise.
pub(crate) fn crowd(count: usize) -> Result<Vec<String>, String> {
    let containerd = Containerd::start(Version::V2_2)?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    for number in 0..count {
        let name = format!("pod-{number}");
        let manifest = format!(
            "{{kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 2, containers: [{{name: main, \
             image: {BUSYBOX}, imagePullPolicy: Never, command: [sh, -c, \"trap 'exit 0' TERM; while true; do sleep 0.5; done\"], \
             readinessProbe: {{exec: {{command: ['true']}}, periodSeconds: 5, timeoutSeconds: 30}}}}]}}}}"
        );
        player.run(&name, &manifest);
    }
    wait_for(&format!("{count} pods are ready"), || {
        let pods = player.pods();
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        (pods.iter().filter(is_ready).count() == count).then_some(())
    });
    player.ends_cleanly(&containerd)
}

/// Plays a container whose log is rotated twice. Returns what went otherwise.
pub(crate) fn rotates_logs() -> Result<Vec<String>, String> {
    let containerd = Containerd::start(Version::V2_2)?;
    let limits = ["--container-log-max-size", "1Ki", "--container-log-monitor-interval", "3s"];
    let player = Player::start(containerd.folder(), &containerd.socket(), &limits);
    let count = "trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo $n; sleep 0.01; done";
    let manifest = format!(
        "{{kind: Pod, metadata: {{name: a, namespace: e2e}}, spec: {{terminationGracePeriodSeconds: 2, containers: [{{name: main, \
         image: {BUSYBOX}, imagePullPolicy: Never, command: [sh, -c, \"{count}\"]}}]}}}}"
    );
    player.run("a", &manifest);
    let logs = wait_for("two rotated logs, one of them compressed", || {
        let pod = std::fs::read_dir(containerd.folder().join("pod-logs")).ok()?.next()?.ok()?;
        let logs = pod.path().join("main");
        let names = log_names(&logs);
        let (compressed, others): (Vec<_>, Vec<_>) =
            names.iter().partition(|name| name.strip_suffix(".gz").is_some());
        let is_settled = others.len() == 2 && names.iter().all(|name| name.strip_suffix(".tmp").is_none());
        (is_settled && !compressed.is_empty()).then_some(logs)
    });
    let mut wrong = player.ends_cleanly(&containerd)?;
    let (files, names) = (log_files(&logs), log_names(&logs));
    let numbers = numbers_of(files.values());
    if !are_consecutive(&numbers) {
        wrong.push(format!("a line is lost or written twice: {names:?}: {numbers:?}"));
    }
    if !(3..=5).contains(&names.len()) {
        wrong.push(format!("{names:?}"));
    }
    Ok(wrong)
}

impl Player {
    /// Looks on until the story of each of these is told or cannot be any more. Returns what went otherwise.
    pub(crate) fn tells(&self, observer: &mut Observer, cases: &[Case]) -> Vec<String> {
        let (mut open, mut wrong): (Vec<&Case>, Vec<String>) = (cases.iter().collect(), Vec::new());
        let begun = Instant::now();
        while !open.is_empty() {
            observer.look(&self.pods());
            let (events, age) = (self.list(&["events"]), begun.elapsed());
            open.retain(|case| {
                let life = observer.lives.get(&case.name).cloned().unwrap_or_default();
                match case.missing(&life, &events, observer.lag()) {
                    Ok(None) => age.as_secs_f64() < case.lasts(),
                    Ok(Some(missing)) if age > PATIENCE => {
                        wrong.push(missing);
                        false
                    }
                    Ok(Some(_)) => true,
                    Err(other) => {
                        wrong.push(other);
                        false
                    }
                }
            });
        }
        wrong
    }

    /// Ends it. Returns what is wrong with its end, or is left of it.
    pub(crate) fn ends_cleanly(self, containerd: &Containerd) -> Result<Vec<String>, String> {
        let (mut wrong, log) = (Vec::new(), self.log());
        let status = self.stop();
        if !status.success() {
            wrong.push(format!("it ended with {status}: {log}"));
        }
        let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder())?;
        for left in [&["ps", "-aq"][..], &["pods", "-q"]] {
            let ids = crictl.ok(left);
            if !ids.is_empty() {
                wrong.push(format!("{left:?}: {ids} is left"));
            }
        }
        Ok(wrong)
    }
}
