//! YAML for programs and people, without characters that control a terminal.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

use crate::terminal::{is_printable, sanitize};

/// A value whose texts with control or formatting characters are in double quotes, which allow
/// escapes. The keys of maps are sanitized: the library quotes them as it likes.
struct YamlValue<'a>(&'a Value);

/// A text that is in double quotes if it has control or formatting characters.
struct YamlText<'a>(&'a str);

impl Serialize for YamlValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) => YamlText(text).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(YamlValue)),
            Value::Object(fields) => {
                serializer.collect_map(fields.iter().map(|(key, value)| (sanitize(key), YamlValue(value))))
            }
            other => other.serialize(serializer),
        }
    }
}

impl Serialize for YamlText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.chars().all(is_plain) {
            self.0.serialize(serializer)
        } else {
            DoubleQuoted(self.0).serialize(serializer)
        }
    }
}

/// Returns a value as a YAML document.
pub(super) fn from_json(value: &Value) -> anyhow::Result<String> {
    let yaml = serde_saphyr::to_string(&YamlValue(value)).context("cannot write YAML")?;
    let mut safe = String::with_capacity(yaml.len());
    for c in yaml.chars() {
        if is_plain(c) {
            safe.push(c);
        } else {
            let _ = write!(safe, "\\U{:08x}", u32::from(c));
        }
    }
    if !safe.ends_with('\n') {
        safe.push('\n');
    }
    Ok(safe)
}

/// Whether a character needs no escape.
fn is_plain(c: char) -> bool {
    c == '\n' || is_printable(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_written_as_yaml_that_a_terminal_shows_safely() {
        let value = json!({
            "name": "web",
            "labels": {"app": "shop", "on": "yes"},
            "items": [{"a": 1, "b": null}, [], {}],
            "message": "two\nlines\n",
            "evil": "\u{1b}]0;owned\u{7} \u{202e} \u{e0001}",
        });
        let yaml = from_json(&value).unwrap();
        insta::assert_snapshot!(yaml);
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), value);
    }

    proptest! {
        #[test]
        fn yaml_of_any_text_has_no_control_characters_and_the_same_value(key: String, text: String) {
            let yaml = from_json(&json!({key: [&text]})).unwrap();
            prop_assert!(yaml.chars().all(is_plain), "{yaml:?}");
            let values = serde_saphyr::from_str::<Value>(&yaml).unwrap();
            let values: Vec<&Value> = values.as_object().unwrap().values().collect();
            prop_assert_eq!(values, [&json!([text])]);
        }
    }
}
