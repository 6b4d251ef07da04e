//! Display of the node and its ExecSyncs: `status`, `events`, `explain`, and call records that
//! survive a restart of probeshim.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use probeshim::cri::v1::*;
use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{SERVICE, call, kept, until_shown};
use crate::procrun::{Runtime, until};
use crate::program::{Place, Running};

fn exec(container: &str, command: &[&str]) -> Vec<u8> {
    let cmd = command.iter().map(ToString::to_string).collect();
    ExecSyncRequest { container_id: container.into(), cmd, timeout: 5 }.encode_to_vec()
}

/// Makes an ExecSync through probeshim.
async fn execute(shim: &Running, container: &str, command: &[&str]) {
    call(shim, &[(&format!("{SERVICE}/ExecSync"), exec(container, command))]).await;
}

fn reasons(events: &Value) -> Vec<&str> {
    events.as_array().unwrap().iter().map(|event| event["reason"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn pods_created_without_the_relay_are_observed() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let old = runtime.runs("sleep 1000").await;
    let shim = place.start_watching(&[]).await;
    let pods = |status: &Value| status["pods"].as_array().unwrap().clone();
    let first = until_shown(&place, &["status"], |status| pods(status).pop()).await;
    assert_eq!(
        (&first["namespace"], &first["name"], &first["sandbox"]),
        (&json!("it"), &json!("pod"), &json!("ready"))
    );
    assert_eq!(first["containers"][0]["id"], old.as_str());
    assert_eq!(
        (&first["containers"][0]["name"], &first["containers"][0]["state"]),
        (&json!("main"), &json!("running"))
    );

    // The pod is created without the relay, after the first list.
    until_shown(&place, &["events"], |events| reasons(events).contains(&"RuntimeReady").then_some(())).await;
    let pod = runtime.run_pod("bypass").await;
    let status =
        until_shown(&place, &["status"], |status| (pods(status).len() == 2).then(|| pods(status))).await;
    assert_eq!(status[0]["name"], "bypass");
    let id = runtime.create(("bypass", &pod), crate::procrun::shell("side", "exit 3")).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    let exited = until_shown(&place, &["status"], |status| {
        let container = pods(status)[0]["containers"][0].clone();
        (container["state"] == "exited").then_some(container)
    });
    let exited = exited.await;
    assert_eq!((&exited["name"], &exited["exitCode"]), (&json!("side"), &json!(3)));
    let events = until_shown(&place, &["events"], |events| {
        reasons(events).contains(&"ContainerExited").then(|| events.clone())
    });
    let events = events.await;
    assert_eq!(
        reasons(&events),
        ["RuntimeReady", "SandboxStarted", "ContainerCreated", "ContainerStarted", "ContainerExited"],
        "objects from before the start must have no events"
    );
    assert_eq!((&events[4]["pod"], &events[4]["container"]), (&json!("bypass"), &json!("side")));

    // The views of kubectl show the pods too. Facts that only a kubelet has are unknown.
    let table = place.ask(&["pods", "-l", "app in (bypass), !other"]).await.stdout;
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(row[..2] == ["bypass", "0/1"] && ["Error", "ExitCode:3"].contains(&row[2]), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    assert_eq!(place.ask(&["get", "po", "-n", "it", "-o", "name"]).await.stdout, "pod/bypass\npod/pod\n");
    assert_eq!(place.ask(&["pods", "-n", "none"]).await.stdout, "no pods in namespace \"none\"\n");
    let running = place.ask(&["pods", "it/pod"]).await.stdout;
    assert!(running.lines().nth(1).unwrap().contains("?/1    Running"), "{running}");
    let exits = place.ask(&["events", "--pod", "it/bypass", "--reason", "containerexited"]).await.stdout;
    assert!(exits.lines().count() == 2 && exits.contains("it/bypass side"), "{exits}");
    let warnings = place.ask(&["events", "-n", "it", "--type", "Warning"]).await.stdout;
    assert!(
        warnings.starts_with("no events match, of ") && warnings.ends_with(" recorded events\n"),
        "{warnings}"
    );
    let page = place.ask(&["describe", "pod/bypass"]).await.stdout;
    for line in ["Labels:           app=bypass", "    State:            Exited", "      Exit Code:        3"]
    {
        assert!(page.lines().any(|known| known == line), "{line}: {page}");
    }
    assert!(page.contains("ContainerExited") && page.contains("Calls:            <none>"), "{page}");
    let refused = place.ask(&["status", "bypass"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("\nhint: `probeshim describe bypass` describes the pod"), "{refused:?}");

    // The runtime's end is reported, and its pods stay known until it answers again.
    runtime.end().await;
    until_shown(&place, &["events"], |events| reasons(events).contains(&"RuntimeUnavailable").then_some(()))
        .await;
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    until_shown(&place, &["status"], |status| pods(status).is_empty().then_some(())).await;
    runtime.end().await;
    drop(shim);
}

#[tokio::test]
async fn objects_in_the_first_relayed_lists_have_no_events() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let old = runtime.runs("sleep 1000").await;
    let shim = place.start(&[]).await;
    for method in ["ListPodSandbox", "ListContainers"] {
        call(&shim, &[(&format!("{SERVICE}/{method}"), Vec::new())]).await;
    }
    until_shown(&place, &["status"], |status| status["pods"][0]["containers"].as_array()?.first().map(drop))
        .await;
    let request = StopContainerRequest { container_id: old.clone(), timeout: 0 }.encode_to_vec();
    call(&shim, &[(&format!("{SERVICE}/StopContainer"), request)]).await;
    let request = ContainerStatusRequest { container_id: old, verbose: false }.encode_to_vec();
    call(&shim, &[(&format!("{SERVICE}/ContainerStatus"), request)]).await;
    let events = until_shown(&place, &["events"], |events| {
        events.as_array().filter(|events| !events.is_empty()).map(|_| events.clone())
    });
    assert_eq!(reasons(&events.await), ["Killing", "ContainerExited"]);
    runtime.end().await;
}

#[tokio::test]
async fn an_exec_sync_is_explained_by_its_id() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start_watching(&["--redact-commands"]).await;
    until_shown(&place, &["status"], |status| status["pods"].as_array()?.first().map(drop)).await;
    execute(&shim, &container, &["sh", "-c", "exit 3"]).await;
    kept(&place, 1).await;
    let explained = place.ask(&["explain", "1", "-o", "json"]).await.json();
    assert_eq!(
        (&explained["call"]["id"], &explained["call"]["exec"]["command"]),
        (&json!(1), &json!(["sh"]))
    );
    let sentences = explained["sentences"].as_array().unwrap();
    assert!(
        sentences[0].as_str().unwrap().starts_with("Call 1 executed sh … in container main of pod it/pod"),
        "{sentences:?}"
    );
    let last = place.ask(&["explain", "--last", "--pod", "pod", "-n", "it", "-o", "json"]).await.json();
    assert_eq!(last["call"]["id"], json!(1));
    let text = place.ask(&["explain", "1"]).await.stdout;
    assert!(text.contains("exited with code 3"), "{text}");
    for (arguments, code, told) in [
        (&["explain", "7"][..], 2, "call 7 is neither recorded nor in flight"),
        (
            &["calls", "--probe", "lively"],
            2,
            "'lively' for '--probe <PROBE>': must be one of liveness, readiness",
        ),
        (&["calls", "--pod", "other"], 2, "--pod \"other\" not found; the pods are it/pod"),
        (
            &["explain", "--probe", "liveness"],
            2,
            "no ExecSync of this run is recorded that matches --probe liveness",
        ),
        (&["explain", "--pod", "pods"], 2, "--pod \"pods\" not found, did you mean \"pod\"?"),
        (&["explain", "one"], 2, "invalid value 'one' for '[CALL]': must be the id of a call"),
        (&["events", "--since", "soon"], 2, "'soon' for '--since <DURATION>': must be a duration"),
    ] {
        let answer = place.ask(arguments).await;
        assert_eq!(answer.code, Some(code), "{arguments:?}: {answer:?}");
        assert!(answer.stderr.contains(told), "{arguments:?}: {answer:?}");
    }
    let count = async |filter: [&str; 2]| {
        let calls = place.ask(&[&["calls", "-o", "json"], &filter[..]].concat()).await.json();
        calls.as_array().unwrap().len()
    };
    for (filter, expected) in [
        (["--pod", "it/pod"], 1),
        (["--namespace", "it"], 1),
        (["--container", "main"], 1),
        (["--container", &container[..8]], 1),
        (["--probe", "unknown"], 1),
        (["--probe", "Liveness"], 0),
    ] {
        assert_eq!(count(filter).await, expected, "{filter:?}");
    }
    runtime.end().await;
}

#[tokio::test]
async fn the_phases_of_a_call_on_procrun_are_known_and_the_process_that_holds_its_output() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start_watching(&[]).await;
    // The first calls may come before the subscription to events.
    let phases = until(|| async {
        execute(&shim, &container, &["sh", "-c", "exit 3"]).await;
        let last = place.ask(&["explain", "--last", "-o", "json"]).await.json();
        let phases = last["call"]["exec"]["phases"].clone();
        (phases["state"] == "complete").then_some(phases)
    })
    .await;
    for phase in ["prepareMs", "startMs", "runMs", "drainMs"] {
        assert!(phases[phase].is_number(), "{phases}");
    }

    let command = ["sh", "-c", "sleep 1000 & echo $! > child; exit 0"];
    let holder = async {
        let child = runtime.file(&container, "child").await;
        until(|| async {
            let calls = place.ask(&["calls", "--in-flight", "-o", "json"]).await.json();
            let text = place.ask(&["explain", &calls[0]["id"].to_string()]).await.stdout;
            text.contains(&format!("Process {child} (sleep 1000)")).then_some(())
        })
        .await;
        kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    };
    tokio::join!(holder, execute(&shim, &container, &command));
    runtime.end().await;
}

/// The record of such a call waits for events that never come.
#[tokio::test]
async fn the_last_exec_sync_is_the_last_one_also_right_after_it_has_failed_at_once() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start_watching(&[]).await;
    execute(&shim, &container, &["true"]).await;
    for (container, program, code) in [("absent", "true", "NOT_FOUND"), (&container, "absent", "UNKNOWN")] {
        execute(&shim, container, &[program]).await;
        let last = place.ask(&["explain", "--last", "-o", "json"]).await.json();
        assert_eq!(last["call"]["code"], code, "{last}");
    }
    runtime.end().await;
}

