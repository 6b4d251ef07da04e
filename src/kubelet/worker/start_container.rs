//! Starts one container, in the kubelet's order: back-off, image, create, start, postStart
//! (kubelet: `kuberuntime_container.go`: `startContainer`).

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tonic::Status;

use super::PodWorker;
use super::start_context::{StartContext, StartError};
use crate::cri::v1::{CreateContainerRequest, Image, StartContainerRequest};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, with_timeout};
use crate::events::{Event, reason};
use crate::gofmt::format_duration;
use crate::handler::HookError;
use crate::kill::message;
use crate::kubelet::backoff::{Backoff, BackoffError};
use crate::kubelet::cri_config::{self, ContainerInputs};
use crate::kubelet::images::EnsuredImage;
use crate::kubelet::pod_dir::{ImageVolumes, make_log_directory};
use crate::kubelet::runtime_status::{ContainerInstance, RuntimePodStatus};
use crate::manifest::pod::{Container, Pod, RecursiveReadOnly};
use crate::manifest::{ConfigObjects, Hook};
use crate::object_ref::ContainerRef;
use crate::terminal::sanitize;

impl PodWorker {
    /// Starts a container. Fails with the reason for which the container waits.
    pub(super) async fn start(
        &self,
        container: &Container,
        context: StartContext<'_>,
    ) -> Result<(), StartError> {
        let container_ref = ContainerRef { name: Some(container.name.clone()), ..ContainerRef::default() };
        let container_ref = Arc::new(container_ref);
        self.back_off(container, context.runtime_status, &container_ref)?;
        // The back-off is on disk before the start, so that it continues after a crash of
        // probeshim.
        self.context.stores.state.flush().await;
        let image_volumes = self.image_volumes_of(container, &container_ref, context)?;
        let ensured = self.ensure_image(container, &container_ref, context).await;
        let image = ensured.inspect_err(|error| self.failed(&container_ref, error))?;
        if !self.still_desired(container).await {
            return Ok(());
        }
        let created = match &container.client_request {
            Some(request) => self.recreate_container(container, request, context).await,
            None => self.create(container, context, &image, image_volumes).await,
        };
        let (id, attempt) = created.inspect_err(|error| self.failed(&container_ref, error))?;
        self.track_created(container, &id);
        let name = Some(container.name.clone());
        let named = Arc::new(ContainerRef { id: Some(id.clone()), name, attempt: Some(attempt) });
        self.record_event(Some(&named), Event::normal(reason::CREATED, "Container created"));
        if !self.still_desired(container).await {
            return Ok(());
        }
        let request = StartContainerRequest { container_id: id.clone() };
        let started = with_timeout(
            RUNTIME_REQUEST_TIMEOUT,
            self.context.runtime.relay_client.clone().start_container(request),
        )
        .await;
        let started = started.map_err(|status| StartError::new("RunContainerError", argv(&status)));
        started.inspect_err(|error| self.failed(&named, error))?;
        self.record_event(Some(&named), Event::normal(reason::STARTED, "Container started"));
        match container.spec.post_start() {
            Some(hook) => self.post_start(container, &named, context, hook.clone()).await,
            None => Ok(()),
        }
    }

    /// Fails, with an event, if the back-off of an exited container has not passed.
    fn back_off(
        &self,
        container: &Container,
        runtime_status: &RuntimePodStatus,
        names: &Arc<ContainerRef>,
    ) -> Result<(), StartError> {
        let is_time = check_backoff(
            &self.context.stores.restart_backoff,
            &self.pod,
            container,
            runtime_status,
            SystemTime::now(),
        );
        let Err(BackoffError { delay, until }) = is_time else { return Ok(()) };
        let (name, pod) = (&container.name, &self.pod);
        let whole = format!("{}_{}({})", pod.name, pod.namespace, pod.uid);
        let message = format!("Back-off restarting failed container {name} in pod {whole}");
        self.record_event(Some(names), Event::warning(reason::BACK_OFF, message));
        let delay = format_duration(Duration::from_secs(delay.as_secs()));
        let message = format!("back-off {delay} restarting failed container={name} pod={whole}");
        Err(StartError { until: Some(until), ..StartError::new("CrashLoopBackOff", message) })
    }

