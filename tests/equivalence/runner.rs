//! Runs the commands in a container, by the runtime and by probeshim, and compares the results.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use fixtures::attributes::comparable;
use fixtures::image::BUSYBOX;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use futures_util::future::{join, join_all};
use probeshim::cri::runtime_client;
use probeshim::cri::v1::runtime_service_client::RuntimeServiceClient;
use probeshim::cri::v1::{
    ContainerConfig, CreateContainerRequest, ExecSyncRequest, ImageSpec, Mount, NamespaceMode,
    PodSandboxConfig, PodSandboxMetadata, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest,
};
use probeshim::socket::SocketPath;
use regex::Regex;
use tonic::Status;
use tonic::transport::Channel;

use crate::behaviours::{BEHAVIOURS, Behaviour, MORE_BEHAVIOURS, SUCCESS};
use crate::containers::{ContainerKind, FULL, GO, SIGNALS};

/// Attempts after which a container must be verified or left to the runtime.
const VERIFICATION_ATTEMPTS: usize = 100;

/// Failures in a row after which the runtime is not asked again.
const RUNTIME_ATTEMPTS: usize = 10;

/// Begin of the reason if the runtime itself cannot execute commands.
pub(crate) const RUNTIME_FAILS: &str = "the runtime itself fails";

/// Ids that containerd creates for execs.
static ID: LazyLock<Regex> = LazyLock::new(|| Regex::new("[0-9a-f]{64}").unwrap());

/// A runtime, with probeshim in front of it.
pub(crate) struct Matrix {
    shim: Probeshim,
    runtime: RuntimeServiceClient<Channel>,
    direct: RuntimeServiceClient<Channel>,
    handler: String,
    /// cgroup of the pods; empty for that of the runtime.
    cgroup_parent: String,
    /// Whether all behaviours are compared only in the default kind of container.
    brief: bool,
    /// Directory of logs and of the directories with signals.
    folder: PathBuf,
    /// The sandbox of the last container.
    sandbox: Mutex<Option<Sandbox>>,
}

/// A sandbox, in which the containers of several kinds run one after the other: an emulated machine
/// needs longer for a sandbox than for a container.
#[derive(Clone)]
struct Sandbox {
    id: String,
    config: PodSandboxConfig,
    handler: String,
}

/// Result of a kind of container.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All commands had the same results. This number was executed without the runtime.
    Equal { direct: usize },
    /// The runtime executed all commands, for a reason.
    Forwarded { reason: String },
    /// The runtime does not support the container.
    NotStarted { error: String },
    /// Some commands had other results.
    Different { differences: Vec<String> },
}

impl Matrix {
    /// Starts probeshim in front of the runtime behind a socket, with its files in a directory.
    pub(crate) fn new(folder: &Path, socket: &Path, handler: &str) -> Self {
        let shim = Probeshim::start_with(folder, socket, &["--exec", "direct-all"]);
        let client = |path: &Path| {
            runtime_client(&SocketPath::parse(path.to_str().unwrap()).unwrap())
                .max_decoding_message_size(64 << 20)
        };
        Self {
            runtime: client(socket),
            direct: client(shim.socket()),
            shim,
            handler: handler.to_owned(),
            cgroup_parent: String::new(),
            brief: false,
            folder: folder.to_owned(),
            sandbox: Mutex::default(),
        }
    }

    /// Adapts the matrix to an emulated node: pods have this cgroup, which is one of systemd, and
    /// only the default kind of container has all behaviours.
    pub(crate) fn on_emulated_node(self, cgroup_parent: &str) -> Self {
        Self { cgroup_parent: cgroup_parent.to_owned(), brief: true, ..self }
    }

    /// Compares the commands in a container of a kind.
    pub(crate) async fn compare(&self, kind: &ContainerKind) -> Outcome {
        let sandbox = match self.sandbox(kind).await {
            Ok(sandbox) => sandbox,
            Err(status) => return Outcome::Different { differences: vec![format!("no sandbox: {status}")] },
        };
        let mut containers = Vec::new();
        let outcome = match self.start(kind, &sandbox, &mut containers).await {
            Err(status) => Outcome::NotStarted { error: status.message().to_owned() },
            Ok(container) => self.compare_in(kind, &container).await,
        };
        for container_id in containers {
            let remove = RemoveContainerRequest { container_id };
            self.runtime.clone().remove_container(remove).await.unwrap();
        }
        outcome
    }

