//! Restarts client pods: creates their sandboxes and containers again from the clients' own
//! requests.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use prost_reflect::Value;
use tokio::time::sleep;
use tonic::Status;
use tracing::warn;

use super::compute_actions::should_restart_after_kill;
use super::requeue::Requeue;
use super::start_context::{StartContext, StartError};
use super::{PodWorker, TERMINATION_RETRY};
use crate::cri::labels::RESTART_COUNT;
use crate::cri::v1::PodSandboxConfig;
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, RawRunPodSandbox, with_timeout};
use crate::kill::KillPlan;
use crate::kubelet::client_pods::{ClientAction, PodKey};
use crate::kubelet::runtime_status::{ContainerInstance, InstanceState, RuntimePodStatus};
use crate::manifest::pod::{ClientRequest, Container, PodOrigin};
use crate::object_ref::ContainerRef;
use crate::terminal::sanitize;

/// Interval between checks whether the node has been listed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Objects that the worker created for a client.
#[derive(Debug, Default)]
pub(super) struct Created {
    sandbox: Option<Arc<str>>,
    /// Name, id and client request of each container.
    containers: Vec<(String, Arc<str>, ClientRequest)>,
}

impl Created {
    fn is_empty(&self) -> bool {
        self.sandbox.is_none() && self.containers.is_empty()
    }
}

impl PodWorker {
    /// Syncs a client pod until the client releases it. Leaves its containers running.
    pub(super) async fn run_client_pod(&mut self) {
        let mut requeue = Requeue::default();
        while !self.signals.terminate.is_cancelled() {
            self.pod = self.pods.borrow_and_update().clone();
            if let Some(prober) = self.context.prober.clone() {
                if !prober.has_listed() {
                    // The probe spec is incomplete before the node has been listed.
                    sleep(POLL_INTERVAL).await;
                    continue;
                }
                // Set before each sync: the prober may not have known the pod before.
                prober.set_restartable(
                    &self.names,
                    self.pod.containers.iter().map(|it| it.name.clone()).collect(),
                );
                self.pod = Arc::new(self.pod.with_spec(Arc::new(prober.spec_of(&self.pending_sandbox()))));
            }
            let synced = self.sync(&mut None).await;
            self.remove_unwanted().await;
            self.wait(requeue.after(synced, &self.pod)).await;
        }
        while !self.lock().created.is_empty() {
            // No other task removes these objects.
            sleep(TERMINATION_RETRY).await;
            self.remove_unwanted().await;
        }
        self.context.pleg_cache.forget(&self.pod.identity());
        if let Some(prober) = &self.context.prober {
            prober.set_restartable(&self.names, HashSet::new());
        }
    }

    /// Records the containers that have ended and are not restarted. They stay ended even if the
    /// runtime no longer lists them.
    pub(super) fn record_completed(&self, runtime_status: &RuntimePodStatus) {
        let Some(key) = PodKey::from_pod_ref(&self.names) else { return };
        for container in self.pod.containers.iter().filter(|it| {
            it.client_request.as_ref().is_some_and(|client_request| !client_request.has_finished)
        }) {
            let newest = runtime_status
                .latest(&container.name)
                .filter(|instance| instance.state == InstanceState::Exited);
            let is_back = |it: &ContainerInstance| {
                should_restart_after_kill(
                    &self.pod,
                    container,
                    it,
                    self.context.stores.probe_killed.has_pending_restart(&it.id),
                )
            };
            if let Some(ended) = newest.filter(|instance| !is_back(instance)) {
                self.context.client_pods.record(
                    &key,
                    ClientAction::ContainerCompleted(container.name.clone(), ended.id.to_string()),
                );
            }
        }
    }

    /// Whether the pod is still as this sync found it: the client has neither changed nor released
    /// it. First waits for all earlier calls of clients; returns `false` if the tap cannot confirm
    /// them.
    pub(super) async fn still_managed(&self) -> bool {
        let is_known = self.context.internal_calls.flush().await;
        is_known && !self.pods.has_changed().unwrap_or(true) && !self.signals.terminate.is_cancelled()
    }

    /// Whether the client still wants a container, by the same `CreateContainer` call.
    pub(super) async fn still_desired(&self, container: &Container) -> bool {
        let Some(client_request) = &container.client_request else { return true };
        self.context.internal_calls.flush().await && self.still_wants(&container.name, client_request)
    }

    fn still_wants(&self, name: &str, request: &ClientRequest) -> bool {
        let wanted = self.pods.borrow().container(name).and_then(|it| it.client_request.clone());
        !self.signals.terminate.is_cancelled()
            && wanted.is_some_and(|client_request| client_request.is_of_same_call(request))
    }

    /// Remembers a sandbox that was created for the client.
    pub(super) fn track_created_sandbox(&self, id: &Arc<str>) {
        self.lock().created.sandbox = Some(id.clone());
    }

    pub(super) fn track_created(&self, container: &Container, id: &str) {
        if let Some(client_request) = &container.client_request {
            let created = (container.name.clone(), id.into(), client_request.clone());
            self.lock().created.containers.push(created);
        }
    }

