//! Stored form of the client pods.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use super::desired::{CapturedRequest, ClientContainer, ClientPod, ClientStage, DesiredState, PodKey};
use crate::cri::RedactedBytes;
use crate::state::{self, StateError, StateStore, StateTable};

/// Stored form of a sandbox.
#[derive(Serialize, Deserialize)]
struct StoredSandbox {
    pod: PodKey,
    id: Option<String>,
    request: StoredRequest,
}

/// Stored form of a container.
#[derive(Serialize, Deserialize)]
struct StoredContainer {
    pod: PodKey,
    /// Index of the container in its pod.
    place: usize,
    name: String,
    request: StoredRequest,
    stage: ClientStage,
    first: Option<String>,
    id: Option<String>,
    attempt: u32,
}

/// Stored form of a captured request: its bytes, or the reason why they are unknown.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StoredRequest {
    /// The bytes in base64.
    Whole(String),
    Missing(String),
}

/// Reads the client pods from the state store.
pub(super) fn read(snapshot: &state::Snapshot) -> Result<DesiredState, StateError> {
    let mut desired = DesiredState::default();
    let mut containers: Vec<StoredContainer> =
        snapshot.entries(StateTable::Containers)?.into_iter().map(|(_, container)| container).collect();
    containers.sort_by_key(|container| container.place);
    for (_, StoredSandbox { pod, id, request }) in snapshot.entries::<StoredSandbox>(StateTable::Sandboxes)? {
        let pod_containers = containers.iter().filter(|container| container.pod == pod);
        let containers = pod_containers.map(|it| ClientContainer {
            name: it.name.clone(),
            request: it.request.captured(),
            stage: it.stage,
            first: it.first.clone(),
            id: it.id.clone(),
            attempt: it.attempt,
        });
        let containers = containers.collect();
        let client_pod = ClientPod { sandbox: request.captured(), sandbox_id: id, containers };
        desired.restore(pod, client_pod);
    }
    Ok(desired)
}

/// Writes the changes of a pod to the state store.
pub(super) fn write(state: &StateStore, key: &PodKey, before: Option<&ClientPod>, now: Option<&ClientPod>) {
    let name = |container: &ClientContainer| format!("{key}/{}", container.name);
    let known = |client_pod: Option<&ClientPod>| {
        client_pod.map(|client_pod| client_pod.containers.clone()).unwrap_or_default()
    };
    let (old, new) = (known(before), known(now));
    for gone in old.iter().filter(|old| new.iter().all(|new| new.name != old.name)) {
        state.remove(StateTable::Containers, &name(gone));
    }
    match now {
        None => state.remove(StateTable::Sandboxes, &key.to_string()),
        Some(now)
            if before.is_none_or(|it| (&it.sandbox, &it.sandbox_id) != (&now.sandbox, &now.sandbox_id)) =>
        {
            let (id, request) = (now.sandbox_id.clone(), StoredRequest::from_captured(&now.sandbox));
            let sandbox = StoredSandbox { pod: key.clone(), id, request };
            state.upsert(StateTable::Sandboxes, &key.to_string(), &sandbox);
        }
        Some(_) => {}
    }
    for (place, container) in new.iter().enumerate().filter(|(place, it)| old.get(*place) != Some(it)) {
        let ClientContainer { name: own, request, stage, first, id, attempt } = container.clone();
        let request = StoredRequest::from_captured(&request);
        let stored =
            StoredContainer { pod: key.clone(), place, name: own, request, stage, first, id, attempt };
        state.upsert(StateTable::Containers, &name(container), &stored);
    }
}

impl StoredRequest {
    fn from_captured(captured: &CapturedRequest) -> Self {
        match captured {
            Ok(RedactedBytes(bytes)) => Self::Whole(BASE64_STANDARD.encode(bytes)),
            Err(reason) => Self::Missing(reason.clone()),
        }
    }

    fn captured(&self) -> CapturedRequest {
        match self {
            Self::Whole(text) => {
                let bytes = BASE64_STANDARD.decode(text);
                bytes
                    .map(|it| RedactedBytes(it.into()))
                    .map_err(|error| format!("the stored request is damaged: {error}"))
            }
            Self::Missing(reason) => Err(reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::desired::ClientAction;
    use super::*;

    #[tokio::test]
    async fn the_desired_state_of_client_pods_is_restored_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let [namespace, name, uid] = ["n", name, "u"].map(str::to_owned);
            PodKey { namespace, name, uid }
        };
        let created = |name: &str| {
            let (id, request) =
                (Some(format!("id of {name}")), Ok(RedactedBytes([0, 255, 3].as_slice().into())));
            ClientAction::ContainerCreated { name: name.to_owned(), id, request }
        };
        let started = |name: &str| ClientAction::ContainerStarted(name.to_owned());
        let ran = || {
            ClientAction::SandboxCreated(Some("id".to_owned()), Ok(RedactedBytes(b"pod".as_slice().into())))
        };
        let mut desired = DesiredState::default();
        let (state, _) = StateStore::open(dir.path()).unwrap();
        for (pod, act) in [
            ("a", ran()),
            ("a", created("z")),
            ("a", started("z")),
            ("a", created("b")),
            (
                "a",
                ClientAction::ContainerRecreated {
                    name: "z".to_owned(),
                    id: Some("other".to_owned()),
                    attempt: 3,
                },
            ),
            ("a", ClientAction::ContainerCompleted("z".to_owned(), "other".to_owned())),
            ("a", ClientAction::SandboxRecreated("other".to_owned())),
            ("b", started("main")),
            ("c", ran()),
            ("c", created("main")),
            ("c", ClientAction::SandboxRemoved),
            ("d", ran()),
            ("d", created("main")),
            ("d", ran()),
            ("e", ran()),
            ("e", created("main")),
            ("e", ClientAction::ContainerReleased("main".to_owned())),
        ] {
            let before = desired.pod(&key(pod)).cloned();
            desired.take(&key(pod), act);
            write(&state, &key(pod), before.as_ref(), desired.pod(&key(pod)));
        }
        state.close().await.unwrap();
        let (_state, snapshot) = StateStore::open(dir.path()).unwrap();
        assert_eq!(read(&snapshot).unwrap(), desired);
        assert_eq!(desired.iter().count(), 4);
    }
}
