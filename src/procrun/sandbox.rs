//! A sandbox: the containers of a pod. In procrun it has no process and no namespaces, only a
//! record.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::clock;
use super::error::CriError;
use super::store::Keyed;
use crate::cri::v1;
use crate::hex::random_id;

/// IP address of every pod.
const ADDRESS: &str = "127.0.0.1";

/// A sandbox that is ready or not.
#[derive(Debug)]
pub(super) struct ProcrunSandbox {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) config: v1::PodSandboxConfig,
    created_at: i64,
    /// Cancelled when the sandbox becomes not ready, which is permanent.
    ended: CancellationToken,
    is_being_removed: AtomicBool,
    /// Semaphore with one permit, which the caller that removes the sandbox holds. Other callers
    /// wait.
    removal: Semaphore,
    /// Whether the sandbox's containers answer ExecSync without a process.
    pub(super) is_synthetic: bool,
}

impl ProcrunSandbox {
    /// Returns a sandbox that is ready. Fails if the config has no metadata.
    pub(super) fn new(config: v1::PodSandboxConfig, is_synthetic: bool) -> Result<Self, CriError> {
        let name = name(config.metadata.as_ref())
            .ok_or_else(|| CriError::unknown("sandbox config must include metadata"))?;
        let (id, created_at) = (random_id(), clock::now());
        Ok(Self {
            id,
            name,
            config,
            created_at,
            ended: CancellationToken::new(),
            is_being_removed: AtomicBool::new(false),
            removal: Semaphore::new(1),
            is_synthetic,
        })
    }

    /// Whether containers can be started in the sandbox.
    pub(super) fn is_ready(&self) -> bool {
        !self.ended.is_cancelled()
    }

    /// Makes the sandbox not ready, permanently. Returns whether it was ready.
    pub(super) fn end(&self) -> bool {
        let was_ready = self.is_ready();
        self.ended.cancel();
        was_ready
    }

    /// Waits until the sandbox is not ready.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Marks the sandbox as being removed, so that no container is created in it. Waits while
    /// another caller removes it; the permit makes other callers wait.
    pub(super) async fn begin_removal(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.removal.acquire().await.ok();
        self.is_being_removed.store(true, Ordering::SeqCst);
        turn
    }

    /// Removes the mark of [`Self::begin_removal`] after the removal has failed.
    pub(super) fn give_up_removal(&self) {
        self.is_being_removed.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_being_removed(&self) -> bool {
        self.is_being_removed.load(Ordering::SeqCst)
    }

    fn state(&self) -> i32 {
        let state = if self.is_ready() {
            v1::PodSandboxState::SandboxReady
        } else {
            v1::PodSandboxState::SandboxNotready
        };
        state.into()
    }

    /// Whether the filter selects the sandbox.
    pub(super) fn matches(&self, filter: &v1::PodSandboxFilter) -> bool {
        (filter.id.is_empty() || filter.id == self.id)
            && filter.state.is_none_or(|wanted| wanted.state == self.state())
            && has_labels(&self.config.labels, &filter.label_selector)
    }

    /// Returns the sandbox's entry in a list.
    pub(super) fn item(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: String::new(),
        }
    }

    /// Returns the sandbox's status.
    pub(super) fn status(&self) -> v1::PodSandboxStatus {
        let linux = self.config.linux.as_ref();
        let context = linux.and_then(|linux| linux.security_context.as_ref());
        let options = context.and_then(|context| context.namespace_options.clone());
        // A pod has an address only while its sandbox is ready, as in containerd.
        let ip = if self.is_ready() { ADDRESS.to_owned() } else { String::new() };
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state(),
            created_at: self.created_at,
            network: Some(v1::PodSandboxNetworkStatus { ip, additional_ips: Vec::new() }),
            linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(v1::Namespace { options }) }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: String::new(),
        }
    }

    /// Returns the attributes that identify the sandbox in statistics.
    pub(super) fn attributes(&self) -> v1::PodSandboxAttributes {
        v1::PodSandboxAttributes {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }
}

impl Keyed for ProcrunSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the unique name of a sandbox: `name_namespace_uid_attempt`.
fn name(metadata: Option<&v1::PodSandboxMetadata>) -> Option<String> {
    let metadata = metadata?;
    Some(format!("{}_{}_{}_{}", metadata.name, metadata.namespace, metadata.uid, metadata.attempt))
}

/// Whether `labels` has all labels of a selector.
pub(super) fn has_labels(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
