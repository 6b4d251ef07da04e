//! Pods that run when `play` starts: adopted, left alone, or removed.

use std::fs;
use std::time::Duration;

use fixtures::wait::soon;
use rustix::process::Signal;

use crate::admin::until_shown;
use crate::client_pods::Owner;
use crate::playing::{POLITE, Watched, begin, is_clean, pod, sandboxes, start};
use crate::procrun::Runtime;
use crate::program::Place;

/// Running pods are adopted with the same containers. A pod that is not in the manifests of the
/// next run is reported and left alone until `--prune` removes it.
#[tokio::test]
async fn running_pods_are_adopted_and_unmatched_pods_are_removed_with_prune() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    folder.write("a.yaml", &pod("a", POLITE, "", ""));
    let mut owner = Owner { client: runtime.client.clone(), place: Place::new() };
    let mut running = start(&place, folder.path()).await;
    let first = owner.runs("a", 0).await;
    for _ in 0..2 {
        running.signal(Signal::KILL);
        running.ended().await;
        running = start(&place, folder.path()).await;
        // The running container is the one that ran before.
        let shown = until_shown(&place, &["status"], |status| {
            let container =
                &status["pods"].as_array()?.iter().find(|pod| pod["name"] == "a")?["containers"][0];
            (container["state"] == "running").then(|| container["id"].as_str().unwrap().to_owned())
        });
        assert_eq!(shown.await, first.id);
        assert_eq!(owner.runs("a", 0).await.id, first.id);
    }
    running.signal(Signal::KILL);
    running.ended().await;
    let other = place.at("b.yaml");
    fs::write(&other, pod("b", POLITE, "", "")).unwrap();
    running = start(&place, other.to_str().unwrap()).await;
    let told = "pod test/a (uid ";
    until_shown(&place, &["events"], |events| {
        let is_it = |event: &serde_json::Value| {
            let message = event["message"].as_str().unwrap_or_default();
            message.starts_with(told) && message.ends_with("is left alone; --prune removes it")
        };
        events.as_array()?.iter().any(is_it).then_some(())
    })
    .await;
    owner.runs("b", 0).await;
    assert_eq!(owner.runs("a", 0).await.id, first.id);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    assert_eq!(owner.runs("a", 0).await.id, first.id, "the unmatched pod must stay when play ends");
    running = begin(&place, &[other.to_str().unwrap(), "--prune"]);
    soon(async {
        while !owner.containers("a").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    owner.runs("b", 0).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    assert_eq!(sandboxes(&mut runtime).await, 0);
    is_clean(&place, runtime).await;
}
