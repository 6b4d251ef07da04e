//! Sentences of `explain` about recorded calls, word for word. After a change, run
//! `INSTA_UPDATE=always cargo test --test it explain` and review the diff.

use std::fmt::Write as _;
use std::time::Duration;

use probeshim::cri::MethodName;
use probeshim::execsync::{CallRecord, ContainerStop, ExecVerdict, ProbeMatch, explain, explain_with_stop};
use probeshim::history::json::Call;
use serde::Deserialize;

/// A call record and the property that makes it a test case.
#[derive(Deserialize)]
struct Case {
    name: String,
    call: Call,
}

#[test]
fn explain_has_sentences_for_every_case() {
    let mut said = String::new();
    for line in include_str!("explain.jsonl").lines() {
        let Case { name, call } = serde_json::from_str(line).unwrap();
        let record = CallRecord::try_from(call).unwrap();
        writeln!(said, "# {name}").unwrap();
        for sentence in explain(&record) {
            writeln!(said, "{sentence}").unwrap();
        }
        said.push('\n');
    }
    insta::assert_snapshot!(said);
}

/// Returns the first record of a failed attempt of a liveness probe.
fn failed_liveness_probe() -> CallRecord {
    let records = include_str!("explain.jsonl").lines().map(|line| {
        let Case { call, .. } = serde_json::from_str(line).unwrap();
        CallRecord::try_from(call).unwrap()
    });
    let is_it = |record: &CallRecord| {
        let identity = record.analysis.as_deref().map(|analysis| &analysis.identity);
        let is_liveness = matches!(identity, Some(ProbeMatch::Matched { uses, period: Some(_), .. })
            if uses.iter().any(|used| used.name() == "liveness"));
        is_liveness && ExecVerdict::from_record(record) == Some(ExecVerdict::Failure)
    };
    records.into_iter().find(is_it).unwrap()
}

#[test]
fn the_last_failed_attempt_before_a_kill_names_it_without_the_command() {
    let record = failed_liveness_probe();
    let stop = |message: &str, later| ContainerStop {
        message: message.to_owned(),
        at: record.call.start + record.call.duration + later,
        exit_code: Some(137),
    };
    let killed =
        "Container main failed liveness probe, and the kubelet stopped it (3 failures in a row): cat secret";
    let soon = stop(killed, Duration::from_millis(12));
    assert!(soon.is_shown_by(&record));
    let expected = "The container was stopped 12.0ms later: Container main failed liveness probe, and the kubelet \
                    stopped it (3 failures in a row).";
    assert!(explain_with_stop(&record, Some(&soon)).iter().any(|sentence| sentence == expected));
    assert!(!stop(killed, Duration::from_secs(3600)).is_shown_by(&record), "another attempt came later");
    assert!(!stop("Stopping container main", Duration::ZERO).is_shown_by(&record), "the pod was deleted");
}

#[test]
fn the_stop_of_a_container_names_its_reason_and_the_exit_of_the_container() {
    let mut record = failed_liveness_probe();
    let call = std::sync::Arc::make_mut(&mut record.call);
    call.method = MethodName::of_path("/runtime.v1.RuntimeService/StopContainer");
    call.exec = None;
    record.analysis = None;
    let at = record.call.start;
    let stop = ContainerStop { message: "Stopping container main".to_owned(), at, exit_code: Some(137) };
    assert!(stop.is_shown_by(&record));
    let sentences = explain_with_stop(&record, Some(&stop));
    let expected =
        ["The event of this stop: Stopping container main.", "The container exited with code 137 (SIGKILL)."];
    assert!(sentences.ends_with(&expected.map(str::to_owned)), "{sentences:#?}");
}
