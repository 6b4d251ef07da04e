//! Keeps alive what clients have made through the relay: it is made again from their own requests.

use std::collections::HashSet;
use std::sync::Arc;

use prost::Message as _;
use prost_reflect::Value;
use tonic::Status;
use tracing::warn;

use super::Worker;
use super::failure::StartError;
use super::pace::Pace;
use super::start::Place;
use crate::cri::labels::RESTART_COUNT;
use crate::cri::v1::{CreateContainerRequest, PodSandboxConfig, RunPodSandboxRequest};
use crate::cri::{Authored, PATIENCE, within};
use crate::play::spec::{Container, Origin};
use crate::prober::Kill;
use crate::tap;
use crate::terminal::harmless;

impl Worker {
    /// Syncs again and again, until its owner has the pod again. Nothing of it is ended then.
    pub(super) async fn keep(&mut self) {
        let mut pace = Pace::default();
        while !self.signals.end.is_cancelled() {
            self.pod = self.pods.borrow_and_update().clone();
            if let Some(prober) = &self.means.prober {
                // The pod may have become known to it only now.
                prober.kept(&self.names, self.pod.containers.iter().map(|it| it.name.clone()).collect());
                if let Some(spec) = prober.spec_of(&self.names) {
                    self.pod = Arc::new(self.pod.specified(Arc::new(spec)));
                }
            }
            let synced = self.sync().await;
            self.leave_to_owner().await;
            self.rest(pace.after(synced, &self.pod)).await;
        }
        if let Some(prober) = &self.means.prober {
            prober.kept(&self.names, HashSet::new());
        }
    }

    /// Whether its owner has done nothing with it that was not known of when it was looked at.
    pub(super) async fn is_still_kept(&self) -> bool {
        let is_known = self.means.watched.caught_up().await;
        is_known && !self.pods.has_changed().unwrap_or(true) && !self.signals.end.is_cancelled()
    }

    /// What was made while its owner has let it go is removed: nobody knows of it.
    async fn leave_to_owner(&self) {
        let made = std::mem::take(&mut self.lock().made);
        let wanted = self.pods.borrow().clone();
        let is_over = self.signals.end.is_cancelled();
        for (name, id) in made {
            if !is_over && wanted.container(&name).is_some() {
                continue;
            }
            let names =
                Arc::new(tap::Container { id: Some(id.to_string()), name: Some(name), attempt: None });
            let message = "Its owner has let it go meanwhile".to_owned();
            let ending = Kill { message, grace_period: 0, pre_stop: None, obstacle: None };
            let stopped = self.kill(&names, &id, ending, None, &[]).await;
            let removed = match stopped {
                Ok(()) => self.remove(&id).await,
                Err(status) => Err(status),
            };
            if let Err(status) = removed {
                let pod = self.pod.full_name();
                warn!(pod, container = %id, "a container is left that nobody wants: {}", harmless(status.message()));
            }
        }
    }

    /// What is asked for to make another sandbox, as its owner has asked for it.
    pub(super) fn authored_sandbox(&self, attempt: u32) -> Option<(Authored, PodSandboxConfig)> {
        let Origin::Relay(Ok(authored)) = &self.pod.origin else { return None };
        let config = RunPodSandboxRequest::decode(&*authored.bytes()).ok()?.config.unwrap_or_default();
        let mut request = authored.clone();
        request.set(&["config", "metadata", "attempt"], Value::U32(attempt));
        Some((request, config))
    }

    /// Has a container made as its owner has asked for it, but that it is the next attempt.
    pub(super) async fn create_authored(
        &self,
        container: &Container,
        (authored, last): &(Authored, u32),
        place: Place<'_>,
    ) -> Result<(String, u32), StartError> {
        let failed = |status: &Status| StartError::new("CreateContainerError", harmless(status.message()));
        let asked = CreateContainerRequest::decode(&*authored.bytes()).unwrap_or_default();
        let config = asked.config.unwrap_or_default();
        let first = config.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let seen = place.seen.newest(&container.name).map_or(first, |newest| newest.restart_count);
        let attempt = seen.max(first).max(*last) + 1;
        let mut request = authored.clone();
        request.set(&["pod_sandbox_id"], Value::String(place.sandbox.to_owned()));
        request.set(&["config", "metadata", "attempt"], Value::U32(attempt));
        request.set(&["config", "log_path"], Value::String(next_log(&config.log_path, first, attempt)));
        request.set_entry(&["config", "annotations"], RESTART_COUNT, attempt.to_string());
        let of_sandbox = place.seen.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let of_sandbox = place.config.metadata.as_ref().map_or(of_sandbox, |metadata| metadata.attempt);
        request.set(&["sandbox_config", "metadata", "attempt"], Value::U32(of_sandbox));
        let created = within(PATIENCE, self.means.sender.create_container(request)).await;
        Ok((created.map_err(|status| failed(&status))?.container_id, attempt))
    }
}

/// Where the log of another attempt is written: where the name of the first one's ends with its number, that of the other's with its own; else
/// it is put before the last dot.
fn next_log(path: &str, first: u32, attempt: u32) -> String {
    let (folder, file) = path.rsplit_once('/').map_or(("", path), |(folder, file)| (folder, file));
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
    if folder.is_empty() && !path.starts_with('/') { next } else { format!("{folder}/{next}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_has_a_log_of_its_own() {
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
            assert_eq!(next_log(path, first, attempt), expected, "{path}");
        }
    }
}
