use super::*;
use crate::cri::v1;

fn method(name: &str) -> Method {
    Method::from_name(name).unwrap()
}

fn status() -> v1::StatusResponse {
    let condition = |name: &str, status| v1::RuntimeCondition {
        r#type: name.to_owned(),
        status,
        ..v1::RuntimeCondition::default()
    };
    let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", true)];
    v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions }),
        info: [("config".to_owned(), "{}".to_owned())].into(),
        ..v1::StatusResponse::default()
    }
}

fn changed(edit: impl FnOnce(&mut FieldMessage) -> bool) -> (bool, v1::StatusResponse) {
    // A field that this version of the CRI does not define.
    let bytes = [status().encode_to_vec(), vec![0xf8, 0x3f, 0x07]].concat();
    let mut message = FieldMessage::decode(method("Status"), MessageSide::Response, &bytes).unwrap();
    let is_changed = edit(&mut message);
    let encoded = message.encode();
    assert!(encoded.ends_with(&[0xf8, 0x3f, 0x07]), "unknown fields are kept");
    (is_changed, v1::StatusResponse::decode(&*encoded).unwrap())
}

#[test]
fn single_fields_are_set_and_removed_by_their_path() {
    let path = |text| FieldPath::parse(text).unwrap();
    let ready = |message: &v1::StatusResponse| -> Vec<bool> {
        message.status.iter().flat_map(|status| &status.conditions).map(|it| it.status).collect()
    };
    let (is_changed, message) = changed(|message| message.set(&path("status.conditions[1].status"), "false"));
    assert_eq!((is_changed, ready(&message)), (true, vec![true, false]));
    let (_, message) = changed(|message| message.set(&path("status.conditions[*].status"), "false"));
    assert_eq!(ready(&message), [false, false]);
    let (is_changed, message) = changed(|message| message.remove(&path("status.conditions[0]")));
    assert_eq!((is_changed, ready(&message)), (true, vec![true]));
    let (is_changed, message) = changed(|message| message.set(&path("status.conditions[2].status"), "false"));
    assert_eq!((is_changed, message), (false, status()));
    let (_, message) = changed(|message| message.set(&path("info[config]"), "none"));
    assert_eq!(message.info["config"], "none");
    let (_, message) = changed(|message| message.remove(&path("info[config]")));
    assert!(message.info.is_empty());
    let (_, message) = changed(|message| message.remove(&path("status")));
    assert_eq!(message.status, None);
}

#[test]
fn a_path_or_value_that_a_message_does_not_have_is_an_error() {
    for (at, path, value, expected) in [
        ("Status", "status.conditions[1].status", Some("false"), ""),
        ("Status", "status.condition[1].status", Some("false"), "did you mean \"conditions\"?"),
        ("Status", "status.conditions.status", Some("false"), "needs an item"),
        ("Status", "status.conditions[x].status", Some("false"), "whole number"),
        ("Status", "status.conditions[0].status", Some("no"), "must be true or false"),
        ("Status", "status", Some("x"), "field by field"),
        ("Status", "status", None, ""),
        ("Status", "info[config].x", None, "has no fields"),
        ("ExecSync", "exit_code", Some("137"), ""),
        ("ExecSync", "exit_code[0]", Some("137"), "neither a list nor a map"),
        ("ExecSync", "exit_code", Some("x"), "whole number of 32 bits"),
        ("ExecSync", "stdout", Some("aGk="), ""),
        ("ExecSync", "stdout", Some("%"), "base64"),
        ("ContainerStatus", "status.state", Some("CONTAINER_EXITED"), ""),
        ("ContainerStatus", "status.state", Some("GONE"), "CONTAINER_CREATED"),
    ] {
        let result = FieldPath::parse(path).unwrap().check(method(at), MessageSide::Response, value);
        match result {
            Ok(()) => assert_eq!(expected, "", "{path}"),
            Err(error) => {
                let text = error.to_string();
                assert!(!expected.is_empty() && text.contains(expected), "{path}: {text}");
            }
        }
    }
    for wrong in ["", ".", "a.", "a[0", "a[0]b", "[0]"] {
        assert!(FieldPath::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn methods_with_a_stream_are_known() {
    let streaming: Vec<&str> =
        Method::all().filter(|method| method.is_streaming()).map(Method::name).collect();
    assert!(streaming.contains(&"GetContainerEvents") && !streaming.contains(&"ExecSync"), "{streaming:?}");
}
