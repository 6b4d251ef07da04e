//! Commands of clients that belong to no known probe: `probes` in the mode `off`, and the flags of
//! `calls` that select them.

use probeshim::cri::v1::ExecSyncRequest;
use prost::Message as _;
use serde_json::{Value, json};

use super::{SERVICE, call, kept, until_shown};
use crate::procrun::Runtime;
use crate::program::{Place, Running};

async fn execute(shim: &Running, container: &str, script: &str, timeout: i64) {
    let cmd = ["sh", "-c", script].map(str::to_owned).into();
    let request = ExecSyncRequest { container_id: container.to_owned(), cmd, timeout };
    call(shim, &[(&format!("{SERVICE}/ExecSync"), request.encode_to_vec())]).await;
}

#[tokio::test]
async fn each_command_of_a_container_has_a_row_with_its_own_result_and_its_own_calls() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start_watching(&[]).await;
    until_shown(&place, &["status"], |status| status["pods"].as_array()?.first().map(drop)).await;
    let nothing = place.ask(&["probes"]).await.stdout;
    assert!(nothing.starts_with("no probes yet: no client has executed an exec probe"), "{nothing}");

    for (script, timeout) in [("exit 0", 5), ("exit 3", 5), ("exit 0", 7), ("exit 3", 5)] {
        execute(&shim, &container, script, timeout).await;
    }
    kept(&place, 4).await;
    let probes = until_shown(&place, &["probes"], |probes| {
        (probes.as_array()?.len() == 3).then(|| probes.as_array().unwrap().clone())
    });
    let row = |probe: &Value| {
        let learned = &probe["learned"];
        let text = learned["command"].as_str().unwrap().to_owned();
        (text, learned["timeoutMs"].clone(), probe["lastResult"].clone(), probe["attempts"].clone())
    };
    let mut found: Vec<_> = probes.await.iter().map(row).collect();
    found.sort_by_key(|(command, timeout, ..)| (command.clone(), timeout.as_u64()));
    let expected = [("exit 0", 5000, "ok", 1), ("exit 0", 7000, "ok", 1), ("exit 3", 5000, "exit 3", 2)];
    let expected = expected.map(|(script, timeout, result, attempts)| {
        (format!("sh -c '{script}'"), json!(timeout), json!(result), json!(attempts))
    });
    assert_eq!(found, expected);
    let table = place.ask(&["probes", "it/pod"]).await.stdout;
    assert_eq!(table.lines().count(), 4, "{table}");

    for (flags, ids) in [
        (&["--exec"][..], json!([1, 2, 3, 4])),
        (&["--command", "sh -c 'exit 0'"], json!([1, 3])),
        (&["--command", "sh -c 'exit 0'", "--timeout", "7s"], json!([3])),
        (&["--command", "sh"], json!([])),
        (&["--exec", "--failed"], json!([2, 4])),
    ] {
        let calls = place.ask(&[&["calls", "-o", "json"], flags].concat()).await.json();
        let found: Vec<&Value> = calls.as_array().unwrap().iter().map(|call| &call["id"]).collect();
        assert_eq!(json!(found), ids, "{flags:?}");
    }
    runtime.end().await;
}
