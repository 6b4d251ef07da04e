//! A command around which pods are played, and the embedded runtime.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{NEVER_READY, POLITE, pod};
use crate::procrun::{processes_of, until};
use crate::program::{Answer, Place};
use fixtures::wait::soon;

const READY: &str = ", readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}";

/// Returns `probeshim play` with the runtime that it starts itself.
fn embedded(place: &Place, manifest: &str, arguments: &[&str]) -> Command {
    fs::write(place.at("pods.yaml"), manifest).unwrap();
    embedded_with(place, &place.at("pods.yaml"), arguments)
}

/// Returns `probeshim play` with the manifests at a path and the runtime that it starts itself.
fn embedded_with(place: &Place, manifests: &Path, arguments: &[&str]) -> Command {
    fs::create_dir_all(place.at("tmp")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("play").arg(manifests).args(["--runtime", "procrun", "--http", "off"]);
    command.arg("--config").arg(place.at("config.yaml")).arg("--listen").arg(place.at("probeshim.sock"));
    command.arg("--admin").arg(place.at("admin.sock")).args(arguments).env("TMPDIR", place.at("tmp"));
    command
}

/// Asserts that neither files nor processes of the embedded runtime are left.
fn is_clean(place: &Place) {
    assert_eq!(fs::read_dir(place.at("tmp")).unwrap().count(), 0);
    assert_eq!(processes_of(&place.at("")), Vec::<String>::new());
}

#[tokio::test]
async fn play_runs_a_command_once_pods_are_ready_and_exits_with_its_code() {
    let place = Place::new();
    let status = concat!(env!("CARGO_BIN_EXE_probeshim"), " status -o json; exit 7");
    let command = embedded(&place, &pod("a", POLITE, "", READY), &["--", "sh", "-c", status]);
    let answer = Answer::to(command).await;
    assert_eq!(answer.code, Some(7), "{answer:?}");
    // Standard output belongs to the command.
    let status: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(status["pods"][0]["ready"], true, "{status}");
    for expected in
        ["a main  Started: ", "all pods are ready after ", "running sh -c ", "\nNAME  READY  STATUS"]
    {
        assert!(answer.stderr.contains(expected), "{expected}: {answer:?}");
    }
    is_clean(&place);
    let killed = embedded(&place, &pod("a", POLITE, "", READY), &["-q", "--", "sh", "-c", "kill -9 $$"]);
    let answer = Answer::to(killed).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(137), ""), "{answer:?}");
    is_clean(&place);
}

#[tokio::test]
async fn play_reports_that_it_waits_for_the_first_manifest_of_a_directory() {
    let place = Place::new();
    fs::create_dir(place.at("manifests")).unwrap();
    let arguments = ["--timeout", "1s", "--", "echo", "ran"];
    let answer = Answer::to(embedded_with(&place, &place.at("manifests"), &arguments)).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(1), ""), "{answer:?}");
    assert!(answer.stderr.contains("no manifest has a pod yet: waiting for manifests"), "{answer:?}");
    is_clean(&place);
}

#[tokio::test]
async fn the_flag_that_selects_the_runtime_takes_precedence_over_variables() {
    let place = Place::new();
    let variables = |mut command: Command| {
        command.env("PROBESHIM_UPSTREAM", "/nowhere.sock").env("PROBESHIM_INSTANCE", "ci");
        command
    };
    let manifest = pod("a", POLITE, "", READY);
    let ready = Answer::to(variables(embedded(&place, &manifest, &["--", "true"]))).await;
    assert_eq!(ready.code, Some(0), "{ready:?}");
    is_clean(&place);
    let both = Answer::to(variables(embedded(&place, &manifest, &["--upstream", "/a.sock"]))).await;
    assert_eq!(both.code, Some(2), "{both:?}");
    assert!(both.stderr.contains("'--runtime <procrun>' cannot be used with '--upstream <URI>'"), "{both:?}");
    let mut unknown = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    unknown.args(["calls", "--nope"]);
    let usage = Answer::to(variables(unknown)).await.stderr;
    assert!(usage.contains("Usage: probeshim calls") && !usage.contains("--instance <NAME>"), "{usage}");
}

