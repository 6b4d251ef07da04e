//! The web page at the public address: its files, its answers, what it hides, and its updates.

use probeshim::cri::v1::ExecSyncRequest;
use prost::Message as _;
use serde_json::Value;

use super::{SERVICE, after_three_calls, call, exchange, get, public_address};
use crate::procrun::{Runtime, until};
use crate::program::Place;

/// Returns the JSON of an answer.
fn json_of(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// Returns the error of a refused request.
fn error_of(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400") || head.starts_with("HTTP/1.1 404"), "{answer}");
    serde_json::from_str::<Value>(body).unwrap()["error"].as_str().unwrap().to_owned()
}

/// Reads updates after an id until one of a kind arrives. Returns their text.
async fn updates(address: &str, after: &str, kind: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /page/updates?after={after} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let mut chunk = [0; 4096];
    while !text.contains(&format!("event: {kind}\n")) {
        let count = fixtures::wait::soon(stream.read(&mut chunk)).await.unwrap();
        assert!(count > 0, "{text}");
        text.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
    }
    text
}

/// Returns the messages of a kind, with the id of the last of them.
fn messages(text: &str, kind: &str) -> (Vec<Value>, String) {
    let mut found = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(id) = line.strip_prefix("id: ") else { continue };
        if lines.next() != Some(&format!("event: {kind}")) {
            continue;
        }
        let data = lines.next().unwrap().strip_prefix("data: ").unwrap();
        found.0.push(serde_json::from_str(data).unwrap());
        id.clone_into(&mut found.1);
    }
    found
}

#[tokio::test]
async fn a_browser_gets_the_page_and_other_programs_the_list_of_paths() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    let request = async |headers: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {http}\r\n{headers}Connection: close\r\n\r\n");
        exchange(&http, &request).await
    };
    assert!(request("").await.contains("/metrics/probes"), "the list of paths");
    let page = request("Accept: text/html,*/*;q=0.8\r\n").await;
    assert!(page.contains("content-type: text/html"), "{page}");
    let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'";
    assert!(page.contains(policy), "{page}");
    for (name, kind) in [("main.js", "text/javascript"), ("page.css", "text/css")] {
        assert!(page.contains(&format!("/page/{name}")), "the page refers to {name}");
        let file = get(&http, &format!("/page/{name}")).await;
        assert!(file.starts_with("HTTP/1.1 200") && file.contains(kind), "{file}");
        // Every script that a file imports exists.
        for import in file.split("from './").skip(1).filter_map(|rest| rest.split_once('\'')) {
            assert!(
                get(&http, &format!("/page/{}", import.0)).await.starts_with("HTTP/1.1 200"),
                "{}",
                import.0
            );
        }
    }
    assert_eq!(error_of(&get(&http, "/page/secret.js").await), "no such path");
}

#[tokio::test]
async fn a_browser_that_has_a_file_does_not_get_it_again() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    let first = get(&http, "/page/main.js").await;
    let tag = first.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let request = |tag: &str| {
        format!(
            "GET /page/main.js HTTP/1.1\r\nHost: {http}\r\nIf-None-Match: {tag}\r\nConnection: close\r\n\r\n"
        )
    };
    assert!(exchange(&http, &request(tag)).await.starts_with("HTTP/1.1 304 "));
    assert!(exchange(&http, &request("\"other\"")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn the_page_answers_only_loopback_hosts_and_changes_nothing() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    for path in
        ["/", "/page/main.js", "/page/view", "/page/calls", "/page/calls/1", "/page/events", "/page/updates"]
    {
        for (method, host, status) in [
            ("GET", "evil.test", "HTTP/1.1 403 Forbidden"),
            ("POST", "localhost", "HTTP/1.1 405 Method Not Allowed"),
            ("PUT", "localhost", "HTTP/1.1 405 Method Not Allowed"),
            ("DELETE", "localhost", "HTTP/1.1 405 Method Not Allowed"),
        ] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = exchange(&http, &request).await;
            assert_eq!(answer.lines().next(), Some(status), "{method} {path} {host}");
        }
    }
}

