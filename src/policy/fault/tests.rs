use serde_json::json;

use super::*;
use crate::manifest::cursor::Cursor;

fn parse(text: &str) -> Result<FaultRule, RuleError> {
    FaultRule::parse("test", text, None, false)
}

fn read(rule: &serde_json::Value) -> Result<FaultRule, Vec<String>> {
    let mut problems = Vec::new();
    let read = document::rule(&Cursor::root("", rule), &mut problems);
    match read {
        Some(rule) if problems.is_empty() => Ok(rule),
        _ => Err(problems.iter().map(ToString::to_string).collect()),
    }
}

#[test]
fn the_one_line_form_of_a_rule_is_read_and_written() {
    for text in [
        "ExecSync pod=web-* namespace=default: 2*off -> 1*hang -> delay(500ms)",
        "ListPodSandbox|ListContainers client=kubelet: delay(3m0s, 10s)",
        "StopContainer container=main image=*/web:1.2 label.app=web at=after: abort(UNAVAILABLE, 'gone, sorry')",
        "ExecSync command='^pg_isready -U' probe=liveness percentage=12.5 seed=7: 3*exit(1, '', 'not yet')",
        "GetContainerEvents after=2 first=5 every=3: delayEach(1m0s)+truncate(4, INTERNAL)",
        "Status: set(response.status.conditions[1].status=false)+remove(response.info)",
        "PullImage from=10s to=1m0s: abort(UNKNOWN, \"it's full\", AAE=)",
        "Status: set('response.info[config]=a b')",
        "Stream*: repeat(2)",
        "GetContainerEvents: reverse(3)",
        "StartContainer client=crictl: drop",
        "StartContainer client=crictl: goaway",
        "* client=crictl: refuse",
    ] {
        let rule = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let written = rule.to_string();
        assert_eq!(parse(&written).unwrap().to_string(), written, "{text}");
        let mut parts: Vec<&str> = text.split(' ').collect();
        let mut written: Vec<&str> = written.split(' ').collect();
        // The order of the criteria is fixed.
        parts.sort_unstable_by_key(|word| word.trim_end_matches(':'));
        written.sort_unstable_by_key(|word| word.trim_end_matches(':'));
        let plain = |parts: Vec<&str>| parts.concat().replace(':', "");
        assert_eq!(plain(parts), plain(written));
    }
    assert_eq!(
        parse("Status: set( response.info[config]='a b' )").unwrap().to_string(),
        "Status: set('response.info[config]=a b')"
    );
    assert_eq!(
        parse("execsync pod=default/web-*: delay(0.5)").unwrap().to_string(),
        "execsync namespace=default pod=web-*: delay(500ms)"
    );
}

#[test]
fn texts_with_quotes_of_both_kinds_are_read_as_they_are_written() {
    for message in ["can't open \"x\"", "'", "\"", "'\"'", " ", "a, b)", "it's", ""] {
        let rule = read(&json!({
            "name": "test", "for": "1m", "match": {"method": "ExecSync", "command": "x"},
            "do": {"exit": {"exitCode": 1, "stderr": message}},
        }));
        let rule = rule.unwrap();
        let again = parse(&rule.to_string()).unwrap();
        assert_eq!(again.steps[0].actions, rule.steps[0].actions, "{rule}");
    }
}

#[test]
fn a_method_that_several_patterns_select_counts_once() {
    let rule = parse("ExecSync|Exec*|exec: hang").unwrap();
    let methods: Vec<&str> = rule.matches.methods().map(crate::cri::Method::name).collect();
    assert_eq!(methods, ["ExecSync", "Exec"]);
}

