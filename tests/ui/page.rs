//! The web page of a running demo, used as a person uses it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fixtures::need;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::browser::Browser;

/// Maximum number of bytes that the page may transfer until it is shown, all files and data
/// together.
const MAX_TRANSFERRED: u64 = 100 << 10;

/// A fault that makes some attempts slow, and two fail.
const FAULT: &str = "ExecSync client=probeshim pod=demo/steady: 10*off -> 3*delay(700ms) -> 2*exit(1)";

/// A running demo.
struct Demo {
    process: Child,
    url: String,
    _dir: TempDir,
}

impl Demo {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_probeshim"))
            .args(["demo", "--for", "1h", "--fault", FAULT])
            .env("TMPDIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("page ")).unwrap();
        let url = line.split_whitespace().last().unwrap().to_owned();
        // The demo ends when its output is not read.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url, _dir: dir }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The demo removes its files and ends its processes.
        let _ = kill_process(Pid::from_child(&self.process), Signal::INT);
        let _ = self.process.wait();
    }
}

/// Uses the page of a new demo. Screenshots are written to `target/ui/page`.
fn use_page(part: &str, hostile: &str) -> Result<Value, String> {
    let browser = Browser::find()?;
    let demo = Demo::start();
    let seen = browser.use_page(&demo.url, part, hostile);
    assert_eq!(seen["foreign"], Value::from(Vec::<String>::new()), "requests to other hosts");
    Ok(seen)
}

fn assert_quiet(seen: &Value) {
    assert_eq!(seen["messages"], Value::from(Vec::<String>::new()), "messages on the console");
    assert_eq!(seen["refused"], Value::from(Vec::<String>::new()), "refused requests");
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn a_kill_appears_on_the_open_page_and_the_page_is_small() {
    let seen = need!(use_page("kill", ""));
    assert_quiet(&seen);
    assert_eq!(seen["isSameDocument"], true);
    assert!(strings(&seen["pods"]).contains(&"demo/moody"), "{seen}");
    let transferred = seen["transferred"].as_u64().unwrap();
    assert!(transferred <= MAX_TRANSFERRED, "{transferred} bytes");
}

#[test]
fn a_slow_call_leads_to_its_explanation_on_a_phone() {
    let seen = need!(use_page("slow", ""));
    assert_quiet(&seen);
    assert_eq!(seen["call"], seen["heading"]);
    assert_eq!(seen["backticks"], false, "commands in sentences are code");
    let folded = serde_json::json!({"unfiltered": true, "filtered": false});
    assert_eq!(seen["folded"], folded, "only an active filter is shown on a narrow screen");
    let id = seen["call"].as_str().unwrap().strip_prefix("Call ").unwrap();
    let sentences = strings(&seen["sentences"]);
    assert!(sentences.iter().any(|text| text.contains("executed cat healthy in container main")), "{seen}");
    assert!(strings(&seen["command"])[0].starts_with(&format!("probeshim explain {id} ")), "{seen}");
    assert!(strings(&seen["phases"]).iter().any(|text| text.contains("queue")), "{seen}");
}

#[test]
fn filters_are_in_the_address_in_the_words_of_the_command_line() {
    let seen = need!(use_page("filter", ""));
    let overview = &seen["overview"];
    assert_eq!(strings(&overview["pods"]), ["demo/steady"]);
    assert_eq!(overview["query"]["pod"], "steady");
    let commands = strings(&overview["commands"]);
    assert!(commands.iter().any(|line| line.starts_with("probeshim lint --since 1h --pod steady")), "{seen}");
    let calls = &seen["calls"];
    for (field, value) in
        [("view", "calls"), ("pod", "steady"), ("container", "main"), ("probe", "readiness")]
    {
        assert_eq!(calls["query"][field], value, "{seen}");
    }
    assert!(strings(&calls["pods"]).iter().all(|pod| *pod == "demo/steady main"), "{seen}");
    assert!(strings(&calls["probes"]).iter().all(|probe| *probe == "readiness"), "{seen}");
    assert!(strings(&calls["commands"])[0].starts_with("probeshim calls --all --since 1h"), "{seen}");
    for (view, text) in seen["empty"].as_object().unwrap() {
        let text = text.as_str().unwrap();
        assert!(text.contains(&format!("No {view} match; the pods are demo/")), "{text}");
        assert!(!text.contains("Pod and container"), "there is no empty table: {text}");
    }
    assert!(seen["error"].as_str().unwrap().contains("code \"NO_SUCH_CODE\" must be a gRPC code"), "{seen}");
}

#[test]
fn calls_appear_on_the_open_page_although_results_arrive_all_the_time() {
    let seen = need!(use_page("steady", ""));
    assert_quiet(&seen);
    let newest: Vec<u64> = serde_json::from_value(seen["newest"].clone()).unwrap();
    assert!(newest.is_sorted(), "{newest:?}");
}

#[test]
fn a_hidden_page_sends_no_requests_and_has_all_results_when_it_is_shown() {
    let seen = need!(use_page("hidden", ""));
    assert_quiet(&seen);
    assert_eq!(seen["hidden"], seen["before"], "nothing is loaded and shown while the page is hidden");
    let streams = |name: &str| seen[name]["streams"].as_u64().unwrap();
    assert_eq!(streams("shown"), streams("before") + 1, "{seen}");
}

#[test]
fn an_open_page_follows_a_probeshim_that_is_restarted() {
    let browser = need!(Browser::find());
    let dir = tempfile::tempdir().unwrap();
    let address = fixtures::machine::free_address();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        Guard(command.args(arguments).args(["--log", "error"]).current_dir(dir.path()).spawn().unwrap())
    };
    let probes = "{match: {container: '*'}, livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}}";
    fs::write(
        dir.path().join("config.yaml"),
        format!("http: {address}\nenforce: dry-run\nprobes: [{probes}]\n"),
    )
    .unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let _runtime =
        start(&["runtime", "--synthetic", "2", "--listen", &at("runtime.sock"), "--root", &at("root")]);
    let run = || {
        // A socket that a killed process left is replaced.
        start(&[
            "run",
            "--upstream",
            &at("runtime.sock"),
            "--listen",
            &at("shim.sock"),
            "--admin",
            &at("admin.sock"),
            "--config",
            &at("config.yaml"),
            "--state-dir",
            &at("state"),
        ])
    };
    let until_served = || while fixtures::http::get(address, "/healthz").is_err() {};
    while !dir.path().join("runtime.sock").exists() {}
    let first = run();
    until_served();
    let url = format!("http://{address}/");
    let mut used = browser.start_page(&url, "restart");
    let mut lines = BufReader::new(used.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    drop(first);
    let _second = run();
    let seen: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert!(used.wait().unwrap().success());
    assert_eq!(seen["isSameDocument"], true, "{seen}");
}

/// A process that ends when this is dropped.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_error_of_a_load_is_shown_until_the_next_load_and_the_rows_stay() {
    let seen = need!(use_page("failure", ""));
    assert!(seen["rows"].as_u64().unwrap() > 0, "{seen}");
    assert!(seen["heading"].as_str().unwrap().starts_with("Probes of "), "{seen}");
}

