//! The actions of rules on calls with one request and one response.

use std::time::Duration;

use bytes::Bytes;
use fixtures::http2::client::head;
use fixtures::http2::{answered, framed, is_served};
use fixtures::wait::soon;
use h2::Reason;
use probeshim::cri::v1;
use probeshim::policy::{FaultRule, RuleSource};
use probeshim::relay::CallOutcome;
use prost::Message;

use super::{EXEC_SYNC, Faulty, STATUS, exec_request, exec_response, fine, message, outcome};

#[tokio::test]
async fn a_call_is_aborted_before_the_runtime_sees_it() {
    let rule = "ExecSync client=probeshim: 1*abort(UNAVAILABLE, 'gone, 100%', AAE=) -> off";
    let mut faulty = Faulty::with(&[rule]).await;
    let (data, status) = outcome(faulty.exec()).await;
    assert!(data.is_empty());
    assert_eq!(status, [Some("14".to_owned()), Some("gone,%20100%25".to_owned()), Some("AAE".to_owned())]);
    // The next call is the first that the runtime sees.
    let response = faulty.exec();
    faulty.answer(&exec_request(), exec_response(0)).await;
    assert_eq!(outcome(response).await, (exec_response(0), fine()));
    assert_eq!(faulty.marks(2).await, ["rule-1 abort(UNAVAILABLE, 'gone, 100%', AAE=)", ""]);
    let calls = faulty.shim.seen(2).await;
    assert_eq!(
        (calls[0].ending.to_string(), calls[0].message.as_deref()),
        ("UNAVAILABLE".to_owned(), Some("gone, 100%"))
    );
    assert_eq!(calls[0].exec.as_ref().unwrap().command, ["true"], "the request is recorded");
}

#[tokio::test]
async fn a_response_is_lost_after_the_runtime_has_executed_the_call() {
    let mut faulty = Faulty::with(&["ExecSync client=probeshim at=after: abort(DEADLINE_EXCEEDED)"]).await;
    let response = faulty.exec();
    faulty.answer(&exec_request(), exec_response(0)).await;
    let (data, status) = outcome(response).await;
    assert_eq!((data, status[0].as_deref()), (Bytes::new(), Some("4")));
    assert_eq!(faulty.marks(1).await, ["rule-1 abort(DEADLINE_EXCEEDED)"]);
}

#[tokio::test]
async fn a_delayed_call_takes_as_long_as_its_delay() {
    let delay = Duration::from_millis(80);
    for place in ["before", "after"] {
        let rule = format!("ExecSync client=probeshim at={place}: delay(80ms)");
        let mut faulty = Faulty::with(&[&rule]).await;
        let response = faulty.exec();
        faulty.answer(&exec_request(), exec_response(3)).await;
        assert_eq!(outcome(response).await, (exec_response(3), fine()));
        let call = faulty.shim.seen(1).await.remove(0);
        assert!(call.duration >= delay, "{place}: {:?}", call.duration);
        assert_eq!(super::marks(&call), "rule-1 delay(80ms)");
    }
}

#[tokio::test]
async fn a_call_hangs_until_its_client_gives_up() {
    let mut faulty = Faulty::with(&["ExecSync client=probeshim: hang"]).await;
    let response = faulty.exec();
    faulty.has_hit().await;
    drop(response);
    let call = faulty.shim.seen(1).await.remove(0);
    assert_eq!(call.ending, CallOutcome::ClientReset(Reason::CANCEL));
    assert_eq!(super::marks(&call), "rule-1 hang");
    is_served(&mut faulty.client, &mut faulty.connection).await;
}

#[tokio::test]
async fn a_call_hangs_until_its_rule_is_cleared() {
    for place in ["before", "after"] {
        let rule = format!("ExecSync client=probeshim at={place}: hang");
        let mut faulty = Faulty::with(&[&rule]).await;
        let response = faulty.exec();
        if place == "after" {
            faulty.answer(&exec_request(), exec_response(0)).await;
        }
        faulty.has_hit().await;
        faulty.rules.clear(&["rule-1".to_owned()], "the test").unwrap();
        if place == "before" {
            faulty.answer(&exec_request(), exec_response(0)).await;
        }
        assert_eq!(outcome(response).await, (exec_response(0), fine()), "{place}");
    }
}

