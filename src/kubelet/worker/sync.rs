//! Executes the pod actions of a sync in the kubelet's order: reset, kill, sandbox, init
//! containers, regular containers (kubelet: `kuberuntime_manager.go`: `SyncPod`).

use std::collections::BTreeSet;
use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use tracing::debug;

use super::compute_actions::PodActions;
use super::kill::GracePeriodRules;
use super::start_context::{StartContext, StartError};
use super::{PodWorker, SyncError, SyncResult, TERMINATION_RETRY};
use crate::cri::v1::{PodSandboxConfig, RunPodSandboxRequest, UserNamespace};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, RawRunPodSandbox, with_timeout};
use crate::events::{Event, reason};
use crate::gofmt::rpc_error;
use crate::kubelet::cri_config::{self, SandboxInputs};
use crate::kubelet::pod_dir::{PodDir, VolumeError, make_log_directory};
use crate::kubelet::pod_status::waiting;
use crate::kubelet::runtime_status::{ContainerInstance, RuntimePodStatus};
use crate::kubelet::user_namespaces::{self, UserNamespaceError};
use crate::manifest::ContainerKind;
use crate::manifest::pod::PodOrigin;
use crate::prober::PodReport;
use crate::terminal::sanitize;

impl PodWorker {
    pub(super) async fn execute(
        &self,
        actions: PodActions,
        runtime_status: &RuntimePodStatus,
        report: Option<&PodReport>,
    ) -> Result<SyncResult, SyncError> {
        if actions.create_sandbox.is_some()
            && let PodOrigin::Client { request: Err(reason), .. } = &self.pod.origin
        {
            let message = format!("The sandbox has ended and cannot be recreated: {reason}");
            self.record_event(None, Event::warning(reason::NOT_RESTARTABLE, message));
            return Ok(SyncResult::NoChange);
        }
        if !actions.containers_to_reset.is_empty() {
            return self.reset(&actions, runtime_status, report).await;
        }
        let is_done = self.kill_containers(&actions, runtime_status, report).await?;
        if actions.init_containers_to_start.is_empty()
            && actions.containers_to_start.is_empty()
            && actions.create_sandbox.is_none()
        {
            self.refresh_image_volumes(runtime_status).await?;
            return Ok(if is_done { SyncResult::Changed } else { SyncResult::NoChange });
        }
        // The state is on disk before the runtime creates anything, so that a later probeshim knows
        // the pod.
        self.context.stores.state.flush().await;
        let (config, authored) = self.sandbox_config(actions.create_sandbox, runtime_status).await?;
        let (sandbox, addresses) = match actions.create_sandbox {
            Some(_) => self.run_sandbox(&config, authored).await?,
            None => {
                (actions.sandbox.clone().unwrap_or_else(|| "".into()), runtime_status.addresses().to_vec())
            }
        };
        if actions.create_sandbox.is_some() && self.pod.is_client_pod() {
            self.track_created_sandbox(&sandbox);
            if !self.still_managed().await {
                return Ok(SyncResult::Changed);
            }
        } else if addresses.is_empty() && !self.pod.host.network && !self.pod.is_client_pod() {
            // The next sync replaces the sandbox, as the kubelet does.
            return Ok(SyncResult::Retry(Some(SystemTime::now() + TERMINATION_RETRY)));
        }
        let objects = self.context.objects.get();
        let credentials = self.pull_credentials(&objects);
        let image_volumes = self.pull_image_volumes(&config, &objects, credentials.as_deref()).await?;
        let start = StartContext {
            sandbox: &sandbox,
            config: &config,
            addresses: &addresses,
            runtime_status,
            objects: &objects,
            credentials: credentials.as_deref(),
            image_volumes: &image_volumes,
        };
        Ok(self.start_all(&actions, start).await)
    }

    /// Stops and removes all containers. The next sync starts them again.
    async fn reset(
        &self,
        actions: &PodActions,
        runtime_status: &RuntimePodStatus,
        report: Option<&PodReport>,
    ) -> Result<SyncResult, SyncError> {
        for to_kill in &actions.containers_to_reset {
            if runtime_status.live().any(|instance| instance.id == to_kill.id) {
                self.kill_container(to_kill, runtime_status, report).await?;
            }
            self.remove(&to_kill.id).await?;
        }
        Ok(SyncResult::Changed)
    }

