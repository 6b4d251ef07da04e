//! The life of a container: create, start, stop, remove.

use std::env;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::container::{Container, Parts, Runs, State, name};
use super::engine::Engine;
use super::guardian::{Command, LaunchError, Process, Stray, Target};
use super::log::{self, LogFile};
use super::refusal::{Refusal, words_of};
use super::store::new_id;
use super::{program, signal};
use crate::cri::v1::{self, ContainerEventType as Event, KeyValue};

/// How long a container that has ended waits for the end of its output: somebody outside may hold it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where programs are looked for, where nothing else is told.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A process's ends of its output, and ours.
pub(super) struct Streams {
    pub(super) theirs: [OwnedFd; 2],
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
}

/// The first process of a container, and what it says.
struct Started {
    at: i64,
    process: Process,
    output: JoinSet<()>,
}

impl Engine {
    /// Makes a container. Nothing runs yet.
    pub(super) fn create(&self, request: v1::CreateContainerRequest) -> Result<Arc<Container>, Refusal> {
        let asked = &request.pod_sandbox_id;
        let sandbox = self
            .sandboxes
            .get(asked)
            .map_err(|refusal| refusal.when(format!("failed to find sandbox id {asked:?}")))?;
        let config = request.config.unwrap_or_default();
        let pod = request.sandbox_config.unwrap_or_default();
        let name = name(config.metadata.as_ref(), pod.metadata.as_ref())?;
        let reserved = |refusal: Refusal| refusal.when(format!("failed to reserve container name {name:?}"));
        self.containers.holder(&name).map_err(reserved)?;
        let image = config.image.as_ref().map_or("", |image| &image.image);
        let image = self
            .images
            .resolve(image)
            .map_err(|refusal| refusal.when(format!("failed to resolve image {image:?}")))?;
        let id = new_id();
        if config.command.is_empty() && config.args.is_empty() && !sandbox.is_synthetic {
            // An image is only a name, and brings no command.
            return Err(Refusal::unknown("no command specified")
                .when("failed to generate spec")
                .when(format!("failed to generate container {id:?} spec")));
        }
        signal::number(config.stop_signal)?;
        let log_path = log::path(&pod.log_directory, &config.log_path)?;
        let folder = self.root.of(&id);
        if !sandbox.is_synthetic {
            fs::create_dir(&folder).map_err(|error| {
                let (folder, words) = (folder.display(), words_of(&error));
                Refusal::unknown(format!("failed to create container root directory \"{folder}\": {words}"))
            })?;
        }
        let sandbox = sandbox.id.clone();
        let parts =
            Parts { id, name: name.clone(), sandbox, config, image, log_path, folder: folder.clone() };
        let container = self.containers.add(Container::new(parts)).map_err(|refusal| {
            // Another was quicker.
            let _ = fs::remove_dir(&folder);
            refusal.when(format!("failed to reserve container name {name:?}"))
        })?;
        self.tell(&container.id, &container.sandbox, Event::ContainerCreatedEvent);
        Ok(container)
    }

    /// Starts a container. One that cannot be has ended, as with containerd: exit code 128, reason `StartError`.
    pub(super) async fn start(self: Arc<Self>, id: String) -> Result<(), Refusal> {
        let container = self.containers.get(&id);
        let container = container.map_err(|refusal| {
            refusal.when(format!("an error occurred when try to find container {id:?}"))
        })?;
        container.begin_start().map_err(|refusal| {
            refusal.when(format!("failed to set starting state for container {:?}", container.id))
        })?;
        match self.launch(&container).await {
            Ok(started) => {
                container.has_started(started.as_ref().map(|started| started.at));
                self.tell(&container.id, &container.sandbox, Event::ContainerStartedEvent);
                if let Some(started) = started {
                    tokio::spawn(self.watch(container, started));
                }
                Ok(())
            }
            Err(refusal) => {
                container.has_not_started(&refusal);
                Err(refusal)
            }
        }
    }

