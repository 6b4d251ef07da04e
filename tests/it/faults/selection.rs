//! The calls that rules select, and calls that pass although rules look at them.

use bytes::Bytes;
use fixtures::http2::client::head;
use fixtures::http2::{answered, framed, is_served, read_all, request, send_all};
use fixtures::wait::soon;
use probeshim::cri::v1;
use probeshim::policy::{FaultRule, RuleSource};

use super::{EXEC_SYNC, Faulty, STATUS, exec_request, exec_response, fine, message, outcome};

#[tokio::test]
async fn calls_of_probeshim_itself_are_selected_only_by_its_name() {
    let rules = ["ExecSync: abort(UNKNOWN)", "Status client=*: abort(UNKNOWN)", "Version client=other: hang"];
    let mut faulty = Faulty::with(&rules).await;
    let response = faulty.exec();
    faulty.answer(&exec_request(), exec_response(0)).await;
    assert_eq!(answered(response).await, exec_response(0));
    let asked = message(&v1::StatusRequest { verbose: false });
    let response = faulty.client.call(STATUS, asked.clone());
    faulty.answer(&asked, Bytes::from_static(b"\0\0\0\0\0")).await;
    assert_eq!(outcome(response).await.1, fine());
    assert_eq!(faulty.marks(2).await, ["", ""]);
}

#[tokio::test]
async fn a_rule_affects_only_its_method() {
    let mut faulty = Faulty::with(&["StopContainer client=probeshim: hang"]).await;
    let response = faulty.exec();
    faulty.answer(&exec_request(), exec_response(0)).await;
    assert_eq!(answered(response).await, exec_response(0));
    is_served(&mut faulty.client, &mut faulty.connection).await;
    assert_eq!(faulty.rules.list()[0].hits, 0);
}

#[tokio::test]
async fn a_rule_for_a_command_affects_only_that_command() {
    let mut faulty = Faulty::with(&["ExecSync client=probeshim command='^pg_isready -U ': exit(1)"]).await;
    let exec = |command: &[&str]| {
        let cmd = command.iter().map(ToString::to_string).collect();
        message(&v1::ExecSyncRequest { container_id: "c0".into(), cmd, timeout: 0 })
    };
    let response = faulty.client.call(EXEC_SYNC, exec(&["pg_isready", "-U", "x"]));
    assert_eq!(
        outcome(response).await.0,
        message(&v1::ExecSyncResponse { exit_code: 1, ..Default::default() })
    );
    let other = exec(&["sh", "-c", "pg_isready -U x"]);
    let response = faulty.client.call(EXEC_SYNC, other.clone());
    faulty.answer(&other, exec_response(0)).await;
    assert_eq!(answered(response).await, exec_response(0));
}

#[tokio::test]
async fn a_command_of_more_than_4_kib_matches_no_pattern_and_is_counted() {
    let rules = [
        "ExecSync client=probeshim command=a: exit(1)",
        "ExecSync client=other command=a: exit(1)",
        "ExecSync client=probeshim at=after: exit(3)",
    ];
    let mut faulty = Faulty::with(&rules).await;
    let exec = |command: Vec<String>| {
        message(&v1::ExecSyncRequest { container_id: "c0".into(), cmd: command, timeout: 0 })
    };
    let exited = |exit_code| message(&v1::ExecSyncResponse { exit_code, ..Default::default() });
    // The longest command, one that is longer by a byte, and one with more arguments than a rule
    // reads on the relay's thread.
    let longest = faulty.client.call(EXEC_SYNC, exec(vec!["a".repeat(4096)]));
    assert_eq!(outcome(longest).await.0, exited(1));
    for command in [vec!["a".repeat(4097)], vec!["a".to_owned(); 50_000]] {
        let request = exec(command);
        let response = faulty.client.call(EXEC_SYNC, request.clone());
        faulty.answer(&request, exec_response(0)).await;
        assert_eq!(answered(response).await, exited(3));
    }
    let listed = faulty.rules.list();
    let counts: Vec<(u64, u64)> = listed.iter().map(|rule| (rule.hits, rule.long_commands)).collect();
    assert_eq!(counts, [(1, 2), (0, 0), (3, 0)]);
}

