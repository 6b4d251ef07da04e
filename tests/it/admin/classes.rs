//! Classes of callers of the admin socket, as docs/security.md lists their rights.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use fixtures::machine::program;
use fixtures::need;
use serde_json::{Value, json};

use crate::program::{Answer, Place, is_root};

/// User of probeshim.
const OWN: u32 = 65_534;
const READER: u32 = 65_533;
const CONTROLLER: u32 = 65_532;
const OTHER: u32 = 65_531;

/// Sends a request, and prints the line with the status: the socket, and the request.
const ASK: &str = "my $to = sockaddr_un($ARGV[0]); socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; \
                   connect($s, $to) or die; syswrite($s, $ARGV[1]); print scalar <$s>";

/// A request, and the classes that may make it: read, control, owner.
struct Row {
    request: String,
    permitted: [bool; 3],
}

/// Reads the table of requests in docs/security.md.
fn table() -> Vec<Row> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/security.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
        let [request, read, control, owner] = cells[..] else { return None };
        Some(Row {
            request: request.replace('`', ""),
            permitted: [read, control, owner].map(|cell| cell == "yes"),
        })
    });
    rows.collect()
}

/// Returns requests of a row, as method, path and body.
fn requests(row: &str) -> Vec<(&'static str, String, Value)> {
    let (request, variant) = row.split_once(", ").unwrap_or((row, ""));
    let (method, path) = request.split_once(' ').unwrap();
    let method = ["GET", "PUT", "POST", "DELETE"].into_iter().find(|known| *known == method).unwrap();
    let path = path.replace("ID", "1").replace("NAMESPACE/NAME", "shop/web");
    let path = match path.as_str() {
        "/v1/capture" => "/v1/capture?for_ms=1".to_owned(),
        "/v1/timeline" => "/v1/timeline?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z".to_owned(),
        _ => path,
    };
    let rule = |action: &str| {
        let action = match action {
            "delay" | "delayEach" => format!("{action}(1ms)"),
            "abort" => "abort(UNAVAILABLE)".to_owned(),
            "set" => "set(request.timeout=1)".to_owned(),
            "remove" => "remove(request.timeout)".to_owned(),
            "exit" => "exit(1)".to_owned(),
            "repeat" | "reverse" => format!("{action}(2)"),
            "truncate" => "truncate(1)".to_owned(),
            _ => action.to_owned(),
        };
        let selected = match action.split('(').next().unwrap() {
            "refuse" => "* client=none",
            "delayEach" | "repeat" | "truncate" | "reverse" => "GetContainerEvents client=none",
            _ => "ExecSync client=none",
        };
        json!({"rules": [{"rule": format!("{selected}: {action}"), "forMs": 1, "all": false}]})
    };
    let bodies = match (request, variant) {
        ("PUT /v1/mode", "above it") => vec![json!({"mode": "kill"})],
        ("PUT /v1/mode", _) => vec![json!({"mode": "off"}), json!({"mode": "dry-run"})],
        ("POST /v1/pauses", _) => {
            vec![json!({"selector": "namespace=none", "forMs": 1000, "readiness": false, "all": false})]
        }
        ("POST /v1/pauses/resume" | "POST /v1/faults/clear", _) => vec![json!({"names": []})],
        ("POST /v1/faults/plan", _) => vec![rule("delay")],
        ("POST /v1/faults", _) => {
            let actions = variant.strip_prefix("rules with ").unwrap();
            actions.split(", ").map(rule).collect()
        }
        _ => vec![Value::Null],
    };
    bodies.into_iter().map(|body| (method, path.clone(), body)).collect()
}

/// Returns the status of the response to a request of a user.
async fn status(socket: &Path, uid: u32, request: &(&str, String, Value)) -> u16 {
    let (method, path, body) = request;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut perl = Command::new("perl");
    perl.args(["-MSocket", "-e", ASK]).arg(socket).arg(text).uid(uid).gid(65_534);
    let answer = Answer::to(perl).await;
    let line = answer.stdout.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3));
    line.unwrap_or_else(|| panic!("{uid}: {request:?}: {answer:?}")).parse().unwrap()
}

#[tokio::test]
async fn each_class_of_callers_has_the_rights_that_the_documentation_lists() {
    need!(is_root());
    need!(program("perl", "perl"));
    let place = Place::new();
    // The prober of dry-run watches the runtime, which does not answer.
    let mut command = place.watching_command_of(&place.copied_program(), "shim.sock");
    command.args(["--http", "off", "--enforce", "dry-run"]).uid(OWN).gid(OWN);
    command.args(["--allow-uid", &READER.to_string(), "--allow-control-uid", &CONTROLLER.to_string()]);
    let shim = place.spawn(&mut command).await;
    shim.logged(
        "users of --allow-uid may only read; --allow-control-uid also permits modes, pauses and fault rules",
    )
    .await;
    let socket = place.at("admin.sock");
    let table = table();
    assert!(table.len() > 20, "{}", table.len());
    for Row { request: row, permitted: [read, control, owner] } in &table {
        for request in requests(row) {
            for (uid, is_permitted) in
                [(0, *owner), (OWN, *owner), (CONTROLLER, *control), (READER, *read), (OTHER, false)]
            {
                let status = status(&socket, uid, &request).await;
                assert_eq!(status != 403, is_permitted, "{row}: uid {uid}, {request:?}: {status}");
                // A refusal for another reason would prove nothing.
                let is_served = status == 200
                    || ["/pods", "/readyz", "/v1/pods", "/v1/calls/1"]
                        .iter()
                        .any(|it| row.contains(it) || request.1.contains(it));
                assert!(!is_permitted || is_served, "{row}: uid {uid}, {request:?}: {status}");
            }
        }
    }
    // Each path of the API has a row.
    let reference =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/api.md")).unwrap();
    let paths = reference.split('`').filter(|text| text.starts_with("/v1/"));
    for path in paths.map(|path| path.split('?').next().unwrap()) {
        assert!(table.iter().any(|row| row.request.contains(path)), "docs/security.md has no row for {path}");
    }
}