    async fn create(
        &self,
        container: &Container,
        context: StartContext<'_>,
        image: &EnsuredImage,
        image_volumes: ImageVolumes,
    ) -> Result<(String, u32), StartError> {
        let (pod, node) = (&*self.pod, &self.context.node);
        let EnsuredImage { image_ref, status: image_status } = image;
        let image_status = image_status.as_ref();
        let config_error = |message: String| StartError::new("CreateContainerConfigError", message);
        verify_run_as_non_root(pod, container, image_status).map_err(config_error)?;
        let logs = cri_config::log_dir(pod, &node.logs).join(&container.name);
        let attempt = restart_count(context.runtime_status.latest(&container.name), &logs);
        let log_dir = make_log_directory(&node.logs, &logs);
        log_dir.map_err(|error| config_error(format!("{}: {error}", logs.display())))?;
        let variables = self.variables(container, context.addresses).await.map_err(config_error)?;
        let recurses = self.recurses(container, context.objects).await.map_err(config_error)?;
        let mounts = self.mounts(container, context.addresses, &variables, recurses, image_volumes).await;
        let mounts = mounts.map_err(config_error)?;
        let user_namespace = cri_config::user_namespace(context.config);
        let inputs =
            ContainerInputs { attempt, image: image_ref, image_status, variables, mounts, user_namespace };
        let request = CreateContainerRequest {
            pod_sandbox_id: context.sandbox.to_owned(),
            config: Some(cri_config::container(pod, container, node, inputs)),
            sandbox_config: Some(context.config.clone()),
        };
        let created = with_timeout(
            RUNTIME_REQUEST_TIMEOUT,
            self.context.runtime.relay_client.clone().create_container(request),
        )
        .await;
        let created = created.map_err(|status| StartError::new("CreateContainerError", argv(&status)))?;
        Ok((created.container_id, attempt))
    }

    /// Whether the mounts of a container can be recursively read-only (kubelet: `kubelet_pods.go`:
    /// `resolveRecursiveReadOnly`).
    async fn recurses(&self, container: &Container, objects: &ConfigObjects) -> Result<bool, String> {
        let wanted = |wanted| container.mounts.iter().find(move |mount| mount.recursive == wanted);
        let needed = wanted(RecursiveReadOnly::Enabled);
        if needed.or(wanted(RecursiveReadOnly::IfPossible)).is_none() {
            return Ok(false);
        }
        let handler = objects.runtime_handler(&self.pod.runtime_handler);
        let handler = handler.map_err(|error| error.to_string())?;
        let can = self.context.runtime_state.supports_rro(handler).await;
        match needed.filter(|_| !can) {
            Some(mount) => {
                let volume = &mount.volume;
                Err(format!(
                    "volume {volume:?} requested recursive read-only mode, but it is not supported by the runtime"
                ))
            }
            None => Ok(can),
        }
    }

    /// Runs the postStart hook. Stops the container if the hook fails.
    async fn post_start(
        &self,
        container: &Container,
        names: &Arc<ContainerRef>,
        context: StartContext<'_>,
        hook: Hook,
    ) -> Result<(), StartError> {
        let id: Arc<str> = names.id.as_deref().unwrap_or_default().into();
        let address = context.addresses.first().map(String::as_str).unwrap_or_default();
        let hooked = self.hook_context(&container.spec, names, &id, address);
        let reason = match hooked.run(hook, self.context.executor.clone(), None).await {
            Ok(()) => return Ok(()),
            Err(HookError::Failed(reason)) => sanitize(&reason),
            Err(HookError::TimedOut | HookError::Panicked) => {
                "probeshim panicked while it ran the hook".to_owned()
            }
        };
        self.record_event(
            Some(names),
            Event::warning(reason::FAILED_POST_START_HOOK, "PostStartHook failed"),
        );
        let ending = self.kill_spec(container, message::FAILED_POST_START_HOOK.to_owned());
        // If the kill fails, the next sync sees a running container and does not run the hook
        // again.
        let _ = self.kill(names, &id, ending, None, &[]).await;
        Err(StartError::new("PostStartHookError", reason))
    }

    pub(super) fn failed(&self, names: &Arc<ContainerRef>, error: &StartError) {
        self.record_event(
            Some(names),
            Event::warning(reason::FAILED, format!("Error: {}", error.reason_or_message())),
        );
    }
}

/// Fails if the back-off of a container has not passed. `runtime_status` must be from before this
/// sync: the back-off of a container that the sync itself has killed counts from the exit of the
/// instance before (kubelet: `kuberuntime_manager.go`: `doBackOff`).
pub(super) fn check_backoff(
    crashes: &Backoff,
    pod: &Pod,
    container: &Container,
    runtime_status: &RuntimePodStatus,
    now: SystemTime,
) -> Result<(), BackoffError> {
    let Some(exited) = runtime_status.latest_exited(&container.name) else { return Ok(()) };
    let finished = Duration::from_nanos(u64::try_from(exited.finished_at).unwrap_or(0));
    crashes.check_and_record(&backoff_key(pod, container), SystemTime::UNIX_EPOCH + finished, now)
}

