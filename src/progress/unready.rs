//! Containers that are not ready, and the reasons.

use std::fmt::Write as _;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};

use crate::events::{Event, reason};
use crate::kubelet::{ContainerStatusExt as _, PodStatusExt, PublishedPod};
use crate::terminal::sanitize;

/// Number of lines that are shown of a container's log.
pub const LOG_LINES: usize = 10;

/// Begin of the kubelet's message about a pull that failed (`images/image_manager.go`).
pub const PULL_FAILED: &str = "Failed to pull image";

/// A container that is not ready, or has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadyContainer {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// State with its reason and message.
    pub state: String,
    /// End of the previous instance, if the container has been restarted.
    pub last_exit: Option<String>,
    /// Message of the latest Warning event that explains the state.
    pub warning: Option<String>,
    /// Last lines of the log.
    pub log: Vec<String>,
}

/// Returns the containers that are not ready. Containers that have completed, and those that wait
/// for the init containers, are left out. `log` returns the last lines of a container's log.
#[must_use]
pub fn unready_containers(
    pods: &[PublishedPod],
    events: &[Arc<Event>],
    log: impl Fn(&PublishedPod, &ContainerStatus) -> Vec<String>,
) -> Vec<UnreadyContainer> {
    let mut unready = Vec::new();
    for published in pods {
        let (namespace, name) = published.names();
        for status in published.status().into_iter().flat_map(PodStatusExt::containers) {
            let Some(state) = state(status) else { continue };
            unready.push(UnreadyContainer {
                pod: format!("{namespace}/{name}"),
                container: status.name.clone(),
                state,
                last_exit: status.last_terminated().map(exit),
                warning: warning(published.uid(), status, events),
                log: log(published, status),
            });
        }
    }
    unready
}

/// Returns the state of a container; `None` if it is ready, has completed, or waits for init
/// containers.
fn state(status: &ContainerStatus) -> Option<String> {
    if let Some(waiting) = status.waiting() {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().filter(|message| !message.is_empty());
        return match message {
            None if reason == "PodInitializing" => None,
            None => Some(format!("is waiting ({reason})")),
            Some(message) => Some(format!("is waiting ({reason}): {message}")),
        };
    }
    match status.terminated() {
        Some(ended) if ended.exit_code == 0 => None,
        Some(ended) => Some(exit(ended)),
        None if status.ready => None,
        None => Some("is running, but not ready".to_owned()),
    }
}

/// Returns the end of a container in words.
fn exit(ended: &ContainerStateTerminated) -> String {
    let reason = ended.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let message = ended.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    format!("exited with code {}{reason}{message}", ended.exit_code)
}

/// Returns the latest Warning event that explains the state of a container: of a running container
/// the failure of a probe, of a waiting one the failure of its sandbox or of a volume.
fn warning(uid: &str, status: &ContainerStatus, events: &[Arc<Event>]) -> Option<String> {
    let is_its = |event: &Event| {
        event.container.as_ref().and_then(|container| container.name.as_ref()) == Some(&status.name)
    };
    let explains = |event: &Event| match event.reason {
        reason::UNHEALTHY => status.running().is_some() && is_its(event),
        reason::FAILED_CREATE_POD_SAND_BOX | reason::FAILED_MOUNT => status.waiting().is_some(),
        _ => false,
    };
    let of_pod = |event: &Event| event.pod.as_ref().and_then(|pod| pod.uid.as_deref()) == Some(uid);
    let found = events.iter().rev().find(|event| of_pod(event) && explains(event))?;
    Some(found.message.trim().to_owned())
}

/// Returns lines about containers, each indented.
#[must_use]
pub fn render_unready(containers: &[UnreadyContainer]) -> String {
    let mut text = String::new();
    for UnreadyContainer { pod, container, state, last_exit, warning, log } in containers {
        let _ = writeln!(text, "  {pod} {container} {}", sanitize(state));
        if let Some(exit) = last_exit {
            let _ = writeln!(text, "    the previous instance {}", sanitize(exit));
        }
        if let Some(warning) = warning {
            let _ = writeln!(text, "    {}", sanitize(warning));
        }
        if !log.is_empty() {
            let _ = writeln!(text, "    last lines of its log:");
            for line in log {
                let _ = writeln!(text, "      {}", sanitize(line));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning, ContainerStateWaiting};

    use super::*;

    fn status(state: ContainerState, last_state: ContainerState) -> ContainerStatus {
        ContainerStatus {
            name: "main".to_owned(),
            state: Some(state),
            last_state: Some(last_state),
            ..ContainerStatus::default()
        }
    }

    fn waiting(reason: &str, message: Option<&str>) -> ContainerState {
        let (reason, message) = (Some(reason.to_owned()), message.map(str::to_owned));
        ContainerState {
            waiting: Some(ContainerStateWaiting { reason, message }),
            ..ContainerState::default()
        }
    }

    fn terminated(exit_code: i32, reason: &str, message: Option<&str>) -> ContainerState {
        let (reason, message) = (Some(reason.to_owned()), message.map(str::to_owned));
        let ended =
            ContainerStateTerminated { exit_code, reason, message, ..ContainerStateTerminated::default() };
        ContainerState { terminated: Some(ended), ..ContainerState::default() }
    }

    #[test]
    fn the_state_of_a_container_that_is_not_ready_has_its_reason_and_message() {
        let none = ContainerState::default;
        let state = |it: ContainerState| state(&status(it, none()));
        assert_eq!(state(terminated(0, "Completed", None)), None);
        assert_eq!(state(waiting("PodInitializing", None)), None);
        let running = ContainerState { running: Some(ContainerStateRunning::default()), ..none() };
        assert_eq!(state(running).as_deref(), Some("is running, but not ready"));
        let failed = state(terminated(3, "Error", Some("no such table\n")));
        assert_eq!(failed.as_deref(), Some("exited with code 3 (Error): no such table"));
        let pull = state(waiting("ErrImagePull", Some("connection refused")));
        assert_eq!(pull.as_deref(), Some("is waiting (ErrImagePull): connection refused"));
    }

    #[test]
    fn containers_that_are_not_ready_are_shown_with_their_log() {
        let message = "exec: \"nosuchprogram\": executable file not found in $PATH";
        let shown = render_unready(&[UnreadyContainer {
            pod: "default/web".to_owned(),
            container: "main".to_owned(),
            state: "is waiting (CrashLoopBackOff): back-off 10s".to_owned(),
            last_exit: terminated(128, "StartError", Some(message)).terminated.as_ref().map(exit),
            warning: None,
            log: vec!["hi".to_owned(), "\u{1b}[2J".to_owned()],
        }]);
        let expected = "  default/web main is waiting (CrashLoopBackOff): back-off 10s\n    \
             the previous instance exited with code 128 (StartError): exec: \"nosuchprogram\": executable file not \
             found in $PATH\n    last lines of its log:\n      hi\n      \\u{1b}[2J\n";
        assert_eq!(shown, expected);
    }
}
