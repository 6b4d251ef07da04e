//! Fault rules of the program: its configuration file, its commands, and their errors.

use std::process::Command;

use fixtures::wait::soon;
use rustix::process::Signal;

use crate::program::Place;

/// Returns the names of the active rules.
async fn names(place: &Place) -> Vec<String> {
    let listed = place.ask(&["fault", "list", "-o", "json"]).await.json();
    listed.as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until exactly these rules are active.
async fn active(place: &Place, expected: &[&str]) {
    soon(async {
        while names(place).await != expected {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn config(rules: &[(&str, &str)]) -> String {
    let rules = rules.iter().map(|(name, rule)| format!("- {{name: {name}, for: 1h, rule: {rule:?}}}\n"));
    format!("faults:\n{}", rules.collect::<String>())
}

#[tokio::test]
async fn a_changed_configuration_replaces_its_fault_rules_all_or_none() {
    let place = Place::new();
    place.configure(&config(&[("one", "ExecSync: hang"), ("two", "Status: hang")]));
    let running = place.start(&["--fault", "Version name=own: hang"]).await;
    assert_eq!(names(&place).await, ["own", "one", "two"]);

    place.configure(&config(&[("two", "Status: hang"), ("three", "Exec: hang")]));
    active(&place, &["own", "two", "three"]).await;

    place.configure(&config(&[("four", "Exec: hang"), ("five", "Exec: sleep(1s)")]));
    let message = "fault rules and limits stay as they were, because the file has errors";
    soon(async {
        while !running
            .lines()
            .iter()
            .any(|line| line["message"].as_str().is_some_and(|it| it.starts_with(message)))
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(names(&place).await, ["own", "two", "three"]);

    place.configure("");
    active(&place, &["own"]).await;
}

#[tokio::test]
async fn sighup_reads_the_fault_rules_again() {
    let place = Place::new();
    place.configure(&config(&[("one", "ExecSync: hang")]));
    // A service is in a session without a terminal. In one with a terminal, the signal ends it.
    let mut command = Command::new("setsid");
    command.arg(env!("CARGO_BIN_EXE_probeshim"));
    command.args(place.command("shim.sock", &[]).get_args());
    let running = place.spawn(&mut command).await;
    running.signal(Signal::HUP);
    running.logged("fault rules and limits of the configuration file are active").await;
    assert_eq!(names(&place).await, ["one"]);
}

#[tokio::test]
async fn commands_for_fault_rules_report_each_mistake_with_exit_code_2() {
    let place = Place::new();
    let _running = place.start(&[]).await;
    for (arguments, expected) in [
        (&["fault", "add", "ExecSnyc: hang", "--for", "1m"][..], "did you mean \"ExecSync\"?"),
        (&["fault", "add", "ExecSync: hang"], "--for <DURATION>"),
        (&["fault", "add", "*: hang", "--for", "1m"], "would select every call of every client"),
        (&["fault", "add", "ExecSync: hang", "--for", "1m", "--name", "a b"], "must be a name of 1 to 63"),
        (&["fault", "add", "-f", "/nonexistent.yaml"], "/nonexistent.yaml"),
        (&["fault", "add", "Cargo.toml"], "RULE \"Cargo.toml\" is a file; use -f Cargo.toml"),
        (&["fault", "clear", "other"], "is no active rule: there are none"),
        (&["fault", "plan", "* client=crictl: refuse"], "refuses connections, which are not recorded"),
    ] {
        let answer = place.ask(arguments).await;
        assert!(answer.code == Some(2) && answer.stderr.contains(expected), "{arguments:?}: {answer:?}");
    }
    let added = place.ask(&["fault", "add", "*: hang", "--all", "--for", "1m"]).await;
    assert!(added.stdout.starts_with("fault fault-1 is active, and ends in"), "{added:?}");
    let again = place.ask(&["fault", "add", "Exec: hang", "--name", "fault-1", "--for", "1m"]).await;
    assert!(again.stderr.contains("is the name of an active rule"), "{again:?}");
    let file = place.at("rules.yaml");
    std::fs::write(&file, config(&[("one", "ExecSync: hang"), ("two", "Status: hang")])).unwrap();
    let added = place.ask(&["fault", "add", "-f", file.to_str().unwrap()]).await;
    assert_eq!((added.code, names(&place).await.len()), (Some(0), 3), "{added:?}");
    let cleared = place.ask(&["fault", "clear"]).await;
    assert_eq!(cleared.stdout.lines().count(), 3, "{cleared:?}");
    assert_eq!(place.ask(&["fault", "list"]).await.stdout, "no fault rule is active\n");
}
