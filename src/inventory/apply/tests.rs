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

/// An inventory, and a clock that advances with each observation.
struct InventoryFixture {
    inventory: Arc<Inventory>,
    start: Instant,
    now: u32,
}

impl InventoryFixture {
    fn new() -> Self {
        Self { inventory: Arc::default(), start: Instant::now(), now: 0 }
    }

    /// Applies an observation by a call that began now.
    fn apply(&mut self, fact: Observation) -> Vec<Change> {
        self.now += 10;
        self.apply_since(self.now, fact)
    }

    /// Applies an observation by a call that began at `since`.
    fn apply_since(&mut self, since: u32, fact: Observation) -> Vec<Change> {
        self.now += 1;
        let (since, now) = (self.start + MS * since, self.start + MS * self.now);
        self.inventory.fold(Source::Call, since, now, vec![fact])
    }
}

use v1::ContainerState::{
    ContainerCreated as Created, ContainerExited as Exited, ContainerRunning as Running,
};

#[test]
fn the_life_of_a_pod_results_in_the_expected_inventory_changes() {
    let mut fixture = InventoryFixture::new();
    assert!(matches!(&fixture.apply(Observation::Sandbox(sandbox("p")))[..], [Change::SandboxStarted(_)]));
    let created = fixture.apply(Observation::Container(container("c", "p", Created)));
    assert!(
        matches!(&created[..], [Change::ContainerCreated(_), Change::ContainerUpdated(_)]),
        "{created:?}"
    );
    let running = ContainerObservation { id: "c".into(), state: Some(Running), ..Default::default() };
    assert!(matches!(
        &fixture.apply(Observation::Container(running.clone()))[..],
        [Change::ContainerStarted(_)]
    ));
    assert!(fixture.apply(Observation::Container(running)).is_empty(), "nothing is new");
    let exited = ContainerObservation {
        id: "c".into(),
        state: Some(Exited),
        exit: Some((3, "Error".into())),
        ..Default::default()
    };
    let changes = fixture.apply(Observation::Container(exited));
    assert!(matches!(&changes[..], [Change::ContainerExited(c)] if c.exit == Some((3, "Error".into()))));
    let changes = fixture.apply(Observation::SandboxRemoved("p".into()));
    assert!(matches!(&changes[..], [Change::ContainerRemoved(_), Change::SandboxRemoved(_)]), "{changes:?}");
    assert_eq!(fixture.inventory.containers().count() + fixture.inventory.sandboxes().count(), 0);
    assert!(fixture.inventory.container("c").is_some(), "what is gone is remembered for a while");
}

#[test]
fn outdated_observations_do_not_change_the_inventory() {
    let mut fixture = InventoryFixture::new();
    fixture.apply(Observation::Sandbox(sandbox("p")));
    fixture.apply(Observation::Container(container("c", "p", Running)));
    let before = fixture.now;
    assert!(fixture.apply_since(before - 5, Observation::Container(container("c", "p", Created))).is_empty());
    fixture.apply(Observation::ContainerRemoved("c".into()));
    assert!(
        fixture
            .apply_since(before, Observation::ContainerList(vec![container("c", "p", Running)]))
            .is_empty(),
        "asked before it went"
    );
    assert_eq!(fixture.inventory.containers().count(), 0);
    let back = fixture.apply(Observation::ContainerList(vec![container("c", "p", Running)]));
    assert!(!back.is_empty(), "asked after it seemed to have gone");
}

#[test]
fn a_list_removes_objects_unless_they_appeared_after_its_request() {
    let mut fixture = InventoryFixture::new();
    fixture.apply(Observation::Sandbox(sandbox("old")));
    let requested_at = fixture.now;
    fixture.apply(Observation::Sandbox(sandbox("new")));
    fixture.apply_since(requested_at, Observation::SandboxList(vec![sandbox("old")]));
    assert_eq!(fixture.inventory.sandboxes().count(), 2);
    let changes = fixture.apply(Observation::SandboxList(vec![sandbox("new")]));
    assert!(matches!(&changes[..], [Change::SandboxRemoved(gone)] if &*gone.id == "old"), "{changes:?}");
}

#[test]
fn the_task_of_a_sandbox_is_not_a_container() {
    let mut fixture = InventoryFixture::new();
    fixture.apply(Observation::Sandbox(sandbox("p")));
    let process = |state| {
        Observation::Container(ContainerObservation {
            id: "p".into(),
            state: Some(state),
            ..Default::default()
        })
    };
    assert!(fixture.apply(process(Running)).is_empty());
    assert!(matches!(&fixture.apply(process(Exited))[..], [Change::SandboxStopped(_)]));
    assert_eq!(fixture.inventory.containers().count(), 0);
}

#[test]
fn a_snapshot_of_the_inventory_stays_unchanged() {
    let mut fixture = InventoryFixture::new();
    fixture.apply(Observation::Sandbox(sandbox("p")));
    let snapshot = fixture.inventory.clone();
    fixture.apply(Observation::SandboxRemoved("p".into()));
    assert_eq!((snapshot.sandboxes().count(), fixture.inventory.sandboxes().count()), (1, 0));
}

#[test]
fn a_container_is_found_by_an_unambiguous_id_prefix() {
    let mut fixture = InventoryFixture::new();
    fixture.apply(Observation::Container(container("c0ffee", "p", Running)));
    fixture.apply(Observation::Container(container("c0de", "p", Running)));
    let id = |named: &str| fixture.inventory.container(named).map(|container| container.id.to_string());
    assert_eq!(id("c0f"), Some("c0ffee".into()));
    assert_eq!((id("c0"), id(""), id("d")), (None, None, None));
}

proptest! {
    /// After any observations in any order, the list that was requested last determines the result.
    #[test]
    fn the_last_list_determines_the_inventory(facts in proptest::collection::vec((0_u8..7, 0_u8..4, 0_u32..30), 0..40)) {
        let mut fixture = InventoryFixture::new();
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
            fixture.now += 10;
            let since = fixture.now.saturating_sub(age);
            fixture.apply_since(since, fact);
        }
        fixture.now += 100;
        fixture.apply(Observation::SandboxList(vec![sandbox("p1")]));
        fixture.apply(Observation::ContainerList(vec![container("c1", "p1", Exited)]));
        let sandboxes: Vec<_> = fixture.inventory.sandboxes().map(|sandbox| sandbox.id.to_string()).collect();
        let containers: Vec<_> = fixture.inventory.containers().map(|c| (c.id.to_string(), c.state)).collect();
        prop_assert_eq!(sandboxes, ["p1"]);
        prop_assert_eq!(containers, [("c1".to_owned(), Exited)]);
    }
}
