//! `run --enforce restart` is killed at each of its calls to the runtime: the container of a client
//! is restarted until the client stops it.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::v1::StopContainerRequest;

use super::killer::{Killer, Walk, all};
use super::{Moment, moments};
use crate::client_pods::{self, Owner};
use crate::playing::POLITE;
use crate::procrun::Runtime;
use crate::program::Place;

/// Lets a client create a pod whose container is restarted because its probe fails at first.
/// probeshim is killed at the moment `at`, and started again; then the client stops the container.
/// Only calls before that stop are counted.
async fn walk_of_client(at: Option<Moment>) -> Walk {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("procrun.sock"));
    let killer = Killer::new(at);
    let (relay, _claim, drain) = killer.clone().between(&place);
    let mut running = client_pods::start(&place).await;
    let mut owner = Owner::of(place);
    let starts = owner.place.at("starts");
    let script = format!("echo >> {}; {POLITE}", starts.display());
    let probe = client_pods::liveness(&format!("[ $(wc -l < {}) -ne 1 ]", starts.display()));
    owner.pod("a", &script, &[("liveness.main", &probe)]).await;
    killer.is_after(&running);
    let restarted = loop {
        if running.process.try_wait().unwrap().is_some() {
            running = client_pods::start(&owner.place).await;
            owner = Owner::of(owner.place);
        }
        // The runtime is queried directly, because the relay may be gone.
        let mut direct = Owner { client: runtime.client.clone(), place: owner.place };
        let containers = direct.containers("a").await;
        owner = Owner { client: owner.client, place: direct.place };
        let running: Vec<_> = containers.iter().filter(|it| client_pods::is_running(it)).collect();
        assert!(running.len() <= 1, "{at:?}: the container runs twice: {containers:#?}");
        let numbers: BTreeSet<u32> = containers.iter().map(client_pods::attempt).collect();
        assert_eq!(
            numbers.len(),
            containers.len(),
            "{at:?}: two containers have the same attempt: {containers:#?}"
        );
        let again = running.iter().find(|it| client_pods::attempt(it) > 0).map(|it| it.id.clone());
        let count = fs::read_to_string(&starts).unwrap_or_default().lines().count();
        if let Some(id) = again.filter(|_| count > 1) {
            break id;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let calls = killer.calls();
    killer.stop();
    let request = StopContainerRequest { container_id: restarted, timeout: 2 };
    while let Err(status) = owner.client.stop_container(request.clone()).await {
        // Only a kill of probeshim explains a failed call.
        assert_eq!(running.ended().await, None, "{at:?}: {status}");
        running = client_pods::start(&owner.place).await;
        owner = Owner::of(owner.place);
    }
    owner.is_let_go("a").await;
    owner.another_is_restarted("last").await;
    assert!(
        !owner.containers("a").await.iter().any(client_pods::is_running),
        "{at:?}: a container runs after its client stopped it"
    );
    client_pods::end(running, owner, runtime).await;
    drain.cancel();
    soon(relay.ended()).await.unwrap();
    killer.walk(calls)
}

#[tokio::test]
async fn a_client_container_is_restarted_whenever_probeshim_is_killed() {
    let Walk { calls, .. } = walk_of_client(None).await;
    assert!(calls >= 4, "{calls}");
    all(moments(calls).map(|moment| soon(walk_of_client(Some(moment)))), 3).await;
}