#[tokio::test]
async fn a_call_hangs_no_longer_than_its_rule_lives() {
    let rule = "ExecSync client=probeshim: hang";
    let mut faulty = Faulty::for_a_while(&[rule], Some(Duration::from_millis(50))).await;
    let response = faulty.exec();
    faulty.answer(&exec_request(), exec_response(0)).await;
    assert_eq!(outcome(response).await, (exec_response(0), fine()));
    soon(async {
        while !faulty.rules.list().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_connection_is_dropped_with_all_its_calls() {
    for place in ["before", "after"] {
        let rule = format!("ExecSync client=probeshim at={place}: drop");
        let mut faulty = Faulty::with(&[&rule]).await;
        let other = faulty.client.ask("/a.B/C");
        let _other_call = faulty.connection.call().await;
        let response = faulty.exec();
        if place == "after" {
            faulty.answer(&exec_request(), exec_response(0)).await;
        }
        assert!(soon(response).await.is_err());
        assert!(soon(other).await.is_err());
        let _ = faulty.client.closed().await;
        let calls = faulty.shim.seen(2).await;
        for call in &calls {
            assert_eq!(call.ending, CallOutcome::ConnectionLost, "{place}");
        }
        assert_eq!(calls.iter().filter(|call| call.marks.is_some()).count(), 1);
        // The next connection is served.
        let (mut client, mut connection) =
            soon(async { tokio::join!(faulty.shim.client(), faulty.runtime.accept()) }).await;
        is_served(&mut client, &mut connection).await;
    }
}

#[tokio::test]
async fn a_client_receives_goaway_and_its_call_is_refused() {
    let mut faulty = Faulty::with(&["ExecSync client=probeshim: goaway"]).await;
    let error = soon(faulty.exec()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
    faulty.client.told_to_leave().await;
    let call = faulty.shim.seen(1).await.remove(0);
    assert_eq!((call.ending, super::marks(&call)), (CallOutcome::Refused, "rule-1 goaway".to_owned()));
}

#[tokio::test]
async fn connections_are_refused_until_the_rule_is_cleared() {
    let faulty = Faulty::with(&["* client=crictl: refuse"]).await;
    faulty.rules.clear(&[], "the test").unwrap();
    let rule = FaultRule::parse("refuse", "* client=probeshim first=2: refuse", None, false).unwrap();
    faulty.rules.add(vec![rule], RuleSource::Command, "the test").unwrap();
    for _ in 0..2 {
        let stream = faulty.shim.connect().await;
        soon(stream.readable()).await.unwrap();
        assert!(fixtures::http2::client::Client::try_over(stream).await.is_err());
    }
    let (mut client, mut connection) =
        soon(async { tokio::join!(faulty.shim.client(), faulty.runtime.accept()) }).await;
    is_served(&mut client, &mut connection).await;
    assert_eq!(faulty.rules.list()[0].hits, 2);
}

#[tokio::test]
async fn an_exec_sync_is_answered_with_an_exit_code_with_or_without_running_it() {
    let replaced =
        message(&v1::ExecSyncResponse { exit_code: 7, stdout: b"out".into(), stderr: b"no route".into() });
    for place in ["before", "after"] {
        let rule = format!("ExecSync client=probeshim at={place}: exit(7, out, 'no route')");
        let mut faulty = Faulty::with(&[&rule]).await;
        let response = faulty.exec();
        if place == "after" {
            faulty.answer(&exec_request(), exec_response(0)).await;
        }
        assert_eq!(outcome(response).await, (replaced.clone(), fine()), "{place}");
        let call = faulty.shim.seen(1).await.remove(0);
        assert_eq!(call.exec.as_ref().unwrap().result.unwrap().exit_code, 7, "{place}");
        assert_eq!(super::marks(&call), "rule-1 exit(7, out, 'no route')");
    }
}

#[tokio::test]
async fn single_fields_of_requests_and_responses_are_changed() {
    let rules = [
        "ExecSync client=probeshim: set(request.timeout=9)+remove(request.cmd[0])",
        "Status client=probeshim: set(response.status.conditions[1].status=false)",
    ];
    let mut faulty = Faulty::with(&rules).await;
    // The request and the response have a field that the CRI does not define.
    let unknown = [0xf8, 0x3f, 0x07];
    let request =
        v1::ExecSyncRequest { container_id: "c0".into(), cmd: vec!["a".into(), "b".into()], timeout: 1 };
    let sent = framed(false, &[&*request.encode_to_vec(), &unknown].concat());
    let response = faulty.client.call(EXEC_SYNC, sent);
    let expected = v1::ExecSyncRequest { container_id: "c0".into(), cmd: vec!["b".into()], timeout: 9 };
    let expected = framed(false, &[&*expected.encode_to_vec(), &unknown].concat());
    faulty.answer(&expected, exec_response(0)).await;
    assert_eq!(answered(response).await, exec_response(0));

    let condition = |status| v1::RuntimeCondition { r#type: "x".into(), status, ..Default::default() };
    let status = |second| v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions: vec![condition(true), condition(second)] }),
        ..Default::default()
    };
    let with_unknown = |second| framed(false, &[&*status(second).encode_to_vec(), &unknown].concat());
    let asked = message(&v1::StatusRequest { verbose: true });
    let response = faulty.client.call(STATUS, asked.clone());
    faulty.answer(&asked, with_unknown(true)).await;
    assert_eq!(outcome(response).await, (with_unknown(false), fine()));
    assert_eq!(
        faulty.marks(2).await,
        [
            "rule-1 set(request.timeout=9), rule-1 remove(request.cmd[0])",
            "rule-2 set(response.status.conditions[1].status=false)"
        ]
    );
}

#[tokio::test]
async fn a_field_that_a_message_does_not_have_leaves_it_unchanged() {
    let mut faulty = Faulty::with(&["ExecSync client=probeshim: remove(request.cmd[5])"]).await;
    let response = faulty.exec();
    faulty.answer(&exec_request(), exec_response(0)).await;
    assert_eq!(answered(response).await, exec_response(0));
    assert_eq!(faulty.marks(1).await, [""]);
}

#[tokio::test]
async fn an_error_of_the_runtime_passes_a_rule_for_its_response() {
    let mut faulty = Faulty::with(&["ExecSync client=probeshim: set(response.exit_code=1)"]).await;
    let response = faulty.exec();
    let mut call = faulty.connection.call().await;
    let error =
        http::Response::builder().header("grpc-status", "5").header("grpc-message", "no such").body(());
    call.respond.send_response(error.unwrap(), true).unwrap();
    let (head, _) = head(response).await;
    assert_eq!(super::status(head.headers())[..2], ["5", "no such"].map(|text| Some(text.to_owned())));
    assert_eq!(faulty.shim.seen(1).await[0].ending.to_string(), "NOT_FOUND");
}

#[tokio::test]
async fn an_end_that_was_planned_is_left_out_once_the_rule_has_ended() {
    for rule in [
        "ExecSync client=probeshim: hang+abort(UNKNOWN)",
        "ExecSync client=probeshim at=after: hang+abort(UNKNOWN)",
    ] {
        let mut faulty = Faulty::with(&[rule]).await;
        let response = faulty.exec();
        faulty.has_hit().await;
        faulty.rules.clear(&[], "the test").unwrap();
        faulty.answer(&exec_request(), exec_response(0)).await;
        assert_eq!(outcome(response).await, (exec_response(0), fine()), "{rule}");
    }
}
