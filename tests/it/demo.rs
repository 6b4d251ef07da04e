//! `probeshim demo`, started as users start it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::task::spawn_blocking;

use crate::procrun::{processes_of, until};
use crate::program::{Answer, Place};
use fixtures::wait::soon;
use probeshim::procrun::WARNING;

fn demo(place: &Place, arguments: &[&str]) -> Command {
    let folder = place.at("tmp");
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("demo").args(arguments).env("TMPDIR", folder);
    command
}

/// Asserts that the demo has left neither a file nor a process.
fn is_clean(place: &Place) {
    let left: Vec<_> = fs::read_dir(place.at("tmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_of(&place.at("")), Vec::<String>::new());
}

/// Starts a demo whose output goes into a file.
fn start(place: &Place) -> (Child, String) {
    let shown = place.at("shown");
    let mut command = demo(place, &["--for", "1h"]);
    let child = command.stdout(fs::File::create(&shown).unwrap()).spawn().unwrap();
    (child, shown.to_str().unwrap().to_owned())
}

async fn ended(child: Child) -> Option<i32> {
    soon(spawn_blocking(move || child.wait_with_output().unwrap())).await.unwrap().status.code()
}

fn read(shown: &str) -> String {
    fs::read_to_string(Path::new(shown)).unwrap()
}

async fn says(shown: &str, text: &str) {
    until(|| async { read(shown).contains(text).then_some(()) }).await;
}

#[tokio::test]
async fn the_demo_restarts_a_failing_pod_and_prints_a_summary_on_ctrl_c() {
    let place = Place::new();
    let (child, shown) = start(&place);
    says(&shown, "moody main   Unhealthy: Liveness probe failed: cat: ").await;
    says(&shown, "moody main   Killing: Container main failed liveness probe, will be restarted").await;
    let text = read(&shown);
    let admin = text.split_once(" --admin ").unwrap().1.lines().next().unwrap();
    until(|| async {
        let mut status = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        status.args(["status", "-o", "json", "--admin", admin]);
        let status = Answer::to(status).await.json();
        let pods = status["pods"].as_array().unwrap();
        pods.iter().any(|pod| pod["name"] == "moody" && pod["restarts"] == 1).then_some(())
    })
    .await;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(ended(child).await, Some(130));
    let text = read(&shown);
    assert_eq!(text.lines().next(), Some(WARNING));
    let row = |pod: &str| -> Vec<&str> {
        text.lines().rfind(|line| line.starts_with(pod)).unwrap().split_whitespace().collect()
    };
    assert_eq!(row("steady  "), ["steady", "1/1", "Running", "0"], "{text}");
    assert_eq!(row("moody  ")[2..], ["Running", "1"], "{text}");
    for expected in [
        "moody main   ContainerExited: Exited with code 0 after it was killed\n",
        "steady was neither killed nor restarted.\n",
        "$ probeshim explain ",
        "error kills: demo/moody main liveness (probeshim)\n",
        "moody was killed by its liveness probe and restarted once.\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    is_clean(&place);
}

#[tokio::test]
async fn the_demo_ends_by_itself_and_reports_wrong_usage() {
    let place = Place::new();
    let answer = Answer::to(demo(&place, &["--for", "1s"])).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
    assert!(answer.stdout.contains("NAME    READY  STATUS   RESTARTS"), "{answer:?}");
    is_clean(&place);
    let answer = Answer::to(demo(&place, &["--for", "1s", "--quiet", "--http", "off"])).await;
    assert!(answer.stdout.starts_with("\n$ probeshim explain "), "{answer:?}");
    assert!(!answer.stdout.contains("SandboxStarted"), "{answer:?}");
    for wrong in ["0s", "soon", "-1s", "25h"] {
        let answer = Answer::to(demo(&place, &["--for", wrong])).await;
        let told = format!("'{wrong}' for '--for <DURATION>': must be a duration from 1s to 24h");
        assert!(answer.code == Some(2) && answer.stderr.contains(&told), "{answer:?}");
    }
    let mut elsewhere = demo(&place, &["--for", "1s"]);
    elsewhere.env("TMPDIR", place.at("nowhere"));
    let answer = Answer::to(elsewhere).await;
    assert!(answer.code == Some(1) && answer.stderr.contains("set TMPDIR to another"), "{answer:?}");
}

#[tokio::test]
async fn the_demo_continues_without_a_reader_and_leaves_no_process_if_killed() {
    let place = Place::new();
    let mut unread = demo(&place, &["--for", "1s"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(unread.stdout.take());
    assert_eq!(ended(unread).await, Some(0));
    is_clean(&place);
    let (child, shown) = start(&place);
    says(&shown, "moody main   Started: ").await;
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    ended(child).await;
    until(|| async { processes_of(&place.at("")).is_empty().then_some(()) }).await;
}