#[tokio::test]
async fn every_rule_among_hundreds_with_patterns_decides_by_its_own() {
    // Together they take more steps than the relay's thread takes for a call.
    let texts: Vec<String> =
        (0..600).map(|number| format!("ExecSync client=probeshim command=x{number}$: delay(0s)")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut faulty = Faulty::with(&texts).await;
    let cmd = vec!["a".repeat(4000), "x577".to_owned()];
    let request = message(&v1::ExecSyncRequest { container_id: "c0".into(), cmd, timeout: 0 });
    let response = faulty.client.call(EXEC_SYNC, request.clone());
    faulty.answer(&request, exec_response(0)).await;
    assert_eq!(answered(response).await, exec_response(0));
    let hit = faulty.rules.list().into_iter().filter(|rule| rule.hits > 0).map(|rule| rule.name);
    assert_eq!(hit.collect::<Vec<_>>(), ["rule-578"]);
}

#[tokio::test]
async fn the_last_of_several_rules_for_a_call_applies_too() {
    let rules = [
        "ExecSync client=probeshim: set(request.timeout=5)",
        "ExecSync client=probeshim at=after: exit(3)",
        "ExecSync client=probeshim: delay(1ms)",
    ];
    let mut faulty = Faulty::with(&rules).await;
    let response = faulty.exec();
    let changed = v1::ExecSyncRequest { container_id: "c0ffee".into(), cmd: vec!["true".into()], timeout: 5 };
    faulty.answer(&message(&changed), exec_response(0)).await;
    assert_eq!(
        outcome(response).await.0,
        message(&v1::ExecSyncResponse { exit_code: 3, ..Default::default() })
    );
    assert_eq!(faulty.marks(1).await, ["rule-1 set(request.timeout=5), rule-2 exit(3), rule-3 delay(1ms)"]);
}

/// A rule that looks at each ExecSync, and affects none.
const LOOKS: &str = "ExecSync client=probeshim pod=nobody: hang";

#[tokio::test]
async fn messages_of_any_size_pass_a_rule_that_does_not_affect_them() {
    let mut faulty = Faulty::with(&[LOOKS]).await;
    for size in [0, 1, 70_000, 300_000, 5 << 20, 17 << 20] {
        let payload = framed(false, &vec![7; size]);
        let (response, mut body) = faulty.client.start(request(EXEC_SYNC), false);
        let sent = payload.clone();
        let sending = tokio::spawn(async move { send_all(&mut body, sent, true).await });
        let mut call = faulty.connection.call().await;
        assert!(call.body().await == payload, "{size}");
        sending.await.unwrap().unwrap();
        let mut answer = call.respond.send_response(fixtures::http2::runtime::ok(), false).unwrap();
        let returned = payload.clone();
        let sending = tokio::spawn(async move {
            send_all(&mut answer, returned, false).await.unwrap();
            answer.send_trailers(fixtures::http2::headers(&[("grpc-status", "0"), ("odd", "x")])).unwrap();
        });
        let (_, mut body) = head(response).await;
        let (data, trailers) = read_all(&mut body).await.unwrap();
        sending.await.unwrap();
        assert!(data == payload, "{size}");
        assert_eq!(trailers.unwrap()["odd"], "x");
    }
}

#[tokio::test]
async fn requests_in_parts_pass_a_rule_that_does_not_affect_them() {
    let mut faulty = Faulty::with(&[LOOKS]).await;
    // The end of the stream arrives after the message, and an early end is no message.
    for (parts, is_whole) in
        [(vec![&b"\0\0\0"[..], b"\0\x03a", b"b", b"c"], true), (vec![b"\0\0"], false), (vec![], false)]
    {
        let (response, mut body) = faulty.client.start(request(EXEC_SYNC), false);
        for part in &parts {
            body.send_data(Bytes::copy_from_slice(part), false).unwrap();
        }
        body.send_data(Bytes::new(), true).unwrap();
        let mut call = faulty.connection.call().await;
        assert_eq!(call.body().await, parts.concat());
        call.answer("answer");
        assert_eq!(answered(response).await, "answer", "{is_whole}");
    }
}

#[tokio::test]
async fn a_client_that_cancels_while_rules_look_at_its_request_is_gone() {
    let mut faulty = Faulty::with(&[LOOKS]).await;
    let (response, mut body) = faulty.client.start(request(EXEC_SYNC), false);
    body.send_data(Bytes::from_static(b"\0\0\0\0\x09half"), false).unwrap();
    drop((response, body));
    let call = faulty.shim.seen(1).await.remove(0);
    assert_eq!(call.ending.label(), "client-reset");
    is_served(&mut faulty.client, &mut faulty.connection).await;
}

#[tokio::test]
async fn a_name_that_an_active_rule_has_is_refused() {
    let faulty = Faulty::with(&["ExecSync: hang", "Status: hang"]).await;
    let again = FaultRule::parse("rule-1", "Version: hang", None, false).unwrap();
    let new = FaultRule::parse("new", "Version: hang", None, false).unwrap();
    let error = faulty.rules.add(vec![new, again], RuleSource::Command, "the test").unwrap_err();
    assert!(error.to_string().contains("\"rule-1\" is the name of an active rule"), "{error}");
    let error = faulty.rules.clear(&["rule-2".to_owned(), "rule-9".to_owned()], "the test").unwrap_err();
    assert_eq!(error.to_string(), "name \"rule-9\" is no active rule; active are rule-1, rule-2");
    assert_eq!(faulty.rules.list().len(), 2, "an error changes nothing");
    let ended = soon(async { faulty.rules.clear(&[], "the test") }).await.unwrap();
    assert_eq!(ended.len(), 2);
    assert!(faulty.rules.list().is_empty());
}