#[test]
fn a_rule_in_a_document_equals_its_one_line_form() {
    for (document, text) in [
        (
            json!({"match": {"method": "ExecSync", "pod": "web-*", "labels": {"app": "web"}},
                   "do": [{"times": 2, "off": true}, {"times": 1, "hang": true}, {"delay": "500ms"}]}),
            "ExecSync pod=web-* label.app=web: 2*off -> 1*hang -> delay(500ms)",
        ),
        (
            json!({"match": {"method": "PullImage"}, "when": {"percentage": 50, "seed": 7, "at": "after"},
                   "do": {"delay": {"fixedDelay": "1s", "jitter": "100ms"},
                          "abort": {"grpcStatus": "UNAVAILABLE", "message": "gone"}}}),
            "PullImage percentage=50 seed=7 at=after: delay(1s, 100ms)+abort(UNAVAILABLE, gone)",
        ),
        (
            json!({"match": {"method": "Status"},
                   "do": {"set": {"response.status.conditions[1].status": false}, "remove": ["response.info"]}}),
            "Status: set(response.status.conditions[1].status=false)+remove(response.info)",
        ),
        (
            json!({"match": {"method": "ExecSync"}, "do": {"exit": {"exitCode": 1, "stderr": "no"}}}),
            "ExecSync: exit(1, '', no)",
        ),
        (json!({"match": {"method": "ExecSync"}, "do": "2*hang -> off"}), "ExecSync: 2*hang -> off"),
        (json!({"rule": "ExecSync: drop"}), "ExecSync: drop"),
    ] {
        let mut document = document;
        document["name"] = json!("test");
        document["for"] = json!("10m");
        let rule = read(&document).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
        assert_eq!(rule.to_string(), parse(text).unwrap().to_string());
        assert_eq!(rule.lifetime, Some(Duration::from_mins(10)));
    }
}

#[test]
fn an_invalid_rule_has_an_error_with_the_value_and_what_is_allowed() {
    for (text, expected) in [
        ("", "must be METHOD KEY=VALUE"),
        ("ExecSync", "must be METHOD KEY=VALUE"),
        ("ExecSync:", "must be METHOD KEY=VALUE"),
        ("ExecSync pod: hang", "must be METHOD KEY=VALUE"),
        ("ExecSync: hang hang", "must be METHOD KEY=VALUE"),
        ("ExecSync pod='a: hang", "lacks a closing '"),
        ("ExecSnyc: hang", "did you mean \"ExecSync\"?"),
        ("Foo*: hang", "names no method of the CRI"),
        ("ExecSync pods=a: hang", "did you mean \"pod\"?"),
        ("ExecSync pod=: hang", "must not be empty"),
        ("ExecSync pod=a pod=b: hang", "is given twice"),
        ("ExecSync pod=/a: hang", "must be POD or NAMESPACE/POD"),
        ("ExecSync pod=a/: hang", "must be POD or NAMESPACE/POD"),
        ("ExecSync pod=a/b/c: hang", "must be POD or NAMESPACE/POD"),
        ("ExecSync 'label.a b=c': hang", "has an invalid name of a label"),
        ("ExecSync command=( : hang", "must be a regular expression: unclosed group"),
        ("ExecSync probe=live: hang", "must be one of startup, readiness, liveness"),
        ("ExecSync percentage=101: hang", "above 0 and up to 100"),
        ("ExecSync percentage=0: hang", "above 0 and up to 100"),
        ("ExecSync every=0: hang", "must be a whole number from 1"),
        ("ExecSync from=10s to=5s: hang", "must leave a time between from and to"),
        ("ExecSync at=later: hang", "must be before or after"),
        ("ExecSync: 0*hang", "must be a whole number from 1"),
        ("ExecSync: off", "must have an action other than off"),
        ("ExecSync: sleep(1s)", "is unknown; actions are off, delay(DURATION[, JITTER])"),
        ("ExecSync: dealy(1s)", "did you mean \"delay\"?"),
        ("ExecSync: delay", "must be delay(DURATION[, JITTER])"),
        ("ExecSync: delay(1s, 2s)", "has a jitter that is longer than its delay"),
        ("ExecSync: delay(25h)", "needs a duration from 0s to 24h"),
        ("ExecSync: abort(UNAVAILABEL)", "did you mean \"UNAVAILABLE\"?"),
        ("ExecSync: abort(OK)", "cannot abort with OK"),
        ("ExecSync: abort(UNKNOWN, x, %)", "needs details in base64"),
        ("ExecSync: hang(1s)", "must be hang"),
        ("Status: exit(1)", "suits ExecSync only"),
        ("ExecSync: truncate(1)", "suits methods with a stream only: "),
        ("ExecSync at=after: goaway", "cannot be after the execution"),
        ("ExecSync at=after: set(request.timeout=1)", "is before the execution"),
        ("ExecSync: set(request.timeout)", "must be set(request|response.PATH=VALUE)"),
        ("ExecSync: set(timeout=1)", "begins with request. or response."),
        ("ExecSync: set(request.timeuot=1)", "did you mean \"timeout\"?"),
        ("ExecSync: set(request.timeout=x)", "must be a whole number of 64 bits"),
        ("*: hang", "would select every call of every client"),
        ("**: hang", "would select every call of every client"),
        ("*|Exec* client=*: hang", "would select every call of every client"),
        ("* client=crictl: refuse+delay(1s)", "must be the only action"),
        ("ExecSync client=crictl: refuse", "may select by client only"),
    ] {
        match parse(text) {
            Ok(rule) => panic!("{text} is accepted as {rule}"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{text}: {error}");
            }
        }
    }
    assert!(FaultRule::parse("test", "*: hang", None, true).is_ok(), "with --all");
    assert!(FaultRule::parse("a b", "ExecSync: hang", None, false).is_err());
}