    /// Removes what was created for the client although it had released or replaced the original
    /// meanwhile. The client does not know these objects and would not remove them.
    async fn remove_unwanted(&self) {
        if !self.context.internal_calls.flush().await {
            // The next sync tries again.
            return;
        }
        let Created { sandbox, containers } = std::mem::take(&mut self.lock().created);
        for (name, id, client_request) in containers {
            if self.still_wants(&name, &client_request) {
                continue;
            }
            if let Err(status) = self.reclaim(&name, &id).await {
                let pod = self.pod.full_name();
                warn!(pod, container = %id, "removal of a released container failed: {}", sanitize(status.message()));
                self.lock().created.containers.push((name, id, client_request));
            }
        }
        let sandbox = sandbox.filter(|_| self.signals.terminate.is_cancelled());
        if let Some(id) = sandbox
            && let Err(status) = self.remove_sandbox(&id).await
        {
            let pod = self.pod.full_name();
            warn!(pod, sandbox = %id, "removal of a released sandbox failed: {}", sanitize(status.message()));
            self.lock().created.sandbox = Some(id);
        }
    }

    async fn reclaim(&self, name: &str, id: &Arc<str>) -> Result<(), Status> {
        let names = ContainerRef { id: Some(id.to_string()), name: Some(name.to_owned()), attempt: None };
        let message = "The client has released the container meanwhile".to_owned();
        let ending = KillPlan { message, grace_period: 0, pre_stop: None, blocked_by: None };
        self.kill(&Arc::new(names), id, ending, None, &[]).await?;
        self.remove(id).await
    }

    /// Returns the client's `RunPodSandbox` request with another attempt, and its configuration;
    /// `None` without a captured request.
    pub(super) fn sandbox_request(&self, attempt: u32) -> Option<(RawRunPodSandbox, PodSandboxConfig)> {
        let PodOrigin::Client { request: Ok(authored), .. } = &self.pod.origin else { return None };
        let mut config = authored.decoded().config.clone().unwrap_or_default();
        config.metadata.get_or_insert_default().attempt = attempt;
        let mut request = RawRunPodSandbox::clone(authored);
        request.set_field(&["config", "metadata", "attempt"], Value::U32(attempt));
        Some((request, config))
    }

    /// Creates a container from the client's request, with the next attempt. Returns its id and the
    /// attempt.
    pub(super) async fn recreate_container(
        &self,
        container: &Container,
        client_request: &ClientRequest,
        context: StartContext<'_>,
    ) -> Result<(String, u32), StartError> {
        let failed = |message: String| StartError::new("CreateContainerError", message);
        let config = client_request.request.decoded().config.clone().unwrap_or_default();
        let first = config.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let newest_attempt = context
            .runtime_status
            .all(&container.name)
            .map(|instance| instance.attempt)
            .max()
            .unwrap_or(first);
        let attempt = newest_attempt.max(first).max(client_request.attempt).checked_add(1);
        let attempt = attempt.ok_or_else(|| failed(format!("there is no attempt after {}", u32::MAX)))?;
        let count = config.annotations.get(RESTART_COUNT).and_then(|count| count.parse::<u32>().ok());
        let mut request = client_request.request.clone();
        request.set_field(&["pod_sandbox_id"], Value::String(context.sandbox.to_owned()));
        request.set_field(&["config", "metadata", "attempt"], Value::U32(attempt));
        request.set_field(
            &["config", "log_path"],
            Value::String(next_log_path(&config.log_path, first, attempt)),
        );
        if let Some(count) = count {
            let count = count.saturating_add(attempt - first);
            request.set_map_entry(&["config", "annotations"], RESTART_COUNT, count.to_string());
        }
        let of_sandbox = context.runtime_status.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let of_sandbox = context.config.metadata.as_ref().map_or(of_sandbox, |metadata| metadata.attempt);
        request.set_field(&["sandbox_config", "metadata", "attempt"], Value::U32(of_sandbox));
        let created =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, self.context.runtime.raw_client.create_container(request))
                .await;
        let created = created.map_err(|status| failed(sanitize(status.message())))?;
        Ok((created.container_id, attempt))
    }
}

/// Returns the log path of another attempt. If the file name of the first attempt ends with its
/// number, that number is replaced; otherwise the attempt is inserted before the extension.
fn next_log_path(path: &str, first: u32, attempt: u32) -> String {
    let (dir, file) = path.rsplit_once('/').map_or(("", path), |(directory, file)| (directory, file));
    let (stem, extension) = match file.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
        _ => (file, String::new()),
    };
    let before = stem.strip_suffix(&first.to_string());
    let before = before.filter(|before| !before.ends_with(|last: char| last.is_ascii_digit()));
    let next = match before {
        _ if file.is_empty() => return path.to_owned(),
        Some(before) => format!("{before}{attempt}{extension}"),
        None => format!("{stem}.{attempt}{extension}"),
    };
    if dir.is_empty() && !path.starts_with('/') { next } else { format!("{dir}/{next}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_of_a_client_container_has_its_own_log_path() {
        for (path, first, attempt, expected) in [
            ("main/0.log", 0, 3, "main/3.log"),
            ("main/7.log", 7, 8, "main/8.log"),
            ("main.0.log", 0, 1, "main.1.log"),
            ("main-0", 0, 1, "main-1"),
            ("main.log", 0, 1, "main.1.log"),
            ("a.b/main", 0, 2, "a.b/main.2"),
            ("main10.log", 0, 1, "main10.1.log"),
            (".log", 0, 1, ".log.1"),
            ("/0.log", 0, 1, "/1.log"),
            ("", 0, 1, ""),
        ] {
            assert_eq!(next_log_path(path, first, attempt), expected, "{path}");
        }
    }
}
