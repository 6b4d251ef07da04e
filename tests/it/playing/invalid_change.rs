//! Manifests of running pods that become invalid: the pods keep running by their earlier manifests.

use rustix::process::Signal;

use super::{POLITE, Watched, is_clean, played, pod, start, start_with, told};
use crate::admin::until_shown;
use crate::procrun::Runtime;
use crate::program::Place;

/// Field of a pod that the API server adds to running pods, and that no manifest may have.
const EPHEMERAL: &str = ", ephemeralContainers: [{name: debugger, image: i, targetContainerName: main}]";

/// The pod has no uid of its own, so a valid change would replace it. Its sandbox is compared after
/// the manifest is valid again, because a pod that had been terminated would have another one then.
#[tokio::test]
async fn a_running_pod_stays_unchanged_if_its_manifest_gets_ephemeral_containers() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    let [valid, invalid] = ["", EPHEMERAL].map(|fields| pod("a", POLITE, fields, ""));
    folder.write("a.yaml", &valid);
    let mut running = start(&place, folder.path()).await;
    let only_pod = async || {
        until_shown(&place, &["status"], |status| {
            let [pod] = &status["pods"].as_array()?[..] else { return None };
            let text = |field: &str| pod[field].as_str().unwrap().to_owned();
            (pod["status"] == "Running").then(|| ([text("uid"), text("id")], pod["restarts"].as_u64()))
        })
        .await
    };
    let first = only_pod().await;
    folder.write("a.yaml", &invalid);
    told(&place, "InvalidSpec", "a.yaml:1: spec.ephemeralContainers: Unsupported by probeshim").await;
    folder.write("a.yaml", &valid);
    told(&place, "SpecResolved", "spec.ephemeralContainers").await;
    assert_eq!(only_pod().await, first);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn play_does_not_start_with_ephemeral_containers_in_a_manifest() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let answer = played(&place, &pod("a", "exit 0", EPHEMERAL, ""), &[]).await;
    let expected = "spec.ephemeralContainers: Unsupported by probeshim: the API server adds them";
    assert!(answer.code == Some(2) && answer.stderr.contains(expected), "{answer:?}");
    assert!(!place.at("state").exists(), "nothing was started");
    runtime.end().await;
}

/// The manifests of the earlier pods stay in effect.
#[tokio::test]
async fn manifests_that_exceed_the_maximum_of_pods_while_play_runs_start_none() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    folder.write("a.yaml", &pod("a", POLITE, "", ""));
    let mut running = start_with(&place, &[folder.path(), "--max-pods", "2"]).await;
    folder.write("b.yaml", &[pod("b", POLITE, "", ""), pod("c", POLITE, "", "")].concat());
    told(&place, "InvalidSpec", "the manifests have 3 pods together, and the maximum is 2").await;
    let pods = place.ask(&["pods", "-o", "json"]).await.json();
    assert_eq!(pods.as_array().map(Vec::len), Some(1), "{pods}");
    folder.write("b.yaml", &pod("b", POLITE, "", ""));
    told(&place, "SpecResolved", "the manifests have 3 pods together").await;
    until_shown(&place, &["pods"], |pods| (pods.as_array()?.len() == 2).then_some(())).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}