#[tokio::test]
async fn play_runs_no_command_if_a_pod_fails_and_shows_the_end_of_its_log() {
    let place = Place::new();
    let manifest = pod("a", "echo no such table; exit 3", ", restartPolicy: Never", NEVER_READY);
    let answer = Answer::to(embedded(&place, &manifest, &["--", "echo", "ran"])).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(1), ""), "{answer:?}");
    let expected = "error: pod test/a has failed: main exited with code 3 (Error)\n  \
                    test/a main exited with code 3 (Error)\n    \
                    last lines of its log:\n      no such table\n";
    assert!(answer.stderr.ends_with(expected), "{answer:?}");
    is_clean(&place);
    let manifest = pod("a", POLITE, "", "");
    let answer = Answer::to(embedded(&place, &manifest, &["--", "no-such-program"])).await;
    let expected = "error: cannot run COMMAND \"no-such-program\": No such file or directory";
    assert!(answer.code == Some(127) && answer.stderr.contains(expected), "{answer:?}");
    is_clean(&place);
}

#[tokio::test]
async fn play_passes_sigterm_on_to_its_command_and_then_ends_its_pods() {
    let place = Place::new();
    let script = "trap 'echo terminated; exit 5' TERM; echo runs; while true; do sleep 0.1; done";
    let mut command = embedded(&place, &pod("a", POLITE, "", READY), &["-q", "--", "sh", "-c", script]);
    let shown = place.at("shown");
    command.stdout(fs::File::create(&shown).unwrap()).stdin(Stdio::null());
    let child = command.spawn().unwrap();
    until(async || fs::read_to_string(&shown).unwrap().contains("runs").then_some(())).await;
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = soon(spawn_blocking(move || child.wait_with_output().unwrap())).await.unwrap();
    assert_eq!(ended.status.code(), Some(143));
    assert_eq!(fs::read_to_string(&shown).unwrap(), "runs\nterminated\n");
    is_clean(&place);
}

#[tokio::test]
async fn wait_awaits_the_restart_and_the_end_of_pods() {
    let place = Place::new();
    let manifest = pod("a", "exit 1", "", NEVER_READY) + &pod("b", POLITE, "", READY);
    let play = embedded(&place, &manifest, &["-q", "--log", "off"]).spawn().unwrap();
    let wait = async |arguments: &[&str]| place.ask(&[&["wait"], arguments].concat()).await;
    // The pods, and probeshim itself, may not exist yet.
    let ready = wait(&["b", "-n", "test"]).await;
    assert_eq!((ready.code, ready.stdout.as_str()), (Some(0), "pod/b condition met\n"), "{ready:?}");
    assert_eq!(wait(&["test/a", "pod/a", "--for", "restarts=1"]).await.code, Some(0));
    let late = wait(&["a", "b", "--for=condition=Ready", "--timeout", "1s"]).await;
    let expected = "error: timed out after 1.00s waiting for ready: test/a is not ready (";
    assert!(late.code == Some(1) && late.stderr.starts_with(expected), "{late:?}");
    let absent = wait(&["c", "--timeout", "1s"]).await;
    assert!(absent.code == Some(1) && absent.stderr.contains("pod \"c\" does not exist"), "{absent:?}");
    assert_eq!(wait(&["c", "--for", "deleted"]).await.code, Some(0));
    assert_eq!(wait(&["a", "--for", "gone"]).await.code, Some(2));
    kill_process(Pid::from_child(&play), Signal::INT).unwrap();
    let ended = soon(spawn_blocking(move || play.wait_with_output().unwrap())).await.unwrap();
    assert_eq!(ended.status.code(), Some(130));
    is_clean(&place);
}