#[tokio::test]
async fn commands_and_output_are_shown_only_with_http_pods() {
    for shows in [false, true] {
        let place = Place::new();
        let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
        let container = runtime.runs("sleep 1000").await;
        // The output that the rule gives a command is a secret too.
        let fault = "ExecSync command=.*rule-s3cret.*: 1*off -> exit(1, output-s3cret)";
        let shim = place
            .start(&[["--fault", fault].as_slice(), if shows { &["--http-pods"] } else { &[] }].concat())
            .await;
        let cmd = ["sh", "-c", "exit 3", "rule-s3cret"].map(str::to_owned).into();
        let exec = ExecSyncRequest { container_id: container, cmd, timeout: 2 }.encode_to_vec();
        let path = format!("{SERVICE}/ExecSync");
        let pause = place.ask(&["pause", "label.tier=label-s3cret", "--for", "10m"]).await;
        assert_eq!(pause.code, Some(0), "{pause:?}");
        let before = json_of(&get(&public_address(&shim).await, "/page/context").await)["updates"].clone();
        call(&shim, &[(&path, exec.clone()), (&path, exec)]).await;
        let http = public_address(&shim).await;
        let calls = until(async || {
            let calls = json_of(&get(&http, "/page/calls").await)["calls"].as_array().unwrap().clone();
            (calls.len() == 2).then_some(calls)
        });
        let ids = calls.await.iter().map(|call| call["id"].as_u64().unwrap()).collect::<Vec<_>>();
        let view = until(async || {
            let view = get(&http, "/page/view").await;
            (json_of(&view)["totals"]["attempts"] == 2).then_some(view)
        });
        let mut answers = vec![view.await];
        for path in
            ["/page/calls".to_owned(), format!("/page/calls/{}", ids[0]), format!("/page/calls/{}", ids[1])]
        {
            answers.push(get(&http, &path).await);
        }
        answers.push(get(&http, "/page/events").await);
        answers.push(updates(&http, before.as_str().unwrap(), "state").await);
        assert_eq!(json_of(&answers[0])["showsCommands"], shows);
        for secret in ["rule-s3cret", "output-s3cret", "label-s3cret"] {
            assert_eq!(answers.iter().any(|answer| answer.contains(secret)), shows, "{secret}");
        }
        assert!(answers[2].contains("code 3"), "{}", answers[2]);
        assert!(answers[3].contains("exit"), "the kind of the fault is shown: {}", answers[3]);
        runtime.end().await;
    }
}

#[tokio::test]
async fn an_invalid_query_names_the_field_the_value_and_what_is_allowed() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    let http = public_address(&watched.shim).await;
    for (path, error) in [
        ("/page/view?since=yesterday", "since \"yesterday\" must be a duration up to 366 days"),
        ("/page/view?since=1m&until=2m", "since must be before until"),
        ("/page/calls?code=NONE", "code \"NONE\" must be a gRPC code"),
        ("/page/calls?method=ExecSink", "method \"ExecSink\" must be a method of the CRI"),
        ("/page/calls?probe=lively", "probe \"lively\" must be one of"),
        ("/page/calls?last=1&slowest=1", "last and slowest exclude each other"),
        ("/page/calls?pid=1", "unknown field `pid`"),
        ("/page/calls/x", "the id of a call must be a number"),
        ("/page/calls/4711", "call 4711 is neither in memory nor"),
        ("/page/updates?after=x", "after \"x\" must be the id of an update"),
    ] {
        let answer = error_of(&get(&http, path).await);
        assert!(answer.contains(error), "{path}: {answer}");
    }
    watched.runtime.end().await;
}

#[tokio::test]
async fn a_list_that_a_filter_empties_says_so() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    let http = public_address(&watched.shim).await;
    for things in ["calls", "events"] {
        let all = json_of(&get(&http, &format!("/page/{things}")).await);
        assert_eq!(all["emptyBecause"].is_null(), !all[things].as_array().unwrap().is_empty(), "{all}");
        let none = json_of(&get(&http, &format!("/page/{things}?pod=nope")).await);
        assert_eq!(none[things], Value::from(Vec::<String>::new()));
        let reason = none["emptyBecause"].as_str().unwrap();
        assert!(reason.starts_with(&format!("No {things} match")), "{reason}");
    }
    watched.runtime.end().await;
}

#[tokio::test]
async fn a_browser_that_reconnects_gets_each_result_that_it_has_missed() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    let http = public_address(&watched.shim).await;
    let context = json_of(&get(&http, "/page/context").await);
    let first = context["updates"].as_str().unwrap();
    let cmd = vec!["true".to_owned()];
    let exec = ExecSyncRequest { container_id: watched.container.clone(), cmd, timeout: 2 }.encode_to_vec();
    let path = format!("{SERVICE}/ExecSync");
    call(&watched.shim, &[(&path, exec.clone()), (&path, exec.clone())]).await;
    // No browser was connected during these two calls.
    let mut results = Vec::new();
    let mut last = first.to_owned();
    while results.len() < 2 {
        let (messages, id) = messages(&updates(&http, &last, "results").await, "results");
        results.extend(messages.into_iter().flat_map(|message| message.as_array().unwrap().clone()));
        last = id;
    }
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(
        results
            .iter()
            .all(|result| result["result"] == "success" && result["container"] == watched.container.as_str()),
        "{results:?}"
    );
    // The next request has only what follows.
    call(&watched.shim, &[(&path, exec)]).await;
    let (third, _) = messages(&updates(&http, &last, "results").await, "results");
    assert_eq!(third[0].as_array().unwrap().len(), 1, "{third:?}");
    // An id of another run means that everything must be loaded again.
    assert!(updates(&http, "1-2-3", "missed").await.contains("has restarted"));
    watched.runtime.end().await;
}
