//! Tests of the state and its screens.

mod dialogs;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::json;

use super::*;
use crate::admin::api::{Call, Explanation, Status};
use crate::history::json::{Event, time};
use crate::history::timeline::{
    CallSample, Gap, GapCause, Minute, Period, PeriodBuilder, ProbeSeries, Prober,
};
use crate::lint::{LintFinding, LintSubject, Severity};
use crate::report::{ReportInput, Selection, report};

const UTF8: TopScreen = TopScreen::plain(true);
const ASCII: TopScreen = TopScreen::plain(false);

fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000_020)
}

fn series(pod: &str, container: &str, probe: &str) -> ProbeSeries {
    ProbeSeries {
        namespace: "shop".to_owned(),
        pod: pod.to_owned(),
        container: container.to_owned(),
        probe: probe.to_owned(),
        prober: Prober::Kubelet,
        handler: "cat /tmp/healthy".to_owned(),
        command: vec!["cat".to_owned(), "/tmp/healthy".to_owned()],
        timeout: Some(Duration::from_secs(1)),
        period: Some(Duration::from_secs(10)),
        failure_threshold: Some(3),
    }
}

fn minute(number: u64, successes: u32, timeouts: u32) -> Minute {
    let mut minute =
        Minute { minute: Minute::number(start()) + number, successes, timeouts, ..Minute::default() };
    for _ in 0..successes {
        minute.durations.add(Duration::from_millis(12));
    }
    for _ in 0..timeouts {
        minute.durations.add(Duration::from_millis(1100));
        minute.slowest = Some(CallSample { id: 4711, duration: Duration::from_millis(1100) });
    }
    minute
}

fn killing(pod: &str) -> Event {
    Event {
        time: time(start() + Duration::from_secs(60 * 57)),
        r#type: "Normal".to_owned(),
        reason: "Killing".to_owned(),
        namespace: Some("shop".to_owned()),
        pod: Some(pod.to_owned()),
        container: Some("main".to_owned()),
        message: "Container main failed liveness probe, will be restarted".to_owned(),
        count: 1,
        first_time: None,
        pod_uid: None,
    }
}

fn period(pods: &[&str]) -> Period {
    let mut builder = PeriodBuilder::new(start(), start() + Duration::from_secs(3600), 1);
    for (place, pod) in pods.iter().enumerate() {
        let has_failed = place == 1;
        for number in 40..60 {
            let timeouts = if has_failed && number > 54 { 2 } else { 0 };
            builder.add_minute(series(pod, "main", "liveness"), &minute(number, 6 - timeouts, timeouts));
        }
    }
    if let Some(pod) = pods.get(1) {
        builder.add_event(killing(pod));
    }
    builder.add_gap(Gap {
        from: start() + Duration::from_secs(60 * 30),
        to: start() + Duration::from_secs(60 * 40),
        cause: GapCause::NotRunning,
    });
    builder.build()
}

fn report_of(pods: &[&str]) -> TopEvent {
    let finding = LintFinding {
        lint: "timeout",
        severity: Severity::Error,
        subject: LintSubject {
            learned: None,
            namespace: Some("shop".to_owned()),
            pod: pods.get(1).map(ToString::to_string),
            container: Some("main".to_owned()),
            probe: Some("liveness".to_owned()),
            prober: Some("kubelet".to_owned()),
        },
        sentence: "10 of 120 attempts (8 %) failed because of the timeout of 1.00s.".to_owned(),
        evidence: vec!["Half of the attempts took at most 13.0ms.".to_owned()],
        remedy: "Make the handler faster, or raise timeoutSeconds (now 1).".to_owned(),
        affected: 10,
        calls: vec![4711],
    };
    report_with(&period(pods), vec![finding])
}

fn report_with(period: &Period, findings: Vec<LintFinding>) -> TopEvent {
    let (source, selection) = ("a test".to_owned(), Selection::default());
    let input = ReportInput { generated: start(), source, selection, findings };
    TopEvent::Period(PeriodReport(Box::new(report(period, input))))
}

/// Returns the state with two probes in two containers of a pod, and a period of five minutes.
fn app_of_two_containers() -> TopApp {
    let mut builder = PeriodBuilder::new(start(), start() + Duration::from_secs(300), 1);
    for (container, probe) in [("main", "readiness or liveness"), ("a-sidecar-of-the-mesh", "liveness")] {
        builder.add_minute(series("web-0", container, probe), &minute(4, 6, 0));
    }
    let mut app = TopApp::default();
    app.update(report_with(&builder.build(), Vec::new()));
    app
}

