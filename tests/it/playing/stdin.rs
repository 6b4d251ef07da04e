//! Manifests on standard input.

use std::fs::{self, File};
use std::process::Command;

use super::{is_clean, play, pod};
use crate::procrun::Runtime;
use crate::program::{Answer, Place};

/// Runs a command with this text on standard input.
async fn piped(place: &Place, mut command: Command, text: &str) -> Answer {
    fs::write(place.at("stdin"), text).unwrap();
    command.stdin(File::open(place.at("stdin")).unwrap());
    Answer::to(command).await
}

#[tokio::test]
async fn manifests_on_standard_input_are_checked_and_played() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let manifest = pod("a", "exit 3", ", restartPolicy: Never", "");
    let played = piped(&place, play(&place, &["-"]), &manifest).await;
    assert!(played.code == Some(1) && played.stderr.contains("pod test/a has failed"), "{played:?}");
    let check = || {
        let mut check = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        check.args(["check", "-", "--config"]).arg(place.at("config.yaml"));
        check
    };
    assert_eq!(piped(&place, check(), &manifest).await.code, Some(0));
    for command in [play(&place, &["-"]), check()] {
        let answer = piped(&place, command, "{apiVersion: v1, kind: Pod, metadata: {name: A}}").await;
        let is_reported = answer.stderr.starts_with("error: standard input:1: ");
        assert!(answer.code == Some(2) && is_reported, "{answer:?}");
    }
    is_clean(&place, runtime).await;
}
