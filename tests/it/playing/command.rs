//! A command around which pods are played, and the embedded runtime.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{NEVER_READY, POLITE, pod};
use crate::procrun::{processes_of, until};
use crate::program::{Answer, Place, is_root};
use fixtures::need;
use fixtures::wait::soon;

/// User and group without rights.
const NOBODY: u32 = 65_534;

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
    for expected in [
        "a main  Started: ",
        "Ready: The pod is ready",
        "all pods are ready after ",
        "running sh -c ",
        "\nNAME  READY  STATUS",
    ] {
        assert!(answer.stderr.contains(expected), "{expected}: {answer:?}");
    }
    is_clean(&place);
    let killed = embedded(&place, &pod("a", POLITE, "", READY), &["-q", "--", "sh", "-c", "kill -9 $$"]);
    let answer = Answer::to(killed).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(137), ""), "{answer:?}");
    is_clean(&place);
}

/// Returns a program, run by a user without rights whose sockets are in a directory of the place.
fn as_user(place: &Place, program: &Path) -> Command {
    let mut command = Command::new(program);
    let user = Some(NOBODY);
    for name in ["run", "tmp"] {
        fs::create_dir_all(place.at(name)).unwrap();
        chown(place.at(name), user, user).unwrap();
    }
    command.uid(NOBODY).gid(NOBODY).env("XDG_RUNTIME_DIR", place.at("run")).env("TMPDIR", place.at("tmp"));
    command
}

#[tokio::test]
async fn each_of_several_tests_gets_an_instance_of_its_own() {
    need!(is_root());
    let place = Place::new();
    let program = place.copied_program();
    let pods = place.at("pods.yaml");
    fs::write(&pods, pod("a", POLITE, "", READY)).unwrap();
    fs::set_permissions(&pods, fs::Permissions::from_mode(0o644)).unwrap();
    let play = format!("{} play --runtime procrun {} --", program.display(), pods.display());
    let show = "echo $PROBESHIM_ADMIN";
    let nested = format!("env -u PROBESHIM_ADMIN -u CONTAINER_RUNTIME_ENDPOINT {play} sh -c '{show}'");
    let mut command = as_user(&place, &program);
    command.args(["play", "--runtime", "procrun"]).arg(&pods);
    command.args(["--", "sh", "-c", &format!("{show}; {nested}")]);
    let answer = Answer::to(command).await;
    let expected = [1, 2].map(|number| {
        format!("unix://{}\n", place.at("run").join(format!("probeshim-auto-{number}/admin.sock")).display())
    });
    assert_eq!((answer.code, &answer.stdout), (Some(0), &expected.concat()), "{answer:?}");
    assert!(answer.stderr.contains("`probeshim pods --instance auto-1`"), "{answer:?}");
    let mut query = as_user(&place, &program);
    query.args(["pods", "--instance", "auto"]);
    let answer = Answer::to(query).await;
    let expected = "--instance \"auto\" must be the name of an instance";
    assert!(answer.code == Some(2) && answer.stderr.contains(expected), "{answer:?}");
}

#[tokio::test]
async fn a_container_without_a_command_is_refused_on_procrun_before_anything_starts() {
    let place = Place::new();
    let manifest = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {initContainers: [{name: i, image: x, args: [sleep]}],\n\
                    containers: [{name: m, image: nginx}]}}";
    let answer = Answer::to(embedded(&place, manifest, &[])).await;
    let file = place.at("pods.yaml").display().to_string();
    let expected = format!(
        "error: {file}:2: spec.containers[0].command: Required value: images of procrun have no command\n"
    );
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(2), expected.as_str()), "{answer:?}");
    for (arguments, code) in [(&["--runtime", "procrun"][..], Some(2)), (&[], Some(0))] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        check.arg("check").arg(place.at("pods.yaml")).arg("--config").arg(place.at("config.yaml"));
        check.args(arguments);
        let checked = Answer::to(check).await;
        assert_eq!(checked.code, code, "{checked:?}");
        assert_eq!(checked.stderr.contains(&expected), code == Some(2), "{checked:?}");
    }
    is_clean(&place);
}

#[tokio::test]
async fn probable_mistakes_and_ignored_objects_are_reported_when_play_starts() {
    let place = Place::new();
    let wrong_port = ", livenessProbe: {tcpSocket: {port: htp}}, ports: [{name: http, containerPort: 80}]";
    let manifest = pod("a", "exit 0", ", restartPolicy: Never", wrong_port)
        + "{kind: Service, metadata: {name: web}}\n---\n{kind: Service, metadata: {name: db}}";
    let answer = Answer::to(embedded(&place, &manifest, &[])).await;
    let file = place.at("pods.yaml").display().to_string();
    for expected in [
        "no port of the container has this name, did you mean".to_owned(),
        format!("{file}:3: Service default/web and 1 more are ignored: there is no service network"),
    ] {
        assert_eq!(answer.stderr.matches(&expected).count(), 1, "{expected}: {answer:?}");
    }
    assert_eq!(answer.code, Some(0), "{answer:?}");
    is_clean(&place);
}

#[tokio::test]
async fn a_command_without_its_dashes_gets_a_hint() {
    let place = Place::new();
    let manifest = pod("a", POLITE, "", READY);
    let answer = Answer::to(embedded(&place, &manifest, &["sh", "test.sh"])).await;
    let expected = format!(
        "\nhint: a COMMAND follows --, as in `probeshim play {} -- sh test.sh`\n",
        place.at("pods.yaml").display()
    );
    assert!(answer.code == Some(2) && answer.stderr.ends_with(&expected), "{answer:?}");
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
    let expected = "error: COMMAND \"no-such-program\" must be a program in PATH, or the path of one";
    assert!(answer.code == Some(2) && answer.stderr.contains(expected), "{answer:?}");
    assert!(!answer.stderr.contains("Started"), "no pod is started: {answer:?}");
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