fn status(observed: u64) -> Status {
    let probe = json!({
        "type": "readiness", "handler": "httpGet", "action": "http-get http://:80/", "source": "manifest",
        "result": "failure", "run": 2, "threshold": 3, "verdict": "success", "onHold": false, "wouldHaveKilled": 0,
    });
    let container = json!({
        "name": "main", "id": "c", "attempt": 0, "state": "running", "exitCode": null, "reason": null,
        "source": "list", "probes": [probe],
    });
    let pod = json!({
        "namespace": "shop", "name": "api-0", "uid": "u", "id": "s", "sandbox": "ready", "ip": null,
        "source": "list", "containers": [container],
    });
    let upstream = json!({
        "socket": "/run/c.sock", "ready": true, "runtime": "containerd", "version": "2.0.5", "error": null,
    });
    let pause = json!({
        "name": "pause-1", "selector": "pod=web-1", "readiness": false, "expires": "2001-09-09T01:00:00Z",
        "answered": 3,
    });
    serde_json::from_value(json!({
        "version": "0.1.0", "mode": "dry-run", "pid": 1, "started": "2001-09-09T01:00:00Z",
        "listen": "/run/p.sock", "http": null, "upstream": upstream, "connections": {"open": 1, "total": 1},
        "calls": {"inFlight": 3, "observed": observed, "kept": 10, "dropped": 5}, "record": null, "stuck": [],
        "pods": [pod], "pauses": [pause],
    }))
    .unwrap()
}

fn call(pod: &str, exit: i32) -> Call {
    let phases = json!({
        "state": "complete", "queueMs": 10.0, "prepareMs": 90.0, "startMs": 100.0, "runMs": 850.0, "drainMs": 0.0,
        "otherMs": 50.0, "missing": null,
    });
    let exec = json!({
        "command": ["cat"], "commandTruncated": false, "timeoutSeconds": 1, "exitCode": exit, "stdoutBytes": 0,
        "stderrBytes": 0, "marginMs": 20.0, "phases": phases, "assessment": "failed",
        "probe": {"type": "liveness", "source": "manifest", "confidence": 1.0, "periodMs": 10000.0},
    });
    serde_json::from_value(json!({
        "id": 4711, "start": "2001-09-09T01:46:40Z", "method": "ExecSync", "durationMs": 1100.0, "code": "OK",
        "requestBytes": 10, "responseBytes": 10, "peer": {"uid": 0, "pid": 7, "program": "kubelet"},
        "pod": {"id": "s", "namespace": "shop", "name": pod, "uid": "u"},
        "container": {"id": "c", "name": "main", "attempt": 0}, "exec": exec,
    }))
    .unwrap()
}

const PODS: [&str; 3] = ["web-7d4b9c6f8-x2x9z", "web-7d4b9c6f8-aaaaa", "db-0"];

fn app(pods: &[&str]) -> TopApp {
    let mut app = TopApp::default();
    app.update(TopEvent::Status(Box::new(status(100)), start()));
    app.update(TopEvent::Status(Box::new(status(125)), start() + Duration::from_secs(2)));
    app.update(report_of(pods));
    app
}

fn press(app: &mut TopApp, keys: &str) -> Option<TopEffect> {
    let mut effect = None;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        effect = app.update(TopEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    effect
}

fn terminal(app: &TopApp, screen: TopScreen, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, screen)).unwrap();
    terminal
}

fn shown_at(app: &TopApp, screen: TopScreen, width: u16, height: u16) -> String {
    let terminal = terminal(app, screen, width, height);
    let buffer = terminal.backend().buffer();
    let line =
        |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    buffer.content.chunks(usize::from(width)).map(|row| line(row).trim_end().to_owned() + "\n").collect()
}

fn shown(app: &TopApp) -> String {
    shown_at(app, UTF8, 80, 24)
}

#[test]
fn the_table_fits_80_columns_and_uses_more_with_and_without_utf8() {
    let app = app(&PODS);
    insta::assert_snapshot!("top_table", shown(&app));
    insta::assert_snapshot!("top_table_ascii", shown_at(&app, ASCII, 80, 24));
    insta::assert_snapshot!("top_table_wide", shown_at(&app, UTF8, 160, 12));
    assert!(shown_at(&app, ASCII, 160, 24).is_ascii());
    assert!(shown_at(&app, UTF8, 39, 24).starts_with("top needs 40x10"));
    assert!(shown_at(&app, UTF8, 80, 9).starts_with("top needs 40x10"));
    shown_at(&app, UTF8, 40, 10);
}

