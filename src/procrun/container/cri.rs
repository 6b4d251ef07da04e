//! Conversion of a container to the messages of the CRI.

use super::state::ContainerStage;
use super::{ContainerBackend, ProcrunContainer};
use crate::cri::v1;
use crate::procrun::sandbox::has_labels;

impl ProcrunContainer {
    /// Whether the filter selects the container.
    pub(in crate::procrun) fn matches(&self, filter: &v1::ContainerFilter) -> bool {
        (filter.id.is_empty() || filter.id == self.id)
            && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == self.sandbox)
            && filter.state.is_none_or(|wanted| wanted.state == i32::from(self.stage().to_cri()))
            && has_labels(&self.config.labels, &filter.label_selector)
    }

    /// Returns the container's entry in a list.
    pub(in crate::procrun) fn item(&self) -> v1::Container {
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.image.id.clone(),
            state: self.stage().to_cri().into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: self.image.id.clone(),
        }
    }

    /// Returns the container's status.
    pub(in crate::procrun) fn status(&self) -> v1::ContainerStatus {
        let stage = self.stage();
        let status = v1::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: stage.to_cri().into(),
            created_at: self.created_at,
            image: Some(v1::ImageSpec { image: self.image.name.clone(), ..v1::ImageSpec::default() }),
            image_ref: self.image.id.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log_path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            resources: self.resources(),
            image_id: self.image.id.clone(),
            user: Some(user()),
            stop_signal: self.config.stop_signal,
            ..v1::ContainerStatus::default()
        };
        match stage {
            ContainerStage::Created | ContainerStage::Starting => status,
            ContainerStage::Running { started_at } => v1::ContainerStatus { started_at, ..status },
            ContainerStage::Exited { started_at, finished_at, outcome } => v1::ContainerStatus {
                started_at,
                finished_at,
                exit_code: outcome.exit_code(),
                reason: outcome.reason().to_owned(),
                message: outcome.message().to_owned(),
                ..status
            },
        }
    }

    /// Returns the verbose status as JSON: containerd's fields as far as procrun has them,
    /// including the process id, 0 if the container does not run.
    pub(in crate::procrun) fn info(&self) -> String {
        let pid = match self.backend.get() {
            Some(ContainerBackend::Processes { first, .. }) if self.stage().is_running() => first.pid,
            _ => 0,
        };
        serde_json::json!({ "sandboxID": self.sandbox, "pid": pid, "directory": self.dir }).to_string()
    }

    /// Returns the attributes that identify the container in statistics.
    pub(in crate::procrun) fn attributes(&self) -> v1::ContainerAttributes {
        v1::ContainerAttributes {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }
}

/// Returns the user of every container, which is procrun's own user.
fn user() -> v1::ContainerUser {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let linux =
        v1::LinuxContainerUser { uid: uid.into(), gid: gid.into(), supplemental_groups: vec![gid.into()] };
    v1::ContainerUser { linux: Some(linux) }
}