    /// Launches the first process of a container, unless it needs none.
    async fn launch(&self, container: &Arc<Container>) -> Result<Option<Started>, Refusal> {
        let sandbox = self
            .sandboxes
            .get(&container.sandbox)
            .map_err(|refusal| refusal.when(format!("sandbox {:?} not found", container.sandbox)))?;
        if !sandbox.is_ready() {
            return Err(Refusal::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
        }
        sleep(self.settings.start_delay).await;
        if sandbox.is_synthetic {
            let _ = container.runs.set(Runs::Nothing);
            return Ok(None);
        }
        let failed = |refusal: Refusal| refusal.when("failed to create containerd task");
        let log = LogFile::open(container.log_path.clone())
            .map_err(|refusal| failed(refusal.when("failed to create container loggers")))?;
        let not_run = |refusal: Refusal| {
            failed(
                refusal
                    .when("runc create failed")
                    .when("OCI runtime create failed")
                    .when("failed to create shim task"),
            )
        };
        let config = &container.config;
        let words = config.command.iter().chain(&config.args).cloned().collect();
        let command = self.command_of(container, words).map_err(not_run)?;

        let strays = container.clone();
        let guardian = self
            .guardians
            .start(&container.name, &container.folder, move |left| report(&strays, &left))
            .map_err(|error| {
                failed(Refusal::unknown(format!("cannot start a guardian: {}", words_of(&error))))
            })?;
        let streams = Streams::new().map_err(|error| failed(Refusal::unknown(words_of(&error))))?;
        let mut process = guardian.launch(command, streams.theirs);
        let start = process.start().await.map_err(|error| not_run(not_launched(&error)))?;

        let log = Arc::new(log);
        let mut output = JoinSet::new();
        let (out, err) = (log.clone(), log.clone());
        output.spawn(async move { out.follow("stdout", streams.stdout).await });
        output.spawn(async move { err.follow("stderr", streams.stderr).await });
        let first = (process.number, start.pid);
        let _ = container.runs.set(Runs::Processes { guardian, first, log });
        Ok(Some(Started { at: start.at, process, output }))
    }

    /// What is run for the words of a command in a container.
    pub(super) fn command_of(&self, container: &Container, words: Vec<String>) -> Result<Command, Refusal> {
        let config = &container.config;
        if !config.working_dir.is_empty() && !Path::new(&config.working_dir).is_absolute() {
            return Err(Refusal::unknown("Cwd must be an absolute path"));
        }
        let folder = program::folder_in(&container.folder, &config.working_dir);
        fs::create_dir_all(&folder)
            .map_err(|error| Refusal::unknown(format!("mkdir {}: {}", folder.display(), words_of(&error))))?;
        let envs = self.environment(container);
        let path = envs.iter().find(|env| env.key == "PATH").map(|env| String::from_utf8_lossy(&env.value));
        let name = words.first().ok_or_else(|| Refusal::unknown("args must not be empty"))?;
        let program = program::find(name, &folder, &path.unwrap_or_default())
            .map_err(|refusal| refusal.when("unable to start container process"))?;
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let not_text = || Refusal::unknown("a path is not valid UTF-8");
        let program = text(&program).ok_or_else(not_text)?;
        Ok(Command { program, words, envs, folder: text(&folder).ok_or_else(not_text)? })
    }

    /// The environment of a container: a few variables that programs expect, and those of its config.
    fn environment(&self, container: &Container) -> Vec<KeyValue> {
        let path = env::var("PATH").unwrap_or_else(|_| PATH.to_owned());
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let sandbox = self.sandboxes.get(&container.sandbox);
        let hostname = sandbox
            .map(|sandbox| sandbox.config.hostname.clone())
            .ok()
            .filter(|name| !name.is_empty())
            .unwrap_or(hostname);
        let home = container.folder.display().to_string();
        let given = &container.config.envs;
        let is_given = |key: &str| given.iter().any(|env| env.key == key);
        let base = [("PATH", path), ("HOME", home), ("HOSTNAME", hostname)];
        let base = base.into_iter().filter(|(key, _)| !is_given(key));
        let base = base.map(|(key, value)| KeyValue { key: key.to_owned(), value: value.into_bytes() });
        base.chain(given.iter().cloned()).collect()
    }

    /// Waits for a container's end, and for its last words, and tells of it.
    async fn watch(self: Arc<Self>, container: Arc<Container>, started: Started) {
        let Started { mut process, output, .. } = started;
        let exit = process.exit().await;
        if timeout(LAST_WORDS, output.join_all()).await.is_err() {
            warn!(container = %container.id, "its output is still held by others, and is read no more");
        }
        container.has_ended(exit);
        self.tell(&container.id, &container.sandbox, Event::ContainerStoppedEvent);
    }

    /// Stops a container: its stop signal to the process group, and SIGKILL to all after `grace` seconds, or at once where that is
    /// not above zero.
    pub(super) async fn stop(&self, container: &Container, grace: i64) -> Result<(), Refusal> {
        if container.state() != State::Running {
            return Ok(());
        }
        let Some(Runs::Processes { guardian, first, .. }) = container.runs.get() else {
            let code = if grace > 0 { 128 + 15 } else { 128 + 9 };
            container.has_ended(super::guardian::Exit { code: Some(code), at: None });
            self.tell(&container.id, &container.sandbox, Event::ContainerStoppedEvent);
            return Ok(());
        };
        if let Some(grace) = u64::try_from(grace).ok().filter(|grace| *grace > 0) {
            // As with containerd, a second stop waits, but does not send the signal again.
            if container.is_first_stop() {
                let signal = signal::number(container.config.stop_signal)?;
                guardian.strike(first.0, signal, Target::Group);
            }
            if timeout(Duration::from_secs(grace), container.ended()).await.is_ok() {
                return Ok(());
            }
        }
        guardian.strike(first.0, 0, Target::Everything);
        container.ended().await;
        Ok(())
    }

    /// Removes a container; one that runs is killed first.
    pub(super) async fn remove(&self, container: &Container) -> Result<(), Refusal> {
        let id = &container.id;
        let stopped = self.stop(container, 0).await;
        stopped.map_err(|refusal| refusal.when(format!("failed to forcibly stop container {id:?}")))?;
        container
            .begin_removal()
            .map_err(|refusal| refusal.when(format!("failed to set removing state for container {id:?}")))?;
        if let Some(Runs::Processes { guardian, .. }) = container.runs.get() {
            guardian.gone().await;
        }
        match fs::remove_dir_all(&container.folder) {
            Err(error) if container.folder.exists() => {
                container.has_not_been_removed();
                let (folder, words) = (container.folder.display(), words_of(&error));
                return Err(Refusal::unknown(format!(
                    "failed to remove container root directory \"{folder}\": {words}"
                )));
            }
            _ => {}
        }
        if self.containers.remove(container) {
            self.tell(id, &container.sandbox, Event::ContainerDeletedEvent);
        }
        Ok(())
    }
}

impl Streams {
    /// Two pipes, non-blocking for us and blocking for them.
    pub(super) fn new() -> std::io::Result<Self> {
        let (out, stdout) = pipe::pipe()?;
        let (err, stderr) = pipe::pipe()?;
        Ok(Self { theirs: [out.into_blocking_fd()?, err.into_blocking_fd()?], stdout, stderr })
    }
}

/// What runc would say of a process that the system does not run.
pub(super) fn not_launched(error: &LaunchError) -> Refusal {
    Refusal::unknown(error.to_string()).when("unable to start container process")
}

fn report(container: &Container, left: &Stray) {
    info!(
        container = %container.id, name = container.name, pid = left.pid, program = left.program, exit = left.code,
        "a process that had left its process group has ended"
    );
}
