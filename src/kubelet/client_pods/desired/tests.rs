//! Tests of the pods that clients desire.

use super::*;

fn key() -> PodKey {
    let [namespace, name, uid] = ["n", "a", "u"].map(str::to_owned);
    PodKey { namespace, name, uid }
}

fn ran() -> ClientAction {
    ClientAction::SandboxCreated(None, Ok(RedactedBytes(b"pod".as_slice().into())))
}

fn created(name: &str) -> ClientAction {
    let (id, request) = (Some(format!("id of {name}")), Ok(RedactedBytes(name.as_bytes().into())));
    ClientAction::ContainerCreated { name: name.to_owned(), id, request }
}

/// Returns the names of the containers that are restarted after these actions.
fn applied(acts: Vec<ClientAction>) -> Vec<String> {
    let mut desired = DesiredState::default();
    for act in acts {
        desired.take(&key(), act);
    }
    let containers = desired.pod(&key()).map(|it| it.containers.clone()).unwrap_or_default();
    containers.iter().filter(|it| it.is_restartable()).map(|it| it.name.clone()).collect()
}

#[test]
fn a_started_container_is_managed_until_its_client_releases_it() {
    let started = |name: &str| ClientAction::ContainerStarted(name.to_owned());
    let release = |name: &str| ClientAction::ContainerReleased(name.to_owned());
    let lost = ClientAction::ContainerCreated {
        name: "a".to_owned(),
        id: None,
        request: Err("too long".to_owned()),
    };
    let attempted = ClientAction::ContainerRecreated { name: "a".to_owned(), id: None, attempt: 1 };
    for (acts, expected) in [
        (vec![], &[][..]),
        (vec![ran(), created("a")], &[]),
        (vec![ran(), created("a"), started("a")], &["a"]),
        (vec![ran(), created("b"), started("b"), created("a"), started("a")], &["b", "a"]),
        (vec![created("a"), started("a")], &["a"]),
        (vec![ran(), started("a")], &[]),
        (vec![ran(), lost, started("a")], &[]),
        (vec![ran(), created("a"), started("a"), release("a")], &[]),
        (vec![ran(), created("a"), started("a"), release("a"), started("a")], &[]),
        (vec![ran(), created("a"), started("a"), release("a"), created("a"), started("a")], &["a"]),
        (vec![ran(), created("a"), started("a"), created("a")], &[]),
        (vec![ran(), created("a"), started("a"), ClientAction::PodReleased], &[]),
        (vec![ran(), created("a"), started("a"), ClientAction::SandboxRemoved], &[]),
        (vec![ran(), created("a"), started("a"), ClientAction::SandboxGone], &["a"]),
        (vec![ran(), created("a"), ClientAction::SandboxGone, started("a")], &[]),
        (vec![ran(), created("a"), started("a"), ran()], &[]),
        (vec![release("a"), attempted], &[]),
    ] {
        assert_eq!(applied(acts.clone()), expected, "{acts:?}");
    }
}

#[test]
fn a_client_container_that_is_not_restartable_has_a_reason() {
    let mut desired = DesiredState::default();
    desired.take(&key(), created("a"));
    let request = Err("it is too long".to_owned());
    desired.take(&key(), ClientAction::ContainerCreated { name: "b".to_owned(), id: None, request });
    desired.take(&key(), created("c"));
    desired.take(&key(), ClientAction::ContainerReleased("c".to_owned()));
    let client_pod = desired.pod(&key()).unwrap();
    assert_eq!(client_pod.sandbox, Err("its RunPodSandbox was not seen".to_owned()));
    let obstacles = ["a", "b", "c", "d"].map(|name| client_pod.not_restartable_reason(name));
    assert_eq!(
        obstacles,
        [
            Some("its StartContainer was not seen"),
            Some("it is too long"),
            Some(RELEASED_REASON),
            Some("its CreateContainer was not seen")
        ]
    );
    desired.take(&key(), ClientAction::ContainerStarted("a".to_owned()));
    let client_pod = desired.pod(&key()).unwrap();
    assert_eq!(client_pod.not_restartable_reason("a"), None);
    assert!(client_pod.is_released("c") && !client_pod.is_released("a"));
    desired.take(&key(), ClientAction::PodReleased);
    assert!(desired.pod(&key()).unwrap().is_released("a"));
}

#[test]
fn a_completed_container_stays_completed_until_its_client_recreates_it() {
    let mut desired = DesiredState::default();
    let stage = |state: &DesiredState| state.pod(&key()).unwrap().containers[0].stage;
    let finished = |id: &str| ClientAction::ContainerCompleted("a".to_owned(), id.to_owned());
    for (act, expected) in [
        (created("a"), ClientStage::Created),
        (finished("id of a"), ClientStage::Created),
        (ClientAction::ContainerStarted("a".to_owned()), ClientStage::Started),
        (finished("another"), ClientStage::Started),
        (finished("id of a"), ClientStage::Finished),
        (created("a"), ClientStage::Created),
        (ClientAction::ContainerStarted("a".to_owned()), ClientStage::Started),
    ] {
        desired.take(&key(), act.clone());
        assert_eq!(stage(&desired), expected, "{act:?}");
    }
}

#[test]
fn names_of_released_containers_are_removed_beyond_a_limit() {
    let mut desired = DesiredState::default();
    desired.take(&key(), created("first"));
    for number in 0..1000 {
        let name = format!("job-{number}");
        desired.take(&key(), created(&name));
        desired.take(&key(), ClientAction::ContainerReleased(name));
    }
    let client_pod = desired.pod(&key()).unwrap();
    assert_eq!(client_pod.containers.len(), 1 + MAX_RELEASED);
    assert!(client_pod.is_released("job-999") && client_pod.containers[0].name == "first");
}