    /// Kills the pod, or single containers one after the other. Returns whether there was anything
    /// to kill.
    async fn kill_containers(
        &self,
        actions: &PodActions,
        runtime_status: &RuntimePodStatus,
        report: Option<&PodReport>,
    ) -> Result<bool, SyncError> {
        let mut any_killed = !actions.containers_to_kill.is_empty();
        if actions.kill_pod {
            if actions.create_sandbox.is_some() && actions.sandbox.is_some() {
                let message = "Pod sandbox changed, it will be killed and re-created.";
                self.record_event(None, Event::normal(reason::SANDBOX_CHANGED, message));
            }
            any_killed |= runtime_status.live().next().is_some()
                || runtime_status.sandboxes.iter().any(|it| it.is_ready);
            let killed = self.kill_all(runtime_status, GracePeriodRules::default()).await;
            killed.inspect_err(|error| {
                let message = format!("error killing pod: {error}");
                self.record_event(None, Event::warning(reason::FAILED_KILL_POD, message));
            })?;
            if actions.create_sandbox.is_some() {
                // Init containers that succeeded in the earlier sandbox would make the new one look
                // initialized.
                for instance in runtime_status.containers.iter().filter(|it| self.is_init(it)) {
                    self.remove_with_log(instance).await?;
                }
            }
        }
        for to_kill in &actions.containers_to_kill {
            self.kill_container(to_kill, runtime_status, report).await?;
        }
        Ok(any_killed)
    }

    /// Starts init containers and sidecars, then regular containers. If an init container fails, no
    /// later container is started.
    async fn start_all(&self, actions: &PodActions, context: StartContext<'_>) -> SyncResult {
        let mut failures: Vec<StartError> = Vec::new();
        for name in actions.init_containers_to_start.iter().chain(&actions.containers_to_start) {
            let Some(container) = self.pod.container(name).cloned() else { continue };
            match self.start(&container, context).await {
                Ok(()) => drop(self.lock().reasons.remove(name)),
                Err(error) => {
                    if let Some(instance) = context.runtime_status.latest(name) {
                        self.context.stores.probe_killed.set_restart_tried(&instance.id);
                    }
                    let waiting = waiting(&error.reason, &error.message);
                    self.lock().reasons.insert(name.clone(), waiting);
                    failures.push(error);
                    if container.spec.role == ContainerKind::Init {
                        break;
                    }
                }
            }
        }
        if failures.is_empty() {
            return SyncResult::Changed;
        }
        SyncResult::Retry(failures.iter().filter_map(|failure| failure.until).min())
    }

    /// Returns the configuration of the current or new sandbox. For a client pod it also returns
    /// the client's request. Reads the resolver configuration of the node for each call (kubelet:
    /// `network/dns/dns.go`: `GetPodDNS`).
    pub(super) async fn sandbox_config(
        &self,
        new_attempt: Option<u32>,
        runtime_status: &RuntimePodStatus,
    ) -> Result<(PodSandboxConfig, Option<RawRunPodSandbox>), SyncError> {
        let attempt = new_attempt.or(runtime_status.sandbox().map(|sandbox| sandbox.attempt)).unwrap_or(0);
        if let Some((authored, config)) = self.sandbox_request(attempt) {
            return Ok((config, Some(authored)));
        }
        let node = &self.context.node;
        let report = |error: &dyn fmt::Display| {
            if new_attempt.is_some() {
                self.record_sandbox_failure(&error.to_string());
            }
        };
        let node_dns = node.dns().inspect_err(|error| report(error))?;
        let user_namespace = self.user_namespace().await.inspect_err(|error| report(error))?;
        let inputs = SandboxInputs {
            attempt,
            node_dns: &node_dns,
            seen: &self.first_seen(),
            cgroup_driver: self.context.runtime_state.cgroup_driver().await,
            user_namespace,
        };
        let config = cri_config::sandbox(&self.pod, node, &inputs).inspect_err(|error| report(error))?;
        Ok((config, None))
    }

    /// Returns the user namespace of the pod (kubelet: `userns/userns_manager.go`:
    /// `GetOrCreateUserNamespaceMappings`).
    async fn user_namespace(&self) -> Result<UserNamespace, SyncError> {
        if !self.pod.has_user_namespace {
            return Ok(user_namespaces::host_namespace());
        }
        let objects = self.context.objects.get();
        let handler = objects.runtime_handler(&self.pod.runtime_handler)?;
        let support = self.context.runtime_state.supports_user_namespaces(handler).await;
        if support != Some(true) {
            let (handler, is_known) = (handler.to_owned(), support.is_some());
            return Err(UserNamespaceError::Unsupported { handler, is_known }.into());
        }
        let namespace = self.context.stores.user_namespaces.get_or_create(&self.pod.uid)?;
        self.context.stores.state.flush().await;
        Ok(namespace)
    }

    /// Returns the time at which the pod was seen first, in RFC 3339.
    pub(super) fn first_seen(&self) -> String {
        jiff::Timestamp::try_from(self.last_status().1).map(|it| it.to_string()).unwrap_or_default()
    }

