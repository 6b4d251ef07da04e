//! Messages as canonical protobuf JSON, which people can read and compare.

use prost_reflect::{DeserializeOptions, DynamicMessage};
use serde_json::{Map, Value};

use super::{FieldMessage, MessageSide};
use crate::cri::Method;

/// Maximum number of characters of a value in an error.
const MAX_SAMPLE_CHARS: usize = 60;

/// Reason why JSON is not a message of a method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageJsonError(String);

impl FieldMessage {
    /// Returns the message as JSON, without unknown fields and without fields that have their
    /// default.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or(Value::Null)
    }

    /// Reads the JSON of a message of a method. A field that the CRI does not define is an error.
    pub fn from_json(method: Method, side: MessageSide, json: &Value) -> Result<Self, MessageJsonError> {
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let read = |json: &Value| {
            let message = DynamicMessage::deserialize_with_options(method.message(side), json, &options);
            message.map_err(|error| error.to_string())
        };
        // The error has no path: each field is read alone to find the wrong one.
        let invalid_field = || {
            json.as_object()?.iter().find_map(|(name, value)| {
                let alone = Map::from_iter([(name.clone(), value.clone())]);
                Some((name, value, read(&Value::Object(alone)).err()?))
            })
        };
        read(json).map(Self).map_err(|error| {
            MessageJsonError(match invalid_field() {
                Some((name, value, error)) => format!("{name}: {}: {error}", sample(value)),
                None => error,
            })
        })
    }
}

/// Returns the beginning of a value.
fn sample(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SAMPLE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_survives_a_round_trip_through_json() {
        let method = Method::from_name("ExecSync").unwrap();
        let json = json!({"containerId": "c0ffee", "cmd": ["true"], "timeout": "5"});
        let message = FieldMessage::from_json(method, MessageSide::Request, &json).unwrap();
        assert_eq!(message.text(&["container_id"]).as_deref(), Some("c0ffee"));
        let decoded = FieldMessage::decode(method, MessageSide::Request, &message.encode()).unwrap();
        assert_eq!(decoded.to_json(), json);
    }

    #[test]
    fn json_with_a_field_that_the_cri_does_not_define_is_an_error() {
        let method = Method::from_name("ExecSync").unwrap();
        for (json, named) in
            [(json!({"comand": []}), "comand"), (json!({"timeout": "soon"}), "timeout: \"soon\"")]
        {
            let error = FieldMessage::from_json(method, MessageSide::Request, &json).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