/// Returns the key of a container's back-off. Another image or other resources give another key
/// (kubelet: `kuberuntime/helpers.go`: `GetBackoffKey`).
fn backoff_key(pod: &Pod, container: &Container) -> String {
    let Pod { name, namespace, uid, .. } = pod;
    let Container { name: container_name, image, resources, .. } = container;
    format!("{name}/{namespace}/{uid}/{container_name}/{image}/{resources:?}")
}

/// Returns the restart count of the next instance, from the newest instance or, without one, from
/// the names of log files (kubelet: `kuberuntime_container.go`: `calcRestartCountByLogDir`).
fn restart_count(newest: Option<&ContainerInstance>, logs: &Path) -> u32 {
    if let Some(newest) = newest {
        return newest.restart_count + 1;
    }
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
    let number = |name: String| {
        let digits = name.split_once(".log")?.0;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u32>().ok())?
    };
    let last = files.filter_map(|entry| number(entry.file_name().to_string_lossy().into_owned())).max();
    last.map_or(0, |last| last.saturating_add(1))
}

/// Fails if a container with `runAsNonRoot` would run as root (kubelet:
/// `kuberuntime/security_context_others.go`: `verifyRunAsNonRoot`).
fn verify_run_as_non_root(pod: &Pod, container: &Container, image: Option<&Image>) -> Result<(), String> {
    let (container_context, pod_context) = (&container.security.common, &pod.security.common);
    if container_context.is_not_root.or(pod_context.is_not_root) != Some(true) {
        return Ok(());
    }
    let owner =
        format!("(pod: \"{}_{}({})\", container: {})", pod.name, pod.namespace, pod.uid, container.name);
    match container_context.user.or(pod_context.user) {
        Some(0) => Err(format!("container's runAsUser breaks non-root policy {owner}")),
        Some(_) => Ok(()),
        None => match image.map(|image| (image.uid.map(|uid| uid.value), image.username.as_str())) {
            Some((Some(uid), _)) if uid != 0 => Ok(()),
            Some((None, name)) if !name.is_empty() => Err(format!(
                "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {owner}"
            )),
            _ => Err(format!("container has runAsNonRoot and image will run as root {owner}")),
        },
    }
}

fn argv(status: &Status) -> String {
    sanitize(status.message())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::reader::tests::pod;

    /// Kubernetes' `TestRestartCountByLogDir`.
    #[test]
    fn upstream_test_restart_count_by_log_dir() {
        for (names, expected) in [
            (&["0.log.rotated-log"][..], 1),
            (&["0.log"], 1),
            (&["0.log", "1.log", "2.log"], 3),
            (&["0.log.rotated", "1.log", "2.log"], 3),
            (&["5.log.rotated", "6.log.rotated"], 7),
            (&["5.log.rotated", "6.log", "7.log"], 8),
            (&[], 0),
            (&["a.log.rotated", "b.log.rotated", "12log.rotated"], 0),
            (&["145.log.log.rotated"], 146),
            (&["92233720368547758089223372036854775808.log.rotated"], 0),
            (&["9223372036854775808.log.rotated", "23.log", "23a.log", "1aaa.log.rotated", "2.log"], 24),
            (&["rotated.23.log"], 0),
            (&["mylog42.log"], 0),
            (&["-42.log", "+42.log"], 0),
            (&["6.log", "6.log.rotated", "6.log.rotated.rotated"], 7),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for name in names {
                fs::write(dir.path().join(name), "").unwrap();
            }
            fs::create_dir(dir.path().join("77.log")).unwrap();
            assert_eq!(restart_count(None, dir.path()), expected, "{names:?}");
        }
        assert_eq!(restart_count(None, Path::new("/nowhere")), 0);
    }

    /// Kubernetes' `TestGetBackoffKey`.
    #[test]
    fn upstream_test_get_backoff_key() {
        let of = |pod: &Pod| backoff_key(pod, &pod.containers[0]);
        let plain = pod("{containers: [{name: a, image: i}]}");
        for (spec, is_same) in [
            ("{containers: [{name: a, image: i, command: [x], env: [{name: A, value: b}]}]}", true),
            ("{terminationGracePeriodSeconds: 5, containers: [{name: a, image: i, tty: true}]}", true),
            ("{containers: [{name: b, image: i}]}", false),
            ("{containers: [{name: a, image: other}]}", false),
            ("{containers: [{name: a, image: i, resources: {limits: {cpu: 1}}}]}", false),
        ] {
            let other = Pod { uid: plain.uid.clone(), ..pod(spec) };
            assert_eq!(of(&other) == of(&plain), is_same, "{spec}");
        }
        for other in [
            Pod { name: "other".to_owned(), ..plain.clone() },
            Pod { namespace: "other".to_owned(), ..plain.clone() },
            Pod { uid: "other".to_owned(), ..plain.clone() },
        ] {
            assert_ne!(of(&other), of(&plain));
        }
    }
}
