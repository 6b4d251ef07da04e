//! Kills of containers because of failed probes: the stop, its events, its explanation, and the
//! limits of enforcement.

use probeshim::cri::v1::{ContainerConfig, ContainerMetadata};
use serde_json::{Value, json};

use crate::admin::until_shown;
use crate::probing::{FAILING, run, told};
use crate::procrun::{Runtime, shell};
use crate::program::Place;

/// Returns the StopContainer calls once there are at least `count`.
async fn stops(place: &Place, count: usize) -> Vec<Value> {
    until_shown(place, &["calls", "--method", "StopContainer"], |calls| {
        calls.as_array().filter(|calls| calls.len() >= count).cloned()
    })
    .await
}

#[tokio::test]
async fn the_kill_of_a_failed_container_has_events_and_an_explanation() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let id = run(&mut runtime, "web").await;
    place.configure(FAILING);
    let _shim = place.start_watching(&["--enforce", "kill"]).await;
    told(&place, "web", "Killing", "Container main failed liveness probe, will be killed", 1).await;
    told(&place, "web", "ContainerExited", "", 1).await;
    let calls = stops(&place, 1).await;
    let call = &calls[0];
    assert_eq!((&call["container"]["id"], &call["code"]), (&json!(id), &json!("OK")));
    assert_eq!(call["peer"]["program"], "probeshim");
    let kill = &call["kill"];
    assert_eq!(
        (&kill["probe"], &kill["threshold"], &kill["gracePeriodSeconds"]),
        (&json!("liveness"), &json!(1), &json!(30))
    );
    let explained = place.ask(&["explain", &call["id"].to_string()]).await.stdout;
    let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        "Container main failed liveness probe, will be killed: the liveness probe failed, and its failure threshold is 1.",
        "The container had a grace period of 30s.",
        "The failed attempt, at ",
        ": Liveness probe failed: ",
    ] {
        assert!(explained.contains(sentence), "{explained}");
    }
    let status = place.ask(&["status"]).await.stdout;
    assert!(status.contains("kills        1 of 30 within 10m00s"), "{status}");

    // A client restarts the container. probeshim kills the restarted container once.
    let pod = until_shown(&place, &["status"], |it| it["pods"][0]["id"].as_str().map(str::to_owned)).await;
    let metadata = Some(ContainerMetadata { name: "main".into(), attempt: 1 });
    let again = ContainerConfig { metadata, ..shell("main", "sleep 1000") };
    let next = runtime.create(("web", &pod), again).await.unwrap();
    runtime.start_container(&next).await.unwrap();
    let calls = stops(&place, 2).await;
    let ids: Vec<&Value> = calls.iter().map(|call| &call["container"]["id"]).collect();
    assert_eq!(ids, [&json!(id), &json!(next)]);
    assert_eq!(
        calls[1]["kill"]["failures"].as_array().unwrap().len(),
        1,
        "failures before the second kill: {calls:#?}"
    );
    runtime.end().await;
}

#[tokio::test]
async fn the_enforcement_mode_can_be_changed_at_run_time() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "web").await;
    place.configure(FAILING);
    let _shim = place.start_watching(&["--enforce", "dry-run", "--never-kill", "pod=nobody"]).await;
    told(&place, "", "SelectorMatchesNothing", "pod nobody", 1).await;
    told(&place, "web", "WouldKill", "(dry-run: would be stopped with a grace period of 30s)", 1).await;
    assert_eq!(place.ask(&["mode"]).await.stdout, "dry-run\n");
    let wrong = place.ask(&["mode", "restart"]).await;
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""));
    assert!(wrong.stderr.contains("mode \"restart\" needs --enforce restart at start"), "{wrong:?}");
    let to_kill = place.ask(&["mode", "kill"]).await.stdout;
    let sentence = "mode is now kill (was dry-run): probes run, and containers are killed for them\n";
    assert_eq!(to_kill, sentence);
    told(
        &place,
        "",
        "EnforcementModeChanged",
        "Enforcement mode changed from dry-run to kill by probeshim[",
        1,
    )
    .await;
    told(&place, "web", "Killing", "", 1).await;
    let to_dry_run = place.ask(&["mode", "dry-run"]).await.stdout;
    assert_eq!(to_dry_run, "mode is now dry-run (was kill): probes run, and nothing is killed\n");
    told(
        &place,
        "",
        "EnforcementModeChanged",
        "Enforcement mode changed from kill to dry-run by probeshim[",
        1,
    )
    .await;
    runtime.end().await;
}

#[tokio::test]
async fn the_enforcement_mode_off_cannot_be_changed_at_run_time() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let _shim = place.start_watching(&[]).await;
    assert_eq!(place.ask(&["mode"]).await.stdout, "off\n");
    let refused = place.ask(&["mode", "kill"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("no probes are run, since probeshim was started with --enforce off"),
        "{refused:?}"
    );
    let to_off = place.ask(&["mode", "off"]).await.stdout;
    assert_eq!(to_off, "mode is off already: probes do not run, and nothing is killed\n");
    runtime.end().await;
}
