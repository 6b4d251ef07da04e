//! The rows with all that becomes of them: `play` makes the pods, kills and restarts.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::{Expected, Row, watch};
use crate::real::containerd::{Containerd, Version};
use crate::real::kubelet::statuses;
use crate::real::life::Runtime as _;
use crate::real::machine::tool;
use crate::real::play::Player;
use crate::real::probing::dress;
use crate::real::server::wait_for;

/// Has the pods of these rows played, and looks whether each is as it is expected to be.
pub(crate) fn play(rows: &[Row], is_sidecar: bool) -> Result<(), String> {
    let probes = tool("probes-1.36")?;
    let containerd = Containerd::start(Version::V2_2)?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    for (place, row) in rows.iter().enumerate() {
        let mut manifest = row.manifest(place, is_sidecar);
        if !row.has_own_grace_period() && row.expected != Expected::NotReadyAtTheEnd {
            // Shells do not heed SIGTERM.
            manifest["spec"]["terminationGracePeriodSeconds"] = 2.into();
        }
        dress(&mut manifest["spec"], &probes);
        player.run(&format!("row-{place}"), &manifest.to_string());
    }
    let begun = Instant::now();
    for (place, row) in rows.iter().enumerate() {
        row.check_played(&player, &format!("row-{place}"), is_sidecar);
    }
    watch(begun);
    for (place, row) in rows.iter().enumerate() {
        row.check_played_again(&player, &format!("row-{place}"), is_sidecar);
    }
    Ok(())
}

/// The container that is probed, as it is told of.
fn probed(player: &Player, pod: &str) -> Value {
    let pod = player.pod(pod).unwrap_or_default();
    statuses(&pod).find(|container| container["name"] == "probed").cloned().unwrap_or_default()
}

impl Row {
    /// Waits for what is expected to happen.
    fn check_played(&self, player: &Player, name: &str, is_sidecar: bool) {
        let (what, probed) = (self.name, || probed(player, name));
        match self.expected {
            Expected::Killed(_) | Expected::KilledWithin(_) => {
                // Each further one takes twice as long.
                let restarts = self.kills().unwrap_or(1).min(3);
                wait_for(what, || (probed()["restartCount"].as_u64()? >= restarts).then_some(()));
                let message =
                    if is_sidecar { "Init container probed failed" } else { "Container probed failed" };
                assert!(player.count(name, "Killing", message) >= restarts, "{what}");
            }
            Expected::Warned(text) => {
                wait_for(what, || (player.count(name, "ProbeWarning", text) > 0).then_some(()));
            }
            Expected::NotReady | Expected::NotStarted => {
                wait_for(what, || (player.count(name, "Unhealthy", "") >= 2).then_some(()));
            }
            Expected::ReadyAfter(seconds) => {
                wait_for(what, || (probed()["ready"] == true).then_some(()));
                let pod = player.pod(name).unwrap();
                let time = |time: &Value| time.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
                let started = time(&probed()["state"]["running"]["startedAt"]);
                let conditions = pod["status"]["conditions"].as_array().unwrap();
                let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
                let after = time(&ready["lastTransitionTime"]) - started;
                assert!(after >= i64::try_from(seconds).unwrap(), "{what}: ready after {after}s");
            }
            Expected::ReadyWithStartup => {
                wait_for(what, || (probed()["started"] == true).then_some(()));
                let started = Instant::now();
                wait_for(what, || (probed()["ready"] == true).then_some(()));
                assert!(started.elapsed() < Duration::from_secs(10), "{what}");
            }
            Expected::Well | Expected::NotReadyAtTheEnd => {
                wait_for(what, || (probed()["ready"] == true).then_some(()));
            }
        }
    }

    /// Looks whether what must not happen has not.
    fn check_played_again(&self, player: &Player, name: &str, is_sidecar: bool) {
        let what = self.name;
        let now = probed(player, name);
        let stands = (now["restartCount"] == 0, now["ready"] == true, now["started"] == true);
        match self.expected {
            Expected::Killed(_) | Expected::KilledWithin(_) => {}
            Expected::Well | Expected::Warned(_) | Expected::ReadyAfter(_) | Expected::ReadyWithStartup => {
                assert_eq!(stands, (true, true, true), "{what}: {now:#}");
            }
            Expected::NotReady => assert_eq!(stands, (true, false, true), "{what}: {now:#}"),
            Expected::NotStarted => assert_eq!(stands, (true, false, false), "{what}: {now:#}"),
            Expected::NotReadyAtTheEnd => {
                player.forget(name);
                wait_for(what, || (probed(player, name)["ready"] == false).then_some(()));
                wait_for(what, || player.pod(name).is_none().then_some(()));
                // Those that run beside the main one are probed to the very end; of others an attempt may have been under way.
                let failed = player.count(name, "Unhealthy", "Liveness probe failed");
                assert!(is_sidecar || failed <= 1, "{what}: {failed}");
            }
        }
    }
}