#[test]
fn every_printed_command_line_runs_and_every_period_of_the_form_is_accepted() {
    let browser = need!(Browser::find());
    let demo = Demo::start();
    let seen = browser.use_page(&demo.url, "commands", "");
    let commands = strings(&seen["commands"]);
    assert!(commands.len() > 12, "{commands:?}");
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    // `top` needs a terminal.
    for command in commands.into_iter().filter(|command| !command.starts_with("probeshim top ")) {
        let mut run = Command::new("sh");
        run.args(["-c", command]).current_dir(dir.path()).env("PATH", &path);
        let answer = run.output().unwrap();
        assert!(answer.status.success(), "{command}: {}", String::from_utf8_lossy(&answer.stderr));
    }
    for period in strings(&seen["periods"]) {
        let address = demo.url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        let answer = fixtures::http::get(address, &format!("/page/view?since={period}")).unwrap();
        assert!(answer.contains("\"isLive\":true"), "{period}: {answer}");
    }
}

#[test]
fn the_keyboard_reaches_probes_calls_and_filters_and_the_focus_is_visible() {
    let seen = need!(use_page("keyboard", ""));
    assert_quiet(&seen);
    assert_eq!(seen["first"], "Skip to the content");
    assert_eq!(seen["calls"]["view"], "calls");
    assert_eq!(seen["failed"]["failed"], "true");
    assert_eq!(seen["invisible"], Value::from(Vec::<String>::new()));
}

#[test]
fn every_view_passes_the_rules_of_axe_and_fits_on_a_phone_light_and_dark() {
    let seen = need!(use_page("views", ""));
    let examined = seen["examined"].as_array().unwrap();
    assert_eq!(examined.len(), 24);
    for view in examined {
        assert_eq!(view["wide"], Value::from(Vec::<String>::new()), "{}", view["name"]);
        assert_eq!(view["violations"], Value::from(Vec::<String>::new()), "{}", view["name"]);
    }
}

#[test]
fn markup_in_a_name_is_text_on_the_page() {
    let name = r#"</bdi><script>alert(1)</script><img src="https://example.com/x" onerror=alert(1)>"#;
    assert_shows(name, name);
}

#[test]
fn control_characters_in_a_name_are_visible_on_the_page() {
    assert_shows("a\u{1b}[31mb\u{7}\nc\u{9b}d", r"a\u{1b}[31mb\u{7}\nc\u{9b}d");
}

#[test]
fn marks_of_the_direction_of_writing_are_visible_on_the_page() {
    assert_shows("abc\u{202e}gpj.exe\u{2067}\u{200f}x", r"abc\u{202e}gpj.exe\u{2067}\u{200f}x");
}

/// Fails unless a name is shown as a text in the overview, among calls and among events.
#[track_caller]
fn assert_shows(name: &str, text: &str) {
    let seen = need!(use_page("hostile", name));
    assert_quiet(&seen);
    for (view, shown) in seen["shown"].as_object().unwrap() {
        assert!(shown["text"].as_str().unwrap().contains(text), "{view}: {shown}");
        assert_eq!(shown["handlers"], Value::from(Vec::<String>::new()), "{view}");
        for element in ["script", "img", "iframe", "object", "link"] {
            assert!(!strings(&shown["elements"]).contains(&element), "{view}: {element}");
        }
    }
}

impl Browser {
    /// Starts a part of `page.cjs`, which prints lines.
    fn start_page(&self, url: &str, part: &str) -> Child {
        let job = serde_json::json!({"chromium": self.chromium(), "url": url, "part": part});
        let mut command = self.command("page.cjs", &job);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a part of `page.cjs`.
    fn use_page(&self, url: &str, part: &str, hostile: &str) -> Value {
        let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("ui/page");
        fs::create_dir_all(&shots).unwrap();
        let job = serde_json::json!({
            "chromium": self.chromium(), "url": url, "shots": shots, "part": part, "hostile": hostile,
        });
        self.run("page.cjs", &job)
    }
}
