//! What clients do wrong, and how a runtime tells them: each mistake with the code and the words of the answer.

use std::path::Path;
use std::{fmt, fs};

use probeshim::cri::runtime_client;
use probeshim::cri::v1::runtime_service_client::RuntimeServiceClient;
use probeshim::cri::v1::*;
use probeshim::socket::SocketPath;
use regex::Regex;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::image::BUSYBOX;

/// What goes on for as long as it is let.
const SLEEP: [&str; 2] = ["sleep", "1000"];

/// An id that nobody has.
const NOBODY: &str = "nobody";

/// A mistake, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) name: &'static str,
    pub(crate) code: Code,
    /// The words of the answer, or of the state after it, without what differs from run to run.
    pub(crate) words: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, code, words } = self;
        write!(f, "{name} | {code:?} | {words}")
    }
}

/// A client that makes every mistake.
struct Clumsy<'a> {
    client: RuntimeServiceClient<Channel>,
    folder: &'a Path,
    made: Vec<Mistake>,
}

/// Makes every mistake once, in pods whose logs go below `folder`.
pub(crate) async fn all(socket: &Path, folder: &Path) -> Vec<Mistake> {
    let client = runtime_client(&SocketPath::new(socket).unwrap());
    let mut clumsy = Clumsy { client, folder, made: Vec::new() };
    let pod = clumsy.with_sandboxes().await;
    let container = clumsy.with_new_containers(&pod).await;
    clumsy.with_commands(&container).await;
    clumsy.with_what_is_not_there().await;
    clumsy.with_starts(&pod).await;
    clumsy.with_logs_that_cannot_be_written().await;
    clumsy.with_what_has_ended(&pod, &container).await;
    clumsy.made
}