#[tokio::test]
async fn the_last_exec_sync_is_the_one_in_flight_if_none_has_ended() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start(&[]).await;
    let explained = async {
        until_shown(&place, &["calls", "--in-flight"], |calls| calls.as_array()?.first().map(drop)).await;
        place.ask(&["explain", "--last"]).await.stdout
    };
    let explained = tokio::select! {
        () = execute(&shim, &container, &["sleep", "1000"]) => panic!("the command does not end"),
        explained = explained => explained,
    };
    assert!(explained.contains("The call is in flight for"), "{explained}");
    runtime.end().await;
}

#[tokio::test]
async fn call_records_survive_a_restart_of_probeshim() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let mut shim = place.start(&[]).await;
    execute(&shim, &container, &["true"]).await;
    execute(&shim, &container, &["false"]).await;
    let before = kept(&place, 2).await;
    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(0));
    let segment = place.at("state/calls/calls-v1-00000001.jsonl");
    assert_eq!(fs::metadata(&segment).unwrap().permissions().mode() & 0o777, 0o600);
    // A crash has left an incomplete last line.
    let mut torn = fs::read_to_string(&segment).unwrap();
    torn.push_str("{\"id\":3,\"start\":\"20");
    fs::write(&segment, torn).unwrap();

    let shim = place.start(&[]).await;
    assert_eq!(kept(&place, 2).await, before);
    let answer = place.ask(&["calls", "--method", "ExecSync"]).await;
    assert_eq!(answer.stdout, "no calls match, of 2 recorded calls; --all shows 2 calls of earlier runs\n");
    execute(&shim, &container, &["true"]).await;
    let after = kept(&place, 3).await;
    assert_eq!(place.ask(&["calls", "-o", "json"]).await.json(), json!([after[2]]));
    assert_eq!((&after[..2], &after[2]["id"]), (&before[..], &json!(3)), "{after:#?}");
    assert!(place.ask(&["explain", "2"]).await.stdout.contains("exited with code 1"));
    runtime.end().await;
}

