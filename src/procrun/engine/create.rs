//! Creation of containers.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::{debug, warn};

use super::Engine;
use crate::cri::v1::{ContainerConfig, ContainerEventType as Event, CreateContainerRequest, Int64Value};
use crate::gofmt::system_error;
use crate::hex::random_id;
use crate::procrun::container::{ContainerParams, ProcrunContainer, name};
use crate::procrun::error::CriError;
use crate::procrun::{images, log, signal};

impl Engine {
    /// Creates a container without starting it. An error leaves nothing behind.
    pub(in crate::procrun) fn create(
        &self,
        request: CreateContainerRequest,
    ) -> Result<Arc<ProcrunContainer>, CriError> {
        let sandbox_id = &request.pod_sandbox_id;
        let not_found = |error: CriError| error.context(format!("failed to find sandbox id {sandbox_id:?}"));
        let sandbox = self.sandboxes.get(sandbox_id).map_err(not_found)?;
        let config = request.config.unwrap_or_default();
        let pod = request.sandbox_config.unwrap_or_default();
        let name = name(config.metadata.as_ref(), pod.metadata.as_ref())?;
        let taken = |error: CriError| error.context(format!("failed to reserve container name {name:?}"));
        self.containers.check_free(&name).map_err(taken)?;
        let image = config.image.as_ref().map_or("", |image| &image.image);
        let image = self
            .images
            .resolve(image)
            .map_err(|error| error.context(format!("failed to resolve image {image:?}")))?;
        let id = random_id();
        if let Some(lack) = lack(&config).filter(|_| !sandbox.is_synthetic) {
            return Err(CriError::unknown(lack)
                .context("failed to generate spec")
                .context(format!("failed to generate container {id:?} spec")));
        }
        signal::number(config.stop_signal)?;
        let log_path = log::path(&pod.log_directory, &config.log_path)?;
        let dir = self.root.container_dir(&id);
        if !sandbox.is_synthetic {
            fs::create_dir(&dir).map_err(|error| {
                let (directory, error_text) = (dir.display(), system_error(&error));
                CriError::unknown(format!(
                    "failed to create container root directory \"{directory}\": {error_text}"
                ))
            })?;
        }
        let params = ContainerParams {
            id,
            name: name.clone(),
            sandbox: sandbox.id.clone(),
            config,
            image: image.clone(),
            log_path,
            dir: dir.clone(),
        };
        let undo = |error: CriError| {
            let _ = fs::remove_dir(&dir);
            error
        };
        // Another caller may have taken the name since the check above.
        let container =
            self.containers.add(ProcrunContainer::new(params)).map_err(|error| undo(taken(error)))?;
        // A removal of the sandbox marks the sandbox before it lists the containers, and this
        // function adds the container before it reads the mark: at least one of them sees the
        // other.
        if sandbox.is_being_removed() {
            self.containers.remove(&container);
            return Err(undo(not_found(CriError::not_found())));
        }
        self.images.remember(&image);
        self.report_ignored(&container);
        self.publish(&container.id, &container.sandbox, Event::ContainerCreatedEvent);
        Ok(container)
    }

    /// Logs the settings of a container that are not applied: the first time as a warning, later at
    /// debug level, because almost every container of a kubelet has mounts.
    fn report_ignored(&self, container: &ProcrunContainer) {
        let (name, id) = (&container.name, &container.id);
        let ignored = ignored_settings(&container.config).join(", ");
        if ignored.is_empty() {
            return;
        }
        if self.has_reported_ignored.swap(true, Ordering::Relaxed) {
            debug!(container = %id, name, ignored, "procrun ignores settings of the container config");
        } else {
            warn!(
                name,
                ignored,
                "procrun isolates nothing and ignores settings of the container config; later containers are logged at debug level"
            );
        }
    }
}

/// Returns the reason why a container with this config cannot run. An image is only a name, and has
/// neither a command nor files.
fn lack(config: &ContainerConfig) -> Option<String> {
    if config.command.is_empty() && config.args.is_empty() {
        return Some("no command specified: images of procrun have none; set command or args".to_owned());
    }
    let mount = config.mounts.iter().find(|mount| mount.image.is_some())?;
    Some(format!("procrun has no files of images to mount at {:?}", mount.container_path))
}

/// Returns the settings of a config that are recorded and returned, but not applied.
fn ignored_settings(config: &ContainerConfig) -> Vec<&'static str> {
    let ContainerConfig { mounts, devices, linux, tty, .. } = config;
    let context = linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    // A kubelet passes on the user of the image.
    let is_other = |user: &Int64Value| user.value != images::user();
    let has_user = context.is_some_and(|context| {
        context.run_as_user.as_ref().is_some_and(is_other)
            || context.run_as_group.is_some()
            || !context.run_as_username.is_empty()
    });
    let settings = [
        ("mounts", !mounts.is_empty()),
        ("devices", !devices.is_empty()),
        ("a user", has_user),
        ("a terminal", *tty),
    ];
    settings.into_iter().filter(|(_, is_set)| *is_set).map(|(setting, _)| setting).collect()
}
