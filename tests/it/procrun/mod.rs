//! procrun, the runtime of plain processes, started in this process as a library or as the program
//! that users start.

mod crowd;
mod ends;
mod events;
mod exec;
mod images;
mod life;
mod lists;
mod logs;
mod program;
mod races;
mod refusals;
mod task_events;
mod usage;

use std::fmt::Display;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::runtime_service_client::RuntimeServiceClient;
use probeshim::cri::v1::*;
use probeshim::procrun::{Procrun, ProcrunConfig};
use probeshim::socket::{BindMode, BoundPath, SocketPath, bind};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status};

type Client = RuntimeServiceClient<Channel>;

/// A procrun in this process, with a client.
pub(crate) struct Runtime {
    pub(crate) client: Client,
    pub(crate) socket: SocketPath,
    pub(crate) folder: TempDir,
    _claim: Option<BoundPath>,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

/// Returns default settings with the root below a directory.
pub(crate) fn settings(folder: &Path) -> ProcrunConfig {
    ProcrunConfig {
        monitor_program: env!("CARGO_BIN_EXE_probeshim").into(),
        ..ProcrunConfig::new(folder.join("root"))
    }
}

impl Runtime {
    /// Starts a procrun that listens in its own directory.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut ProcrunConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("procrun.sock");
        Self::serve(&socket, folder, change)
    }

    /// Starts a procrun that listens on this socket.
    pub(crate) fn start_at(socket: &Path) -> Self {
        Self::serve(socket, tempfile::tempdir().unwrap(), |_| {})
    }

    fn serve(socket: &Path, folder: TempDir, change: impl FnOnce(&mut ProcrunConfig)) -> Self {
        let mut settings = settings(folder.path());
        change(&mut settings);
        let socket = SocketPath::new(socket).unwrap();
        let listening = bind(&socket, BindMode::OwnerOnly).unwrap();
        let procrun = Procrun::new(settings).unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(procrun.serve(listening.listener, stop.clone()));
        Self { client: runtime_client(&socket), socket, folder, _claim: listening.claim, stop, serving }
    }

    /// Ends procrun, and asserts that no process and no file is left.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        soon(self.serving).await.unwrap().unwrap();
        assert_eq!(processes_of(self.folder.path()), Vec::<String>::new());
        let left: Vec<_> = fs::read_dir(self.folder.path().join("root")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn pod(&self, name: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.into(),
                namespace: "it".into(),
                uid: "uid".into(),
                attempt: 0,
            }),
            log_directory: self.path("logs").join(name).to_str().unwrap().into(),
            labels: [("app".to_owned(), name.to_owned())].into(),
            ..Default::default()
        }
    }

    pub(crate) async fn run_pod(&mut self, name: &str) -> String {
        let request = RunPodSandboxRequest { config: Some(self.pod(name)), runtime_handler: String::new() };
        self.client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id
    }

    /// Creates a container in a pod, which is given by name and sandbox id.
    pub(crate) async fn create(
        &mut self,
        pod: (&str, &str),
        config: ContainerConfig,
    ) -> Result<String, Status> {
        self.client
            .create_container(self.creation(pod, config))
            .await
            .map(|created| created.into_inner().container_id)
    }

    /// Returns the request that creates a container in a pod, which is given by name and sandbox
    /// id.
    pub(crate) fn creation(&self, pod: (&str, &str), config: ContainerConfig) -> CreateContainerRequest {
        CreateContainerRequest {
            pod_sandbox_id: pod.1.into(),
            config: Some(config),
            sandbox_config: Some(self.pod(pod.0)),
        }
    }

    /// Returns all containers.
    pub(crate) async fn containers(&mut self) -> Vec<Container> {
        let request = ListContainersRequest::default();
        self.client.list_containers(request).await.unwrap().into_inner().containers
    }

    pub(crate) async fn start_container(&mut self, id: &str) -> Result<(), Status> {
        self.client.start_container(StartContainerRequest { container_id: id.into() }).await.map(drop)
    }

    /// Runs a pod with one container that runs a shell script, and returns the container's id.
    pub(crate) async fn runs(&mut self, script: &str) -> String {
        let pod = self.run_pod("pod").await;
        let id = self.create(("pod", &pod), shell("main", script)).await.unwrap();
        self.start_container(&id).await.unwrap();
        id
    }

    pub(crate) async fn exec(
        &self,
        id: &str,
        script: &str,
        timeout: i64,
    ) -> Result<ExecSyncResponse, Status> {
        soon(self.begin_exec(id, script, timeout)).await.unwrap()
    }

    /// Makes an ExecSync in a new task.
    pub(crate) fn begin_exec(
        &self,
        id: &str,
        script: &str,
        timeout: i64,
    ) -> JoinHandle<Result<ExecSyncResponse, Status>> {
        let cmd = ["sh", "-c", script].map(str::to_owned).into();
        let request = ExecSyncRequest { container_id: id.into(), cmd, timeout };
        let mut client = self.client.clone();
        tokio::spawn(async move { client.exec_sync(request).await.map(tonic::Response::into_inner) })
    }

    pub(crate) async fn stop(&mut self, id: &str, timeout: i64) {
        let request = StopContainerRequest { container_id: id.into(), timeout };
        soon(self.client.stop_container(request)).await.unwrap();
    }

    pub(crate) async fn status(&mut self, id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.client.container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    /// Waits until a container has ended, and returns its status.
    pub(crate) async fn ended(&mut self, id: &str) -> ContainerStatus {
        let client = self.client.clone();
        until(|| {
            let mut client = client.clone();
            async move {
                let request = ContainerStatusRequest { container_id: id.into(), verbose: false };
                let status = client.container_status(request).await.unwrap().into_inner().status.unwrap();
                (status.state() == ContainerState::ContainerExited).then_some(status)
            }
        })
        .await
    }

    /// Returns the content of a file in a container's directory once the file ends with a line
    /// break.
    pub(crate) async fn file(&self, id: &str, name: &str) -> String {
        let path = self.path("root/procrun-containers").join(id).join(name);
        until(|| async { fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')) })
            .await
            .trim()
            .to_owned()
    }
}

/// Returns the config of a container that runs a shell script.
pub(crate) fn shell(name: &str, script: &str) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(ImageSpec { image: "some/image".into(), ..Default::default() }),
        command: vec!["sh".into(), "-c".into()],
        args: vec![script.into()],
        log_path: format!("{name}.log"),
        labels: [("app".to_owned(), name.to_owned())].into(),
        ..Default::default()
    }
}

/// Repeats `look` until it returns a value.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    let seen = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon(seen).await
}

/// Waits until a process has ended and has been reaped.
pub(crate) async fn is_gone(pid: impl Display) {
    let process = PathBuf::from(format!("/proc/{pid}"));
    until(|| async { (!process.exists()).then_some(()) }).await;
}

/// Returns the command lines of the processes, including monitors, whose arguments or environment
/// mention a directory.
pub(crate) fn processes_of(folder: &Path) -> Vec<String> {
    let mark = folder.file_name().unwrap().to_str().unwrap();
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = std::process::id().to_string();
    let others = processes.filter(|name| name.parse::<u32>().is_ok() && *name != own);
    let text = |pid: &str, file| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    others
        .map(|pid| (text(&pid, "cmdline"), text(&pid, "environ")))
        .filter(|(arguments, environment)| arguments.contains(mark) || environment.contains(mark))
        .map(|(arguments, _)| arguments)
        .collect()
}

/// Returns the code and the message of an error.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}
