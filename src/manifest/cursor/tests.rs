//! Tests of paths and errors of values.

use serde_json::json;

use super::*;

/// Returns the errors that `report` reports about a document.
fn errors(value: &Value, report: impl Fn(&Cursor<'_>, &mut Vec<Violation>)) -> Vec<String> {
    let mut problems = Vec::new();
    report(&Cursor::root("", value), &mut problems);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn an_unknown_field_is_reported_with_the_most_similar_known_field() {
    let known = ["image", "imagePullPolicy", "command", "args", "env", "envFrom", "livenessProbe"];
    for (name, suggestion) in [
        ("comand", Some("command")),
        ("Command", Some("command")),
        ("arg", Some("args")),
        ("image_pull_policy", Some("imagePullPolicy")),
        ("livenessprobe", Some("livenessProbe")),
        ("envs", Some("env")),
        ("future", None),
        ("x", None),
        ("", None),
        ("größe", None),
        (&format!("command{}", "d".repeat(100)), None),
    ] {
        let found = errors(&json!({name: 1}), |root, problems| root.deny_unknown(&known, problems));
        let hint = suggestion.map(|known| format!(", did you mean \"{known}\"?")).unwrap_or_default();
        assert_eq!(found, [format!("unknown field \"{name}\"{hint}")]);
    }
}

#[test]
fn an_unknown_field_that_resembles_no_other_is_reported_with_the_known_fields_if_they_are_few() {
    let document = json!({"a": {"exec": {"frequency": 1}}});
    let found = errors(&document, |root, problems| {
        root.at(&["a", "exec"]).unwrap().deny_unknown(&["command"], problems);
        root.at(&["a"]).unwrap().deny_unknown(&["port", "host"], problems);
    });
    let expected = [
        "unknown field \"a.exec.frequency\": known fields: \"command\"",
        "unknown field \"a.exec\": known fields: \"port\", \"host\"",
    ];
    assert_eq!(found, expected);
}

#[test]
fn errors_have_the_texts_of_the_api_server() {
    let document = json!({"name": "x", "list": [1, 2], "object": {"a": 1}});
    let found = errors(&document, |root, problems| {
        let [name, list, object] = ["name", "list", "object"].map(|field| root.field(field).unwrap());
        root.missing("image", "", problems);
        root.missing("port", "must be a number", problems);
        name.empty("", problems);
        name.error("must be y", problems);
        object.error("must be y", problems);
        object.invalid_key("a", "must be b", problems);
        name.unknown_value(&["a", "b"], problems);
        name.not_found("", problems);
        root.duplicate("name", "x", problems);
        list.too_many(1, problems);
        name.forbidden("may not be set", problems);
        name.unsupported("no reason", problems);
        object.unsupported("no reason", problems);
        root.error("must be a list", problems);
        root.clone().with_path("Pod a/b: ").error("must be a list", problems);
        root.clone().secret().field("name").unwrap().error("must be y", problems);
        root.clone().secret().field("name").unwrap().unknown_value(&["a"], problems);
    });
    let expected = [
        "image: Required value",
        "port: Required value: must be a number",
        "name: Required value",
        "name: Invalid value: \"x\": must be y",
        "object: Invalid value: an object with a: must be y",
        "object: Invalid value: \"a\": must be b",
        "name: Unsupported value: \"x\": supported values: \"a\", \"b\"",
        "name: Not found: \"x\"",
        "name: Duplicate value: \"x\"",
        "list: Too many: 2: must have at most 1 items",
        "name: Forbidden: may not be set",
        "name: Unsupported by probeshim: \"x\": no reason",
        "object: Unsupported by probeshim: no reason",
        "Invalid value: an object with list, name, object: must be a list",
        "Pod a/b: Invalid value: an object with list, name, object: must be a list",
        "name: Invalid value: must be y",
        "name: Unsupported value: supported values: \"a\"",
    ];
    assert_eq!(found, expected);
}