#[test]
fn types_and_containers_are_complete_before_the_strip_is_long() {
    let app = app_of_two_containers();
    let wide = shown_at(&app, UTF8, 160, 24);
    for text in ["a-sidecar-of-the-mesh ", "readiness or liveness ", " LAST  TRIES"] {
        assert!(wide.contains(text), "{text}: {wide}");
    }
    assert!(shown_at(&app, UTF8, 120, 24).contains("readiness or liveness "));
}

#[test]
fn a_narrow_table_distinguishes_the_containers_of_a_pod() {
    let narrow = shown_at(&app_of_two_containers(), UTF8, 80, 24);
    assert!(!narrow.contains("CONTAINER"), "{narrow}");
    assert!(narrow.contains("shop/web-0/main ") && narrow.contains("shop/web-0/a…e-mesh "), "{narrow}");
    let single = shown_at(&app(&PODS), UTF8, 80, 24);
    assert!(!single.contains("/main"), "a pod of one container has only its name: {single}");
}

#[test]
fn the_same_texts_are_shown_with_and_without_colours() {
    let mut app = app(&PODS);
    for keys in ["", "\n", "\u{1b}l", "\u{1b}?", "\u{1b}p", "\u{1b}r"] {
        press(&mut app, keys);
        let coloured = terminal(&app, TopScreen::new(true, true), 80, 24);
        let plain = terminal(&app, UTF8, 80, 24);
        let has_colour = |terminal: &Terminal<TestBackend>| {
            terminal
                .backend()
                .buffer()
                .content
                .iter()
                .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
        };
        assert!(has_colour(&coloured) && !has_colour(&plain), "{keys:?}");
        let symbols = |terminal: &Terminal<TestBackend>| {
            terminal
                .backend()
                .buffer()
                .content
                .iter()
                .map(|cell| cell.symbol().to_owned())
                .collect::<String>()
        };
        assert_eq!(symbols(&coloured), symbols(&plain), "{keys:?}");
    }
}

#[test]
fn the_detail_pane_shows_results_phases_an_explanation_and_the_command_for_the_calls() {
    let mut app = app(&PODS);
    let effect = press(&mut app, "/web aaaaa\n\n");
    let Some(TopEffect::Inspect(request)) = effect else { panic!("{effect:?}") };
    assert_eq!((request.key.pod.as_str(), request.explain), (PODS[1], Some(4711)));
    let sentences = vec!["The command ran for 850ms.".to_owned()];
    let explained = serde_json::from_value(serde_json::to_value(call(PODS[1], 1)).unwrap()).unwrap();
    let explanation = Some(Explanation { call: explained, sentences });
    let calls = vec![call(PODS[1], 1)];
    app.update(TopEvent::Inspected(Box::new(Inspected { key: request.key, explanation, calls })));
    insta::assert_snapshot!("top_detail", shown_at(&app, UTF8, 80, 48));
    insta::assert_snapshot!("top_detail_ascii", shown_at(&app, ASCII, 80, 24));
    press(&mut app, "G");
    assert!(shown(&app).contains("probeshim calls --pod shop/web-7d4b9c6f8-aaaaa --container main --probe"));
    let mut next = call(PODS[1], 0);
    next.id = 4712;
    app.update(TopEvent::Call(Box::new(next)));
    assert!(shown(&app).contains("4712"), "a call that ends is added");
}

#[test]
fn the_detail_pane_says_how_often_a_probe_failed_in_a_row() {
    let mut app = app(&PODS);
    press(&mut app, "/api\n\n");
    assert!(shown(&app).contains("last result: failed 2 times in a row, threshold 3"), "{}", shown(&app));
}

#[test]
fn names_and_commands_with_markup_control_characters_and_right_to_left_marks_are_texts() {
    let pods = ["a\u{1b}[31mred", "<b>\u{202e}gnp</b>\u{7}", "日本\u{200f}\u{9b}2J\n0"];
    let mut app = app(&pods);
    let mut screens = shown_at(&app, UTF8, 120, 24) + &shown_at(&app, ASCII, 80, 24);
    for keys in ["\n", "\u{1b}j\n", "\u{1b}j\n", "\u{1b}l", "\u{1b}/\u{202e}\u{7}", "\n"] {
        press(&mut app, keys);
        screens += &shown_at(&app, UTF8, 80, 60);
    }
    for hostile in ['\u{1b}', '\u{202e}', '\u{200f}', '\u{9b}', '\u{7}'] {
        assert!(!screens.contains(hostile), "{hostile:?}");
    }
    assert!(screens.contains(r"a\u{1b}[31mred") && screens.contains(r"<b>\u{202e}gnp</b>\u{7}"), "{screens}");
    press(&mut app, "\u{1b}\u{1b}p");
    assert!(app.dialog.is_none(), "such a name cannot be selected: {:?}", app.message);
    assert!(shown(&app).contains("this name is none that Kubernetes allows"));
}

