//! Runs the commands in a container, by the runtime and by probeshim, and compares the results.

use std::sync::LazyLock;

use fixtures::containerd::Containerd;
use fixtures::image::BUSYBOX;
use fixtures::runtime::Runtime as _;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use futures_util::future::{join, join_all};
use probeshim::cri::runtime_client;
use probeshim::cri::v1::runtime_service_client::RuntimeServiceClient;
use probeshim::cri::v1::{
    CreateContainerRequest, ExecSyncRequest, ImageSpec, PodSandboxMetadata, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest,
};
use probeshim::socket::SocketPath;
use regex::Regex;
use tonic::transport::Channel;

use crate::behaviours::{BEHAVIOURS, Behaviour};
use crate::containers::ContainerKind;

/// Attempts after which a container must be verified or left to the runtime.
const VERIFICATION_ATTEMPTS: usize = 30;

/// Ids that containerd creates for execs.
static ID: LazyLock<Regex> = LazyLock::new(|| Regex::new("[0-9a-f]{64}").unwrap());

/// A runtime, with probeshim in front of it.
pub(crate) struct Matrix {
    shim: Probeshim,
    runtime: RuntimeServiceClient<Channel>,
    direct: RuntimeServiceClient<Channel>,
    handler: String,
    logs: String,
}

/// Result of a kind of container.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All commands had the same results. This number was executed without the runtime.
    Equal { direct: usize },
    /// The runtime executed all commands, for a reason.
    Forwarded { reason: String },
    /// Some commands had other results.
    Different { differences: Vec<String> },
}

impl Matrix {
    pub(crate) fn new(containerd: &Containerd, handler: &str) -> Self {
        let shim =
            Probeshim::start_with(containerd.folder(), &containerd.socket(), &["--exec", "direct-all"]);
        let client = |path: &std::path::Path| {
            runtime_client(&SocketPath::parse(path.to_str().unwrap()).unwrap())
                .max_decoding_message_size(64 << 20)
        };
        Self {
            runtime: client(&containerd.socket()),
            direct: client(shim.socket()),
            shim,
            handler: handler.to_owned(),
            logs: containerd.folder().join("logs").display().to_string(),
        }
    }

    /// Compares the commands in a container of a kind.
    pub(crate) async fn compare(&self, kind: &ContainerKind) -> Outcome {
        let (sandbox, container) = self.start(kind).await;
        let outcome = match self.verify(&container).await {
            Err(reason) => Outcome::Forwarded { reason },
            Ok(()) => self.compare_all(&container).await,
        };
        let remove = RemovePodSandboxRequest { pod_sandbox_id: sandbox };
        self.runtime.clone().remove_pod_sandbox(remove).await.unwrap();
        outcome
    }

    /// Starts a container. Returns the ids of its sandbox and of itself.
    async fn start(&self, kind: &ContainerKind) -> (String, String) {
        let mut runtime = self.runtime.clone();
        let mut sandbox = kind.sandbox.clone();
        sandbox.metadata = Some(PodSandboxMetadata {
            name: kind.name.clone(),
            uid: kind.name.clone(),
            namespace: "equivalence".to_owned(),
            attempt: 0,
        });
        sandbox.log_directory.clone_from(&self.logs);
        let run =
            RunPodSandboxRequest { config: Some(sandbox.clone()), runtime_handler: self.handler.clone() };
        let pod_sandbox_id = runtime.run_pod_sandbox(run).await.unwrap().into_inner().pod_sandbox_id;
        let mut config = kind.container.clone();
        config.image = Some(ImageSpec { image: BUSYBOX.to_owned(), ..ImageSpec::default() });
        let create = CreateContainerRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox),
        };
        let created = runtime.create_container(create).await;
        let container_id =
            created.unwrap_or_else(|error| panic!("{}: {error}", kind.name)).into_inner().container_id;
        let start = StartContainerRequest { container_id: container_id.clone() };
        runtime.start_container(start).await.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        (pod_sandbox_id, container_id)
    }

    /// Executes a command until the container is verified. The error is the reason for which the
    /// runtime executes its commands.
    async fn verify(&self, container: &str) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..VERIFICATION_ATTEMPTS {
            exec(&self.direct, container, &BEHAVIOURS[1]).await;
            let status = self.shim.json(&["status"]);
            let containers = status["execPolicies"]["directContainers"].as_array().unwrap();
            let Some(state) = containers.iter().find(|state| state["id"] == container) else { continue };
            match state["state"].as_str().unwrap() {
                "verified" => return Ok(()),
                "forwarded" => return Err(state["reason"].as_str().unwrap().to_owned()),
                other => other.clone_into(&mut last),
            }
        }
        panic!("the container is still {last} after {VERIFICATION_ATTEMPTS} commands:\n{}", self.shim.log());
    }

    async fn compare_all(&self, container: &str) -> Outcome {
        let (mut differences, before) = (Vec::new(), self.executed());
        let (failing, started): (Vec<&Behaviour>, Vec<&Behaviour>) =
            BEHAVIOURS.iter().partition(|behaviour| behaviour.fails_to_start);
        let both = async |behaviour: &Behaviour| {
            join(exec(&self.runtime, container, behaviour), exec(&self.direct, container, behaviour)).await
        };
        let mut results = join_all(started.iter().map(|behaviour| both(behaviour))).await;
        // The runtime confuses the messages of commands that fail to start at the same time.
        for behaviour in &failing {
            let runtime = exec(&self.runtime, container, behaviour).await;
            results.push((runtime, exec(&self.direct, container, behaviour).await));
        }
        for (behaviour, (runtime, direct)) in started.iter().chain(&failing).zip(results) {
            if runtime != direct {
                differences.push(format!("{}:\n{}", behaviour.name, changed_lines(&runtime, &direct)));
            }
        }
        let direct = self.executed() - before;
        if direct != started.len() {
            differences.push(format!("{direct} of {} commands were executed directly", started.len()));
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