    /// Records an event about a sandbox that was not created.
    fn record_sandbox_failure(&self, error: &str) {
        let message = format!("Failed to create pod sandbox: {}", sanitize(error));
        self.record_event(None, Event::warning(reason::FAILED_CREATE_POD_SAND_BOX, message));
    }

    /// Creates a sandbox. Returns its id and its addresses.
    async fn run_sandbox(
        &self,
        config: &PodSandboxConfig,
        authored: Option<RawRunPodSandbox>,
    ) -> Result<(Arc<str>, Vec<String>), SyncError> {
        let objects = self.context.objects.get();
        let handler = objects.runtime_handler(&self.pod.runtime_handler);
        let handler = handler.inspect_err(|error| self.record_sandbox_failure(&error.to_string()))?;
        let logs = config.log_directory.clone();
        let log_dir_created = if logs.is_empty() {
            Ok(())
        } else if authored.is_some() {
            // A client may keep its logs in any directory. The umask may be any.
            DirBuilder::new().recursive(true).mode(0o755).create(&logs)
        } else {
            make_log_directory(&self.context.node.logs, Path::new(&logs))
        };
        log_dir_created.map_err(|error| SyncError::Volumes(format!("{logs}: {error}")))?;
        let request =
            RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.to_owned() };
        let run = match authored {
            Some(authored) => {
                with_timeout(
                    RUNTIME_REQUEST_TIMEOUT * 2,
                    self.context.runtime.raw_client.run_pod_sandbox(authored),
                )
                .await
            }
            None => {
                with_timeout(
                    RUNTIME_REQUEST_TIMEOUT * 2,
                    self.context.runtime.relay_client.clone().run_pod_sandbox(request),
                )
                .await
            }
        };
        let id: Arc<str> =
            run.inspect_err(|status| self.record_sandbox_failure(&rpc_error(status)))?.pod_sandbox_id.into();
        // Reads the status without updating the PLEG cache, so that the next relist detects the new
        // sandbox and requests a sync, as with the kubelet. That sync reports the back-off of an
        // image whose pull has failed.
        let (runtime_status, _) = self.context.runtime.pod_status(&self.pod).await?;
        let sandbox = runtime_status.sandboxes.iter().find(|sandbox| sandbox.id == id);
        Ok((id, sandbox.map(|sandbox| sandbox.addresses.clone()).unwrap_or_default()))
    }

    /// Removes old containers and sandboxes. Keeps the newest instance of each container, the
    /// newest that has exited, the sandboxes of these, and the newest sandbox.
    pub(super) async fn prune_exited(&self, runtime_status: &RuntimePodStatus) {
        for instance in runtime_status.garbage() {
            // Clients remove the logs of their containers themselves.
            let removed = if self.pod.is_client_pod() {
                self.remove(&instance.id).await
            } else {
                self.remove_with_log(instance).await
            };
            if let Err(status) = removed {
                debug!(container = %instance.id, "removal of an exited container failed: {}", status.message());
            }
        }
        for sandbox in runtime_status.old_sandboxes() {
            if let Err(status) = self.remove_sandbox(&sandbox.id).await {
                debug!(sandbox = %sandbox.id, "removal of an old sandbox failed: {}", status.message());
            }
        }
    }

    /// Records an event for each new reason why a volume was not updated. The pod continues with
    /// the earlier content.
    fn record_outdated(&self, outdated: &[VolumeError]) {
        let reasons: BTreeSet<String> = outdated.iter().map(ToString::to_string).collect();
        let known = std::mem::replace(&mut self.lock().outdated_volumes, reasons.clone());
        for reason in reasons.difference(&known) {
            self.record_event(None, Event::warning(reason::FAILED_MOUNT, reason.clone()));
        }
    }

    fn is_init(&self, instance: &ContainerInstance) -> bool {
        self.pod.init_containers().any(|container| container.name == instance.name)
    }

    /// Prepares the pod's directory on the host. Records an event if that fails or a volume is
    /// outdated.
    pub(super) async fn prepare_pod_dir(&self, addresses: &[String]) -> Result<(), SyncError> {
        let event = match self.in_pod_dir(addresses, PodDir::prepare).await {
            Ok(Ok(outdated)) => {
                self.record_outdated(&outdated);
                return Ok(());
            }
            Ok(Err(error @ VolumeError::SetUp { .. })) => {
                Event::warning(reason::FAILED_MOUNT, error.to_string())
            }
            Ok(Err(error)) => {
                Event::warning(reason::FAILED, format!("error making pod data directories: {error}"))
            }
            Err(_) => Event::warning(reason::FAILED, "error making pod data directories: probeshim panicked"),
        };
        let message = event.message.clone();
        self.record_event(None, event);
        Err(SyncError::Volumes(message))
    }
}
