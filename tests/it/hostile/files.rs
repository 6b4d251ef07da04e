//! Manifests and configurations that never end or are too long.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Stdio;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use rustix::process::Signal;

use crate::admin::until_shown;
use crate::playing::{self, POLITE, Watched, pod};
use crate::procrun::Runtime;
use crate::program::{Answer, Place, Running};

async fn probeshim(arguments: &[&str]) -> Answer {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.args(arguments);
    Answer::to(command).await
}

#[tokio::test]
async fn manifests_and_configurations_must_be_files_within_the_size_limit() {
    let place = Place::new();
    let [fifo, sparse, folder] = ["fifo", "sparse.yaml", "folder"].map(|name| place.at(name));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    File::create(&sparse).unwrap().set_len(5 << 30).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::rename(&sparse, folder.join("sparse.yaml")).unwrap();
    let (fifo, sparse) = (fifo.to_str().unwrap(), folder.join("sparse.yaml"));
    let long = "it has 5368709120 bytes, and at most 67108864 bytes (64.0 MiB) are read";
    for (path, reason) in [
        (fifo, "it is a FIFO that is empty and has no writer"),
        ("/dev/zero", "it is a device; only regular files and FIFOs are read"),
        (folder.to_str().unwrap(), long),
        (sparse.to_str().unwrap(), long),
    ] {
        let checked = probeshim(&["check", path]).await;
        assert_eq!(checked.code, Some(2), "{checked:?}");
        let told = if path == folder.to_str().unwrap() { sparse.to_str().unwrap() } else { path };
        assert_eq!(checked.stderr, format!("error: {told}: {reason}\n"));
        let played = Answer::to(playing::play(&place, &[path])).await;
        assert_eq!(played.code, Some(2), "{played:?}");
        assert!(played.stderr.contains(&format!("{told}: {reason}")), "{played:?}");
    }
    for path in [fifo, "/dev/zero", sparse.to_str().unwrap()] {
        let checked = probeshim(&["check", "--config", path]).await;
        assert_eq!(checked.code, Some(2), "{checked:?}");
        assert!(checked.stderr.starts_with(&format!("error: {path}: ")), "{checked:?}");
        let refused = place.refused(place.command("shim.sock", &["--manifests", path])).await;
        assert_eq!(refused.0, 2, "{refused:?}");
    }
}

/// A FIFO is read if it is named on the command line, as by `<(command)` or as standard input.
#[tokio::test]
async fn manifests_and_configurations_may_come_through_a_pipe() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_probeshim");
    let manifest = "{apiVersion: v1, kind: Pod, metadata: {name: piped}, spec: {containers: [{name: main, image: i, \
                    livenessProbe: {exec: {command: ['true']}}}]}}\n---\n{kind: Service}\n";
    fs::write(place.at("pods.yaml"), manifest).unwrap();
    fs::write(
        place.at("rules.yaml"),
        "probes: [{match: {pod: ruled}, livenessProbe: {exec: {command: ['true']}}}]\n",
    )
    .unwrap();
    let ask = async |line: &str| {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", line]).current_dir(place.at("")).env("PROBESHIM", program);
        Answer::to(command).await
    };
    for line in [
        "\"$PROBESHIM\" check <(cat pods.yaml)",
        "cat pods.yaml | \"$PROBESHIM\" check /dev/stdin",
        "\"$PROBESHIM\" check /dev/stdin < pods.yaml",
    ] {
        let checked = ask(line).await;
        assert_eq!(checked.code, Some(0), "{line}: {checked:?}");
        assert!(checked.stdout.contains("Pod default/piped"), "{line}: {checked:?}");
        assert!(
            checked.stderr.contains("Service is ignored: there is no service network"),
            "{line}: {checked:?}"
        );
    }
    let checked = ask("\"$PROBESHIM\" check --config <(cat rules.yaml)").await;
    assert!(checked.stdout.contains("rule: pod ruled"), "{checked:?}");
    let checked = ask("\"$PROBESHIM\" check /dev/stdin < /dev/zero").await;
    assert_eq!(checked.code, Some(2), "{checked:?}");
    let told = "error: /dev/stdin: it is a device; only regular files and FIFOs are read\n";
    assert_eq!(checked.stderr, told);
    let checked = ask("true | { cat > /dev/null; \"$PROBESHIM\" check /dev/stdin; }").await;
    assert_eq!(checked.stderr, "error: /dev/stdin: it is a FIFO that is empty and has no writer\n");
}

#[tokio::test]
async fn pods_from_a_pipe_keep_running_when_the_pipe_has_ended() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let (watched, log) = (Watched::new(&place), place.at("log"));
    let mut command = playing::play(&place, &["/dev/stdin", watched.path()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(pod("piped", POLITE, "", "").as_bytes()).unwrap();
    let mut running = Running { process, socket: place.at("probeshim.sock"), log };
    running.logged("playing").await;
    let ready = async |name: &str| {
        until_shown(&place, &["status"], |status| {
            let pod = status["pods"].as_array()?.iter().find(|pod| pod["name"] == name)?;
            (pod["phase"] == "Running").then_some(())
        })
        .await;
    };
    ready("piped").await;
    // Once this pod runs, all manifests have been read again.
    watched.write("other.yaml", &pod("other", POLITE, "", ""));
    ready("other").await;
    ready("piped").await;
    let events = place.ask(&["events", "-o", "json"]).await.stdout;
    assert!(!events.contains("/dev/stdin"), "{events}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    runtime.end().await;
}