#[test]
fn an_invalid_rule_in_a_document_has_all_errors_with_their_paths() {
    let problems = read(&json!({
        "name": "a b", "match": {"method": "ExecSink", "pods": "x", "command": "("},
        "when": {"percentage": 101, "sometimes": true}, "do": {"delay": "soon", "abort": "MAYBE", "hang": 1},
    }))
    .unwrap_err();
    for path in [
        "name",
        "match.method",
        "match.pods",
        "match.command",
        "when.percentage",
        "when.sometimes",
        "do.delay",
        "do.abort",
        "do.hang",
        "for",
    ] {
        assert!(problems.iter().any(|problem| problem.contains(path)), "{path}: {problems:#?}");
    }
    assert_eq!(problems.len(), 10, "{problems:#?}");
}

#[test]
fn the_steps_of_a_rule_apply_to_successive_occasions() {
    let rule = parse("ExecSync: 2*off -> 1*hang -> 2*delay(1s)").unwrap();
    let actions: Vec<String> =
        (0..7).map(|at| rule.actions_at(at).iter().map(ToString::to_string).collect()).collect();
    assert_eq!(actions, ["", "", "hang", "delay(1s)", "delay(1s)", "", ""]);
}

#[test]
fn occasions_are_counted_in_the_order_of_the_criteria() {
    let affected = |text: &str| -> Vec<u64> {
        let when = parse(&format!("ExecSync {text}: hang")).unwrap().when;
        (0..12).filter(|number| when.affects(*number, 0.4)).collect()
    };
    assert_eq!(affected("first=2"), [0, 1]);
    assert_eq!(affected("after=10"), [10, 11]);
    assert_eq!(affected("every=5"), [4, 9]);
    assert_eq!(affected("after=2 first=4 every=2"), [3, 5]);
    assert_eq!(affected("percentage=41").len(), 12);
    assert_eq!(affected("percentage=40"), [0; 0]);
    let when = parse("ExecSync from=1s to=2s: hang").unwrap().when;
    let open = [0, 999, 1000, 1999, 2000].map(|at| when.is_open(Duration::from_millis(at)));
    assert_eq!(open, [false, false, true, true, false]);
}