    /// Compares the commands in a running container.
    async fn compare_in(&self, kind: &ContainerKind, container: &str) -> Outcome {
        if let Err(reason) = self.verify(container).await {
            return Outcome::Forwarded { reason };
        }
        if kind.fills {
            self.fill(kind);
        }
        self.compare_all(kind, container).await
    }

    /// Returns the sandbox of the last container, or replaces it if this kind needs another one.
    async fn sandbox(&self, kind: &ContainerKind) -> Result<Sandbox, Status> {
        let mut runtime = self.runtime.clone();
        let mut config = kind.sandbox.clone();
        config.log_directory = self.folder.join("logs").display().to_string();
        config.linux.get_or_insert_default().cgroup_parent.clone_from(&self.cgroup_parent);
        let handler = [&self.handler, kind.handler_suffix].concat();
        let last = self.sandbox.lock().unwrap().take();
        if let Some(last) = last {
            config.metadata.clone_from(&last.config.metadata);
            if last.config == config && last.handler == handler {
                return Ok(self.sandbox.lock().unwrap().insert(last).clone());
            }
            runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: last.id }).await?;
        }
        config.metadata = Some(PodSandboxMetadata {
            name: kind.name.clone(),
            uid: kind.name.clone(),
            // Matrices of several runtime handlers can run at the same time.
            namespace: self.handler.clone(),
            attempt: 0,
        });
        let run = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.clone() };
        let id = runtime.run_pod_sandbox(run).await?.into_inner().pod_sandbox_id;
        Ok(self.sandbox.lock().unwrap().insert(Sandbox { id, config, handler }).clone())
    }

    /// Starts a container of a kind. Returns its id, and adds those of all containers that were
    /// created.
    async fn start(
        &self,
        kind: &ContainerKind,
        sandbox: &Sandbox,
        containers: &mut Vec<String>,
    ) -> Result<String, Status> {
        let mut config = kind.container.clone();
        config.log_path = log_name(kind);
        if kind.is_sidecar {
            let mut other = ContainerKind::other().container;
            let options = |config: &mut ContainerConfig| {
                let linux = config.linux.get_or_insert_default();
                linux.security_context.get_or_insert_default().namespace_options.clone()
            };
            let mut namespaces = options(&mut config);
            let is_target = namespaces.as_ref().is_some_and(|options| options.pid() == NamespaceMode::Target);
            if let (false, Some(linux)) = (is_target, other.linux.as_mut()) {
                linux.security_context.get_or_insert_default().namespace_options.clone_from(&namespaces);
            }
            let target_id = self.start_container(sandbox, other, containers).await?;
            if let (true, Some(options)) = (is_target, namespaces.as_mut()) {
                options.target_id = target_id;
            }
            let linux = config.linux.get_or_insert_default();
            linux.security_context.get_or_insert_default().namespace_options = namespaces;
        }
        if kind.fills {
            fs::create_dir_all(self.signals(kind)).unwrap();
            config.mounts.push(Mount {
                container_path: SIGNALS.to_owned(),
                host_path: self.signals(kind).display().to_string(),
                ..Mount::default()
            });
        }
        self.start_container(sandbox, config, containers).await
    }

    async fn start_container(
        &self,
        sandbox: &Sandbox,
        mut config: ContainerConfig,
        containers: &mut Vec<String>,
    ) -> Result<String, Status> {
        let mut runtime = self.runtime.clone();
        config.image = Some(ImageSpec { image: BUSYBOX.to_owned(), ..ImageSpec::default() });
        let create = CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.config.clone()),
        };
        let container_id = runtime.create_container(create).await?.into_inner().container_id;
        containers.push(container_id.clone());
        runtime.start_container(StartContainerRequest { container_id: container_id.clone() }).await?;
        Ok(container_id)
    }

    /// Lets a container reach its limit.
    fn fill(&self, kind: &ContainerKind) {
        fs::write(self.signals(kind).join(GO), "").unwrap();
        let log = self.folder.join("logs").join(log_name(kind));
        wait_for(&format!("{}: the limit is reached", kind.name), || {
            fs::read_to_string(&log).is_ok_and(|log| log.contains(FULL)).then_some(())
        });
    }

    fn signals(&self, kind: &ContainerKind) -> PathBuf {
        self.folder.join("signals").join(&kind.name)
    }

    /// Executes a command until the container is verified. The error is the reason for which the
    /// runtime executes its commands.
    async fn verify(&self, container: &str) -> Result<(), String> {
        let (mut last, mut failures) = (String::new(), 0);
        for _ in 0..VERIFICATION_ATTEMPTS {
            let result = exec(&self.direct, container, &SUCCESS).await;
            failures = if result.starts_with("exit code 0\n") { 0 } else { failures + 1 };
            if failures == RUNTIME_ATTEMPTS {
                return Err(format!("{RUNTIME_FAILS}: {result}"));
            }
            let status = self.shim.json(&["status"]);
            let containers = status["execPolicies"]["directContainers"].as_array().unwrap();
            let Some(state) = containers.iter().find(|state| state["id"] == container) else { continue };
            match state["state"].as_str().unwrap() {
                "verified" => return Ok(()),
                "forwarded" => return Err(state["reason"].as_str().unwrap().to_owned()),
                other => last = format!("{other}: {}", state["reason"]),
            }
        }
        Err(format!("after {VERIFICATION_ATTEMPTS} commands, the container is still {last}"))
    }

    async fn compare_all(&self, kind: &ContainerKind, container: &str) -> Outcome {
        let (mut differences, before) = (Vec::new(), self.executed());
        let more = if self.brief && !kind.is_default() { &[][..] } else { &MORE_BEHAVIOURS };
        let behaviours = kind.in_turn.clone().unwrap_or_else(|| [&BEHAVIOURS, more].concat());
        // The runtime confuses the messages of commands that fail to start at the same time.
        let (at_once, in_turn): (Vec<&Behaviour>, Vec<&Behaviour>) =
            behaviours.iter().partition(|behaviour| kind.in_turn.is_none() && !behaviour.fails_to_start);
        let both = async |behaviour: &Behaviour| {
            join(exec(&self.runtime, container, behaviour), exec(&self.direct, container, behaviour)).await
        };
        let mut results = join_all(at_once.iter().map(|behaviour| both(behaviour))).await;
        for behaviour in &in_turn {
            let runtime = exec(&self.runtime, container, behaviour).await;
            results.push((runtime, exec(&self.direct, container, behaviour).await));
        }
        for (behaviour, (runtime, direct)) in at_once.iter().chain(&in_turn).zip(results) {
            let [runtime, direct] = [runtime, direct].map(|result| comparable(&self.handler, &result));
            if runtime != direct && !behaviour.result_varies {
                differences.push(format!("{}:\n{}", behaviour.name, changed_lines(&runtime, &direct)));
            }
        }
        let direct = self.executed() - before;
        let started = behaviours.iter().filter(|behaviour| !behaviour.fails_to_start).count();
        if direct != started {
            differences.push(format!("{direct} of {started} commands were executed directly"));
        }
        if differences.is_empty() { Outcome::Equal { direct } } else { Outcome::Different { differences } }
    }

    /// Returns the number of commands that were executed without the runtime.
    fn executed(&self) -> usize {
        wait_for("the metric is there", || {
            let metrics = self.shim.metrics();
            let line = metrics.lines().find_map(|line| line.strip_prefix("probeshim_direct_execs_total "));
            line.and_then(|count| count.parse().ok())
        })
    }
}