#[test]
fn rows_are_sorted_by_the_worst_first_and_by_columns_in_both_orders() {
    let mut app = app(&PODS);
    let order = |app: &TopApp| -> Vec<String> {
        app.visible.iter().map(|index| app.rows[*index].key.pod.clone()).collect()
    };
    assert_eq!(order(&app)[..2], [PODS[1], "api-0"], "timeouts, and a probe that fails now");
    press(&mut app, "N");
    assert_eq!(order(&app), ["api-0", "db-0", PODS[1], PODS[0]]);
    assert!(shown(&app).contains("sort: POD\n"));
    press(&mut app, "N");
    assert_eq!(order(&app), [PODS[0], PODS[1], "db-0", "api-0"]);
    assert!(shown(&app).contains("sort: POD, reversed"));
    press(&mut app, "FS");
    assert_eq!(order(&app)[3], PODS[1], "the most failures are last in reverse");
    for _ in 0..20 {
        press(&mut app, "s");
        shown(&app);
    }
}

#[test]
fn a_filter_selects_rows_while_it_is_written_and_the_selected_row_stays_selected() {
    let mut app = app(&PODS);
    press(&mut app, "N/db");
    assert_eq!(app.visible.len(), 1);
    insta::assert_snapshot!("top_filter", shown(&app));
    press(&mut app, "\u{8}\u{8}\u{8}pod=web probe=live");
    assert_eq!(app.visible.len(), 2);
    press(&mut app, " failed");
    assert_eq!(app.visible.len(), 1);
    press(&mut app, "\u{1b}");
    assert_eq!(app.visible.len(), 4);
    press(&mut app, "/code=OK");
    assert!(
        app.message.as_deref().is_some_and(|message| message.starts_with("code= is unknown: namespace="))
    );
    press(&mut app, "\u{1b}jj");
    let selected = app.selected.clone();
    press(&mut app, "S");
    assert_eq!(app.selected_row().map(|row| row.key.clone()), selected);
    app.update(report_of(&PODS));
    assert_eq!(app.selected, selected);
    press(&mut app, "/nothing like this\n");
    assert!(shown(&app).contains("no probe matches the filter"));
}

#[test]
fn the_help_has_the_sources_of_names_and_the_line_to_add() {
    let mut app = app(&PODS);
    let line = "kubelet: {kubeconfig: /etc/kubernetes/kubelet.conf}";
    app.status.as_mut().unwrap().probe_names = serde_json::from_value(json!({
        "sources": [{
            "source": "static-pods", "place": "/m", "description": "static pods in /m", "pods": 2, "problem": null,
        }],
        "unnamedContainers": 3, "remedy": format!("add `{line}` to /etc/probeshim/config.yaml"), "line": line,
    }))
    .unwrap();
    assert!(shown_at(&app, ASCII, 120, 24).contains("no names in 3 containers: ? shows what helps"));
    press(&mut app, "?");
    let help = shown_at(&app, ASCII, 120, 24);
    assert!(help.contains("from: static pods in /m (2 pods)"), "{help}");
    assert!(help.contains(line), "{help}");
}

#[test]
fn findings_lead_to_their_probe_and_help_lists_the_keys() {
    let mut app = app(&PODS);
    press(&mut app, "l");
    insta::assert_snapshot!("top_findings", shown(&app));
    let Some(TopEffect::Inspect(request)) = press(&mut app, "\n") else { panic!("no request") };
    assert_eq!(request.key.pod, PODS[1]);
    press(&mut app, "?");
    insta::assert_snapshot!("top_help", shown_at(&app, ASCII, 80, 24));
}

#[test]
fn a_lost_connection_is_shown_until_a_status_arrives() {
    let mut app = app(&PODS);
    app.update(TopEvent::Disconnected("no probeshim listens".to_owned()));
    assert!(shown(&app).starts_with("disconnected, trying again: no probeshim listens"));
    app.update(TopEvent::Status(Box::new(status(1)), start()));
    assert!(shown(&app).starts_with("probeshim top  containerd 2.0.5  mode dry-run  ? calls/s  3 in flight"));
    app.update(TopEvent::Missed(7));
    assert!(shown(&app).contains("missed 12"));
}

#[test]
fn a_call_that_ends_changes_the_last_result_with_the_next_status() {
    let mut app = app(&PODS);
    app.update(TopEvent::Call(Box::new(call("db-0", 3))));
    app.update(TopEvent::Status(Box::new(status(126)), start()));
    press(&mut app, "/db\n");
    assert!(shown(&app).contains("exit 3"));
}
