//! A container: its configuration, where it is in its life, and what is told of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;

use super::clock;
use super::guardian::{Exit, Guardian};
use super::images::Image;
use super::log::LogFile;
use super::refusal::Refusal;
use super::sandbox::has_labels;
use crate::cri::v1;

/// The exit code of a container that could not start, as containerd gives it.
const START_ERROR: i32 = 128;

/// The exit code of a container that was killed.
const KILLED: i32 = 128 + 9;

/// A container.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) sandbox: String,
    pub(super) config: v1::ContainerConfig,
    pub(super) image: Image,
    /// Where its logs go, if anywhere.
    pub(super) log_path: Option<PathBuf>,
    /// Its own folder, in which its working directory is.
    pub(super) folder: PathBuf,
    pub(super) created_at: i64,
    life: Mutex<Life>,
    /// Turns true when it has ended.
    ended: watch::Sender<bool>,
    /// What runs it, from its start on.
    pub(super) runs: OnceLock<Runs>,
    is_told_to_stop: AtomicBool,
}

/// What runs a container.
#[derive(Debug)]
pub(super) enum Runs {
    /// Processes, below a guardian.
    Processes {
        /// Their guardian.
        guardian: Guardian,
        /// The number and the pid of the first of them.
        first: (u64, i32),
        /// Where their output goes.
        log: Arc<LogFile>,
    },
    /// Nothing: it is there to be counted.
    Nothing,
}

/// Where a container is in its life.
#[derive(Debug, Default)]
struct Life {
    state: State,
    started_at: i64,
    finished_at: i64,
    exit_code: i32,
    reason: &'static str,
    message: String,
    is_starting: bool,
    is_removing: bool,
    resources: Option<v1::ContainerResources>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Created,
    Running,
    Exited,
}

/// What a new container is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) sandbox: String,
    pub(super) config: v1::ContainerConfig,
    pub(super) image: Image,
    pub(super) log_path: Option<PathBuf>,
    pub(super) folder: PathBuf,
}

impl Container {
    /// A container that is created.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { id, name, sandbox, config, image, log_path, folder } = parts;
        let linux = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        let resources = linux.map(|linux| v1::ContainerResources { linux: Some(linux), windows: None });
        Self {
            id,
            name,
            sandbox,
            config,
            image,
            log_path,
            folder,
            created_at: clock::now(),
            life: Mutex::new(Life { resources, ..Life::default() }),
            ended: watch::Sender::new(false),
            runs: OnceLock::new(),
            is_told_to_stop: AtomicBool::new(false),
        }
    }

    /// Marks it as starting: until that is over it can neither be started again nor removed.
    pub(super) fn begin_start(&self) -> Result<(), Refusal> {
        let mut life = self.life();
        if life.state != State::Created {
            return Err(Refusal::unknown(format!("container is in {} state", life.state.name())));
        }
        if life.is_removing {
            return Err(Refusal::unknown("container is in removing state, can't be started"));
        }
        if life.is_starting {
            return Err(Refusal::unknown("container is already in starting state"));
        }
        life.is_starting = true;
        Ok(())
    }

    /// It runs.
    pub(super) fn has_started(&self, at: Option<i64>) {
        let mut life = self.life();
        life.is_starting = false;
        life.state = State::Running;
        life.started_at = at.unwrap_or_else(clock::now);
    }

    /// It does not run, and never will.
    pub(super) fn has_not_started(&self, why: &Refusal) {
        let mut life = self.life();
        life.is_starting = false;
        life.state = State::Exited;
        life.finished_at = clock::now();
        life.exit_code = START_ERROR;
        life.reason = "StartError";
        why.words().clone_into(&mut life.message);
        drop(life);
        self.ended.send_replace(true);
    }

    /// It ran, and has ended.
    pub(super) fn has_ended(&self, exit: Exit) {
        let mut life = self.life();
        life.state = State::Exited;
        life.finished_at = exit.at.unwrap_or_else(clock::now);
        life.exit_code = exit.code.unwrap_or(KILLED);
        if exit.code.is_none() {
            "the guardian of its processes was killed, and they with it".clone_into(&mut life.message);
        }
        drop(life);
        self.ended.send_replace(true);
    }

    /// Marks it as being removed; one that runs is not.
    pub(super) fn begin_removal(&self) -> Result<(), Refusal> {
        let mut life = self.life();
        if life.state == State::Running {
            return Err(Refusal::unknown("container is still running, to stop first"));
        }
        if life.is_starting {
            return Err(Refusal::unknown("container is in starting state, can't be removed"));
        }
        if life.is_removing {
            return Err(Refusal::unknown("container is already in removing state"));
        }
        life.is_removing = true;
        Ok(())
    }

    /// It is still there.
    pub(super) fn has_not_been_removed(&self) {
        self.life().is_removing = false;
    }

    /// Whether its stop signal is still to be sent; true once, as with containerd.
    pub(super) fn is_first_stop(&self) -> bool {
        !self.is_told_to_stop.swap(true, Ordering::AcqRel)
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub(super) fn state(&self) -> State {
        self.life().state
    }

    /// Records what it may use. Nothing holds it to that.
    pub(super) fn set_resources(&self, linux: Option<v1::LinuxContainerResources>) -> Result<(), Refusal> {
        let mut life = self.life();
        if life.is_removing {
            return Err(Refusal::unknown(format!("container {:?} is in removing state", self.id)));
        }
        if let Some(update) = linux {
            let resources = life.resources.get_or_insert_default();
            resources.linux = Some(merged(resources.linux.take().unwrap_or_default(), update));
        }
        Ok(())
    }

    /// Whether it is among those that are asked for.
    pub(super) fn is_in(&self, filter: &v1::ContainerFilter) -> bool {
        (filter.id.is_empty() || filter.id == self.id)
            && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == self.sandbox)
            && filter.state.is_none_or(|wanted| wanted.state == i32::from(self.state().of_cri()))
            && has_labels(&self.config.labels, &filter.label_selector)
    }

    /// As in a list.
    pub(super) fn item(&self) -> v1::Container {
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.image.id.clone(),
            state: self.state().of_cri().into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: self.image.id.clone(),
        }
    }

    /// Everything about it.
    pub(super) fn status(&self) -> v1::ContainerStatus {
        let life = self.life();
        let reason = match life.state {
            State::Exited if life.reason.is_empty() && life.exit_code == 0 => "Completed",
            State::Exited if life.reason.is_empty() => "Error",
            _ => life.reason,
        };
        v1::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: life.state.of_cri().into(),
            created_at: self.created_at,
            started_at: life.started_at,
            finished_at: life.finished_at,
            exit_code: life.exit_code,
            image: Some(v1::ImageSpec { image: self.image.name.clone(), ..v1::ImageSpec::default() }),
            image_ref: self.image.id.clone(),
            reason: reason.to_owned(),
            message: life.message.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log_path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            resources: life.resources.clone(),
            image_id: self.image.id.clone(),
            user: Some(user()),
            stop_signal: self.config.stop_signal,
        }
    }

    /// Who it is, for usage figures.
    pub(super) fn attributes(&self) -> v1::ContainerAttributes {
        v1::ContainerAttributes {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// As the CRI calls it.
    pub(super) fn of_cri(self) -> v1::ContainerState {
        match self {
            Self::Created => v1::ContainerState::ContainerCreated,
            Self::Running => v1::ContainerState::ContainerRunning,
            Self::Exited => v1::ContainerState::ContainerExited,
        }
    }

    /// Its name in the CRI, such as `CONTAINER_RUNNING`.
    pub(super) fn name(self) -> &'static str {
        self.of_cri().as_str_name()
    }
}