#[tokio::test]
async fn call_records_of_another_version_are_set_aside_with_a_warning() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    fs::create_dir_all(place.at("state/calls")).unwrap();
    let old = place.at("state/calls/calls-v7-00000001.jsonl");
    fs::write(&old, "{}\n").unwrap();
    let shim = place.start(&[]).await;
    let message = "a file of another format version was set aside; probeshim starts without its data";
    let warning = shim.logged(message).await;
    let new = place.at("state/calls/calls-v7-00000001.jsonl.v7-set-aside-1");
    assert_eq!(
        (&warning["level"], &warning["version"], &warning["expected_version"]),
        (&json!("WARN"), &json!("7"), &json!(1)),
        "{warning}"
    );
    assert_eq!((&warning["path"], &warning["new_path"]), (&json!(old), &json!(new)), "{warning}");
    assert_eq!(shim.lines().iter().filter(|line| line["message"] == message).count(), 1);
    assert_eq!(fs::read_to_string(new).unwrap(), "{}\n");
    assert!(!old.exists());
    runtime.end().await;
}

#[tokio::test]
async fn an_invalid_annotation_is_reported_as_an_event() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut config = runtime.pod("typo");
    config.annotations.insert("probeshim.io/liveness.main".into(), r#"{"exec": {"command": "true"}}"#.into());
    let shim = place.start(&[]).await;
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    call(&shim, &[(&format!("{SERVICE}/RunPodSandbox"), request.encode_to_vec())]).await;
    let event = until_shown(&place, &["events"], |events| {
        events.as_array()?.iter().find(|event| event["reason"] == "InvalidAnnotation").cloned()
    });
    let event = event.await;
    let message =
        "annotation probeshim.io/liveness.main: exec.command: Invalid value: \"true\": must be a list";
    assert_eq!((&event["pod"], &event["message"]), (&json!("typo"), &json!(message)));
    assert!(shim.lines().iter().any(|line| line["message"] == message));
    runtime.end().await;
}

#[tokio::test]
async fn failed_call_records_are_logged_once_and_affect_no_call() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    // No directory can be created below a file.
    fs::write(place.at("state"), "").unwrap();
    let shim = place.start(&[]).await;
    for _ in 0..3 {
        execute(&shim, &container, &["true"]).await;
    }
    kept(&place, 3).await;
    let told =
        until_shown(&place, &["status"], |status| status["record"]["failure"].as_str().map(str::to_owned))
            .await;
    assert!(told.contains("directory"), "{told}");
    execute(&shim, &container, &["true"]).await;
    kept(&place, 4).await;
    let lines = shim.lines();
    let warned =
        lines.iter().filter(|line| line["message"].as_str().unwrap().starts_with("Calls are not recorded"));
    assert_eq!(warned.count(), 1);
    runtime.end().await;
}