/// Returns the name of the log of a container in the directory of its sandbox.
fn log_name(kind: &ContainerKind) -> String {
    format!("{}.log", kind.name)
}

/// Executes a command. Returns its result as text.
async fn exec(client: &RuntimeServiceClient<Channel>, container: &str, behaviour: &Behaviour) -> String {
    let request = ExecSyncRequest {
        container_id: container.to_owned(),
        cmd: behaviour.argv.iter().map(ToString::to_string).collect(),
        timeout: behaviour.timeout,
    };
    match client.clone().exec_sync(request).await {
        Ok(response) => {
            let response = response.into_inner();
            let (stdout, stderr) = (text(&response.stdout), text(&response.stderr));
            format!("exit code {}\n{stdout}\nstandard error:\n{stderr}", response.exit_code)
        }
        Err(status) => {
            ID.replace_all(&format!("{:?}: {}", status.code(), status.message()), "ID").into_owned()
        }
    }
}

/// Returns output as text. Long output is replaced by its length.
fn text(bytes: &[u8]) -> String {
    if bytes.len() > 1 << 19 {
        return format!("{} bytes", bytes.len());
    }
    bytes.escape_ascii().to_string().replace("\\n", "\n")
}

/// Returns the lines that differ between two texts.
fn changed_lines(runtime: &str, direct: &str) -> String {
    let only = |text: &str, other: &str, sign: &str| -> String {
        let others: Vec<&str> = other.lines().collect();
        let lines = text.lines().filter(|line| !others.contains(line));
        lines.map(|line| ["  ", sign, " ", line, "\n"].concat()).collect()
    };
    only(runtime, direct, "runtime:") + &only(direct, runtime, "direct: ")
}
