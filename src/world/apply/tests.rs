use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn sandbox(id: &str) -> SandboxObservation {
    let metadata = v1::PodSandboxMetadata {
        name: format!("pod-{id}"),
        uid: id.into(),
        namespace: "n".into(),
        attempt: 0,
    };
    SandboxObservation { id: id.into(), metadata: Some(metadata), is_ready: Some(true), ..Default::default() }
}

fn container(id: &str, sandbox: &str, state: v1::ContainerState) -> ContainerObservation {
    let metadata = v1::ContainerMetadata { name: format!("main-{id}"), attempt: 0 };
    ContainerObservation {
        id: id.into(),
        sandbox: Some(sandbox.into()),
        metadata: Some(metadata),
        state: Some(state),
        ..Default::default()
    }
}

/// A world, and a clock that goes on with each fact.
struct Told {
    world: Arc<Inventory>,
    start: Instant,
    now: u32,
}

impl Told {
    fn new() -> Self {
        Self { world: Arc::default(), start: Instant::now(), now: 0 }
    }

    /// Told now, by a call that has just begun.
    fn by(&mut self, fact: Observation) -> Vec<Change> {
        self.now += 10;
        self.since(self.now, fact)
    }

    /// Told now, by a call that began then.
    fn since(&mut self, since: u32, fact: Observation) -> Vec<Change> {
        self.now += 1;
        let (since, now) = (self.start + MS * since, self.start + MS * self.now);
        self.world.fold(Source::Call, since, now, vec![fact])
    }
}

use v1::ContainerState::{
    ContainerCreated as Created, ContainerExited as Exited, ContainerRunning as Running,
};

#[test]
fn a_pod_comes_lives_and_goes() {
    let mut observations = Told::new();
    assert!(matches!(&observations.by(Observation::Sandbox(sandbox("p")))[..], [Change::SandboxStarted(_)]));
    let created = observations.by(Observation::Container(container("c", "p", Created)));
    assert!(
        matches!(&created[..], [Change::ContainerCreated(_), Change::ContainerUpdated(_)]),
        "{created:?}"
    );
    let running = ContainerObservation { id: "c".into(), state: Some(Running), ..Default::default() };
    assert!(matches!(
        &observations.by(Observation::Container(running.clone()))[..],
        [Change::ContainerStarted(_)]
    ));
    assert!(observations.by(Observation::Container(running)).is_empty(), "nothing is new");
    let exited = ContainerObservation {
        id: "c".into(),
        state: Some(Exited),
        exit: Some((3, "Error".into())),
        ..Default::default()
    };
    let changes = observations.by(Observation::Container(exited));
    assert!(matches!(&changes[..], [Change::ContainerExited(c)] if c.exit == Some((3, "Error".into()))));
    let changes = observations.by(Observation::SandboxRemoved("p".into()));
    assert!(matches!(&changes[..], [Change::ContainerRemoved(_), Change::SandboxRemoved(_)]), "{changes:?}");
    assert_eq!(observations.world.containers().count() + observations.world.sandboxes().count(), 0);
    assert!(observations.world.container("c").is_some(), "what is gone is remembered for a while");
}

#[test]
fn what_is_old_news_changes_nothing() {
    let mut observations = Told::new();
    observations.by(Observation::Sandbox(sandbox("p")));
    observations.by(Observation::Container(container("c", "p", Running)));
    let before = observations.now;
    assert!(observations.since(before - 5, Observation::Container(container("c", "p", Created))).is_empty());
    observations.by(Observation::ContainerRemoved("c".into()));
    assert!(
        observations.since(before, Observation::ContainerList(vec![container("c", "p", Running)])).is_empty(),
        "asked before it went"
    );
    assert_eq!(observations.world.containers().count(), 0);
    let back = observations.by(Observation::ContainerList(vec![container("c", "p", Running)]));
    assert!(!back.is_empty(), "asked after it seemed to have gone");
}

#[test]
fn a_list_removes_objects_unless_they_appeared_after_its_request() {
    let mut observations = Told::new();
    observations.by(Observation::Sandbox(sandbox("old")));
    let requested_at = observations.now;
    observations.by(Observation::Sandbox(sandbox("new")));
    observations.since(requested_at, Observation::SandboxList(vec![sandbox("old")]));
    assert_eq!(observations.world.sandboxes().count(), 2);
    let changes = observations.by(Observation::SandboxList(vec![sandbox("new")]));
    assert!(matches!(&changes[..], [Change::SandboxRemoved(gone)] if &*gone.id == "old"), "{changes:?}");
}

#[test]
fn what_holds_a_sandbox_is_no_container() {
    let mut observations = Told::new();
    observations.by(Observation::Sandbox(sandbox("p")));
    let process = |state| {
        Observation::Container(ContainerObservation {
            id: "p".into(),
            state: Some(state),
            ..Default::default()
        })
    };
    assert!(observations.by(process(Running)).is_empty());
    assert!(matches!(&observations.by(process(Exited))[..], [Change::SandboxStopped(_)]));
    assert_eq!(observations.world.containers().count(), 0);
}

#[test]
fn a_world_that_others_hold_stays_as_it_was_for_them() {
    let mut observations = Told::new();
    observations.by(Observation::Sandbox(sandbox("p")));
    let snapshot = observations.world.clone();
    observations.by(Observation::SandboxRemoved("p".into()));
    assert_eq!((snapshot.sandboxes().count(), observations.world.sandboxes().count()), (1, 0));
}

#[test]
fn the_beginning_of_an_id_is_enough_where_it_is_one_containers() {
    let mut observations = Told::new();
    observations.by(Observation::Container(container("c0ffee", "p", Running)));
    observations.by(Observation::Container(container("c0de", "p", Running)));
    let id = |named: &str| observations.world.container(named).map(|container| container.id.to_string());
    assert_eq!(id("c0f"), Some("c0ffee".into()));
    assert_eq!((id("c0"), id(""), id("d")), (None, None, None));
}

proptest! {
    /// Whatever is told in whatever order, a list that was asked for last is right in the end.
    #[test]
    fn a_list_is_right_in_the_end(facts in proptest::collection::vec((0_u8..7, 0_u8..4, 0_u32..30), 0..40)) {
        let mut observations = Told::new();
        for (kind, number, age) in facts {
            let (id, pod) = (format!("c{number}"), format!("p{}", number % 2));
            let fact = match kind {
                0 => Observation::Sandbox(sandbox(&pod)),
                1 => Observation::Container(container(&id, &pod, Created)),
                2 => Observation::Container(container(&id, &pod, Running)),
                3 => Observation::Container(container(&id, &pod, Exited)),
                4 => Observation::ContainerRemoved(id),
                5 => Observation::SandboxRemoved(pod),
                _ => Observation::ContainerList(vec![container(&id, &pod, Running)]),
            };
            observations.now += 10;
            let since = observations.now.saturating_sub(age);
            observations.since(since, fact);
        }
        observations.now += 100;
        observations.by(Observation::SandboxList(vec![sandbox("p1")]));
        observations.by(Observation::ContainerList(vec![container("c1", "p1", Exited)]));
        let sandboxes: Vec<_> = observations.world.sandboxes().map(|sandbox| sandbox.id.to_string()).collect();
        let containers: Vec<_> = observations.world.containers().map(|c| (c.id.to_string(), c.state)).collect();
        prop_assert_eq!(sandboxes, ["p1"]);
        prop_assert_eq!(containers, [("c1".to_owned(), Exited)]);
    }
}