/// The name that no other container may have: its own and that of its sandbox, and its attempt.
pub(super) fn name(
    metadata: Option<&v1::ContainerMetadata>,
    sandbox: Option<&v1::PodSandboxMetadata>,
) -> Result<String, Refusal> {
    let own = metadata.ok_or_else(|| Refusal::unknown("container config must include metadata"))?;
    let pod = sandbox.ok_or_else(|| Refusal::unknown("pod sandbox config must include metadata"))?;
    Ok(format!("{}_{}_{}_{}_{}", own.name, pod.name, pod.namespace, pod.uid, own.attempt))
}

/// Every container runs as who procrun runs as.
fn user() -> v1::ContainerUser {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let linux =
        v1::LinuxContainerUser { uid: uid.into(), gid: gid.into(), supplemental_groups: vec![gid.into()] };
    v1::ContainerUser { linux: Some(linux) }
}

/// The resources after an update: what it does not name stays.
fn merged(old: v1::LinuxContainerResources, new: v1::LinuxContainerResources) -> v1::LinuxContainerResources {
    let number = |new: i64, old: i64| if new == 0 { old } else { new };
    let text = |new: String, old: String| if new.is_empty() { old } else { new };
    let mut unified = old.unified;
    unified.extend(new.unified);
    v1::LinuxContainerResources {
        cpu_period: number(new.cpu_period, old.cpu_period),
        cpu_quota: number(new.cpu_quota, old.cpu_quota),
        cpu_shares: number(new.cpu_shares, old.cpu_shares),
        memory_limit_in_bytes: number(new.memory_limit_in_bytes, old.memory_limit_in_bytes),
        oom_score_adj: number(new.oom_score_adj, old.oom_score_adj),
        cpuset_cpus: text(new.cpuset_cpus, old.cpuset_cpus),
        cpuset_mems: text(new.cpuset_mems, old.cpuset_mems),
        hugepage_limits: if new.hugepage_limits.is_empty() {
            old.hugepage_limits
        } else {
            new.hugepage_limits
        },
        unified,
        memory_swap_limit_in_bytes: number(new.memory_swap_limit_in_bytes, old.memory_swap_limit_in_bytes),
    }
}