impl Clumsy<'_> {
    fn note<T>(&mut self, name: &'static str, answer: Result<Response<T>, Status>) -> Option<T> {
        let (code, words, answer) = match answer {
            Ok(answer) => (Code::Ok, String::new(), Some(answer.into_inner())),
            Err(status) => (status.code(), status.message().to_owned(), None),
        };
        self.remember(name, code, &words);
        answer
    }

    fn remember(&mut self, name: &'static str, code: Code, words: &str) {
        let words = Regex::new("[0-9a-f]{64}").unwrap().replace_all(words, "ID");
        let words = words.replace(self.folder.to_str().unwrap(), "FOLDER");
        // Since containerd 2.1 an image may be a checkpoint.
        let words = words.replace("failed to check if this is a checkpoint image: ", "");
        self.made.push(Mistake { name, code, words });
    }

    /// What a container's state is after a mistake.
    async fn note_state(&mut self, name: &'static str, id: &str) {
        let request = ContainerStatusRequest { container_id: id.into(), verbose: false };
        let status = self.client.container_status(request).await.unwrap().into_inner().status.unwrap();
        let (state, code, reason) = (status.state(), status.exit_code, status.reason);
        let times = [status.started_at, status.finished_at].map(|time| time > 0);
        let words = format!("{state:?} {code} {reason:?} {:?} {times:?} {}", status.message, status.log_path);
        self.remember(name, Code::Ok, &words);
    }

    fn pod(&self) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: "mistaken".into(),
                namespace: "e2e".into(),
                uid: "uid-mistaken".into(),
                attempt: 0,
            }),
            log_directory: self.folder.join("logs/mistaken").to_str().unwrap().into(),
            linux: Some(LinuxPodSandboxConfig::default()),
            ..Default::default()
        }
    }

    fn creation(&self, pod: &str, config: impl Into<Option<ContainerConfig>>) -> CreateContainerRequest {
        CreateContainerRequest {
            pod_sandbox_id: pod.into(),
            config: config.into(),
            sandbox_config: Some(self.pod()),
        }
    }

    async fn create(&mut self, pod: &str, config: ContainerConfig) -> String {
        let request = self.creation(pod, config);
        self.client.create_container(request).await.unwrap().into_inner().container_id
    }

    async fn with_sandboxes(&mut self) -> String {
        let request = |config| RunPodSandboxRequest { config, runtime_handler: String::new() };
        let answer = self.client.run_pod_sandbox(request(None)).await;
        self.note("run without a config", answer);
        let nameless = PodSandboxConfig { metadata: None, ..self.pod() };
        let answer = self.client.run_pod_sandbox(request(Some(nameless))).await;
        self.note("run without metadata", answer);
        let strange = RunPodSandboxRequest { config: Some(self.pod()), runtime_handler: NOBODY.into() };
        let answer = self.client.run_pod_sandbox(strange).await;
        self.note("run with an unknown handler", answer);
        let pod = request(Some(self.pod()));
        let id = self.client.run_pod_sandbox(pod.clone()).await.unwrap().into_inner().pod_sandbox_id;
        let answer = self.client.run_pod_sandbox(pod).await;
        self.note("run of the same pod again", answer);
        id
    }

    async fn with_new_containers(&mut self, pod: &str) -> String {
        let main = container("main", &SLEEP);
        let nameless = ContainerConfig { metadata: None, ..main.clone() };
        let imageless = ContainerConfig { image: None, ..main.clone() };
        let missing = ContainerConfig { image: Some(image("missing.test/nobody:1")), ..main.clone() };
        let podless = CreateContainerRequest { sandbox_config: None, ..self.creation(pod, main.clone()) };
        for (name, pod, config) in [
            ("create in an unknown sandbox", NOBODY, Some(&main)),
            ("create in no sandbox", "", Some(&main)),
            ("create without a config", pod, None),
            ("create without metadata", pod, Some(&nameless)),
            ("create without an image", pod, Some(&imageless)),
            ("create of an image that is not there", pod, Some(&missing)),
        ] {
            let request = self.creation(pod, config.cloned());
            let answer = self.client.create_container(request).await;
            self.note(name, answer);
        }
        let answer = self.client.create_container(podless).await;
        self.note("create without a sandbox config", answer);
        let id = self.create(pod, main.clone()).await;
        let request = self.creation(pod, main);
        let answer = self.client.create_container(request).await;
        self.note("create of the same container again", answer);
        let answer = self.client.exec_sync(exec(&id, &["true"], 0)).await;
        self.note("exec before the start", answer);
        let answer = self.client.reopen_container_log(reopening(&id)).await;
        self.note("reopen before the start", answer);
        self.client.start_container(start(&id)).await.unwrap();
        let answer = self.client.start_container(start(&id)).await;
        self.note("start again", answer);
        id
    }

    async fn with_commands(&mut self, id: &str) {
        for (name, request) in [
            ("exec of nothing", exec(id, &[], 0)),
            ("exec of an empty word", exec(id, &[""], 0)),
            ("exec of what does not exist", exec(id, &["no-such-program"], 0)),
            ("exec of a path that does not exist", exec(id, &["/no/such/program"], 0)),
            ("exec of what is no program", exec(id, &["/etc/passwd"], 0)),
            ("exec of a folder", exec(id, &["/etc"], 0)),
            ("exec that takes too long", exec(id, &["sleep", "100"], 1)),
            ("exec with a timeout below zero", exec(id, &["true"], -1)),
            ("exec with more output than fits", exec(id, &["sh", "-c", "head -c 17000000 /dev/zero"], 0)),
            ("exec in nobody", exec(NOBODY, &["true"], 0)),
            ("exec in nothing", exec("", &["true"], 0)),
            ("exec by the beginning of an id", exec(&id[..13], &["true"], 0)),
        ] {
            let answer = self.client.exec_sync(request).await;
            self.note(name, answer);
        }
    }

    async fn with_what_is_not_there(&mut self) {
        let id = || NOBODY.to_owned();
        let answer =
            self.client.container_status(ContainerStatusRequest { container_id: id(), verbose: false }).await;
        self.note("status of nobody", answer);
        let request = PodSandboxStatusRequest { pod_sandbox_id: id(), verbose: false };
        let answer = self.client.pod_sandbox_status(request).await;
        self.note("status of nobody's pod", answer);
        let answer = self.client.container_stats(ContainerStatsRequest { container_id: id() }).await;
        self.note("stats of nobody", answer);
        let answer = self.client.pod_sandbox_stats(PodSandboxStatsRequest { pod_sandbox_id: id() }).await;
        self.note("stats of nobody's pod", answer);
        let answer = self.client.start_container(start(NOBODY)).await;
        self.note("start of nobody", answer);
        let answer = self.client.stop_container(stop(NOBODY)).await;
        self.note("stop of nobody", answer);
        let answer = self.client.remove_container(RemoveContainerRequest { container_id: id() }).await;
        self.note("remove of nobody", answer);
        let answer = self.client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id() }).await;
        self.note("stop of nobody's pod", answer);
        let answer = self.client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: id() }).await;
        self.note("remove of nobody's pod", answer);
        let answer = self.client.reopen_container_log(reopening(NOBODY)).await;
        self.note("reopen of nobody", answer);
        let answer = self.client.update_container_resources(update(NOBODY)).await;
        self.note("update of nobody", answer);
        let filter = Some(ContainerFilter { id: id(), ..Default::default() });
        let found = self.client.list_containers(ListContainersRequest { filter }).await.unwrap();
        assert!(found.into_inner().containers.is_empty());
    }

    async fn with_starts(&mut self, pod: &str) {
        for (name, config) in [
            ("start of what does not exist", container("missing", &["no-such-program"])),
            ("start of a path that does not exist", container("missing-path", &["/no/such/program"])),
            ("start of what is no program", container("no-program", &["/etc/passwd"])),
            (
                "start in a relative folder",
                ContainerConfig { working_dir: "relative".into(), ..container("relative", &SLEEP) },
            ),
        ] {
            let id = self.create(pod, config).await;
            let answer = self.client.start_container(start(&id)).await;
            self.note(name, answer);
            self.note_state(name, &id).await;
        }
    }

    async fn with_logs_that_cannot_be_written(&mut self) {
        fs::write(self.folder.join("file"), "").unwrap();
        let mut config = self.pod();
        config.log_directory = self.folder.join("file/logs").to_str().unwrap().into();
        config.metadata.as_mut().unwrap().name = "unlogged".into();
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let pod = self.client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
        let request = CreateContainerRequest {
            sandbox_config: Some(config),
            ..self.creation(&pod, container("main", &SLEEP))
        };
        let id = self.client.create_container(request).await.unwrap().into_inner().container_id;
        let answer = self.client.start_container(start(&id)).await;
        self.note("start with a log folder that cannot be made", answer);
        self.note_state("start with a log folder that cannot be made", &id).await;
        self.client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod }).await.unwrap();
    }

    async fn with_what_has_ended(&mut self, pod: &str, id: &str) {
        self.client.stop_container(stop(id)).await.unwrap();
        self.note_state("stop", id).await;
        let answer = self.client.stop_container(stop(id)).await;
        self.note("stop again", answer);
        let answer = self.client.exec_sync(exec(id, &["true"], 0)).await;
        self.note("exec after the end", answer);
        let answer = self.client.start_container(start(id)).await;
        self.note("start after the end", answer);
        let answer = self.client.reopen_container_log(reopening(id)).await;
        self.note("reopen after the end", answer);
        let answer = self.client.update_container_resources(update(id)).await;
        self.note("update after the end", answer);
        let waiting = self.create(pod, container("waiting", &SLEEP)).await;
        let answer = self.client.stop_container(stop(&waiting)).await;
        self.note("stop before the start", answer);
        self.note_state("stop before the start", &waiting).await;
        for name in ["stop of the pod", "stop of the pod again"] {
            let request = StopPodSandboxRequest { pod_sandbox_id: pod.into() };
            let answer = self.client.stop_pod_sandbox(request).await;
            self.note(name, answer);
        }
        let answer = self.client.start_container(start(&waiting)).await;
        self.note("start in a pod that has ended", answer);
        self.note_state("start in a pod that has ended", &waiting).await;
        let request = self.creation(pod, container("late", &SLEEP));
        let answer = self.client.create_container(request).await;
        self.note("create in a pod that has ended", answer);
        for name in ["remove", "remove again"] {
            let answer =
                self.client.remove_container(RemoveContainerRequest { container_id: id.into() }).await;
            self.note(name, answer);
        }
        for name in ["remove of the pod", "remove of the pod again"] {
            let request = RemovePodSandboxRequest { pod_sandbox_id: pod.into() };
            let answer = self.client.remove_pod_sandbox(request).await;
            self.note(name, answer);
        }
    }
}

fn container(name: &str, command: &[&str]) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(image(BUSYBOX)),
        command: command.iter().map(ToString::to_string).collect(),
        log_path: format!("{name}.log"),
        linux: Some(LinuxContainerConfig::default()),
        ..Default::default()
    }
}

fn image(name: &str) -> ImageSpec {
    ImageSpec { image: name.into(), ..Default::default() }
}

fn start(id: &str) -> StartContainerRequest {
    StartContainerRequest { container_id: id.into() }
}

fn stop(id: &str) -> StopContainerRequest {
    StopContainerRequest { container_id: id.into(), timeout: 0 }
}

fn reopening(id: &str) -> ReopenContainerLogRequest {
    ReopenContainerLogRequest { container_id: id.into() }
}

fn update(id: &str) -> UpdateContainerResourcesRequest {
    UpdateContainerResourcesRequest { container_id: id.into(), ..Default::default() }
}

fn exec(id: &str, command: &[&str], timeout: i64) -> ExecSyncRequest {
    let cmd = command.iter().map(ToString::to_string).collect();
    ExecSyncRequest { container_id: id.into(), cmd, timeout }
}
