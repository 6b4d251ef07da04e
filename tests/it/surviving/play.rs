//! `play` is killed at each of its calls to the runtime, and its pod ends in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::v1::{ContainerState, ListContainersRequest};
use rustix::process::Signal;

use super::killer::{Killer, Walk, all};
use super::{Moment, moments};
use crate::playing::{POLITE, Watched, begin, is_clean, sandboxes};
use crate::procrun::Runtime;
use crate::program::Place;

/// Plays a pod whose container is restarted because its probe fails at first, and which ends when
/// its manifest is removed. The `play` process is killed at the moment `at`, and started again.
async fn walk(at: Option<Moment>) -> Walk {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("procrun.sock"));
    let killer = Killer::new(at);
    let (relay, _claim, drain) = killer.clone().between(&place);
    let starts = place.at("starts");
    let starts = starts.display();
    let folder = Watched::new(&place);
    folder.write(
        "a.yaml",
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: a, namespace: test}}, spec: {{terminationGracePeriodSeconds: 2, \
             initContainers: [{{name: init, image: i, command: ['true']}}], \
             containers: [{{name: main, image: i, command: [sh, -c, \"echo >> {starts}; {POLITE}\"], \
             lifecycle: {{preStop: {{exec: {{command: ['true']}}}}}}, \
             livenessProbe: {{exec: {{command: [sh, -c, \"[ $(wc -l < {starts}) -ne 1 ]\"]}}, periodSeconds: 1, failureThreshold: 1}}}}]}}}}"
        ),
    );
    let mut running = begin(&place, &[folder.path()]);
    killer.is_after(&running);
    let mut attempts = BTreeMap::<String, BTreeSet<(u32, String)>>::new();
    let mut is_wanted = true;
    loop {
        if running.process.try_wait().unwrap().is_some() {
            running = begin(&place, &[folder.path()]);
        }
        let answer = runtime.client.list_containers(ListContainersRequest::default()).await.unwrap();
        let containers = answer.into_inner().containers;
        for name in ["init", "main"] {
            let own = containers.iter().filter(|it| it.metadata.as_ref().unwrap().name == name);
            let is_running =
                |it: &&_| ContainerState::ContainerRunning == probeshim::cri::v1::Container::state(it);
            assert!(
                own.clone().filter(is_running).count() <= 1,
                "{at:?}: {name} runs twice: {containers:#?}"
            );
            let own = own.map(|it| (it.metadata.as_ref().unwrap().attempt, it.id.clone()));
            attempts.entry(name.to_owned()).or_default().extend(own);
        }
        let is_restarted = containers.iter().any(|it| {
            it.state() == ContainerState::ContainerRunning
                && it.metadata.as_ref().is_some_and(|it| it.name == "main" && it.attempt > 0)
        });
        if is_wanted && is_restarted && fs::read_to_string(place.at("starts")).unwrap().lines().count() > 1 {
            folder.remove("a.yaml");
            is_wanted = false;
        }
        if !is_wanted && sandboxes(&mut runtime).await == 0 && no_files(&place) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (name, attempts) in attempts {
        let numbers: BTreeSet<u32> = attempts.iter().map(|(attempt, _)| *attempt).collect();
        assert_eq!(numbers.len(), attempts.len(), "{at:?}: two of {name} have one attempt: {attempts:?}");
    }
    // The process may have been killed at its last call.
    if running.process.try_wait().unwrap().is_none() {
        running.signal(Signal::TERM);
        running.ended().await;
    }
    is_clean(&place, runtime).await;
    drain.cancel();
    soon(relay.ended()).await.unwrap();
    let count = fs::read_to_string(place.at("starts")).unwrap().lines().count();
    assert!((2..=3).contains(&count), "{at:?}: the container was started {count} times");
    killer.walk(killer.calls())
}

fn no_files(place: &Place) -> bool {
    fs::read_dir(place.at("state/pods")).is_ok_and(|mut left| left.next().is_none())
}

#[tokio::test]
async fn a_played_pod_ends_properly_whenever_probeshim_is_killed() {
    let Walk { calls, .. } = walk(None).await;
    assert!(calls > 10, "{calls}");
    all(moments(calls).map(|moment| soon(walk(Some(moment)))), 10).await;
}
