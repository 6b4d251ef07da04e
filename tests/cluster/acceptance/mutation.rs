//! Changes a pod at a random place.

use fastrand::Rng;
use serde_json::{Value, json};

/// Texts that some field refuses.
const TEXTS: &[&str] = &[
    "",
    "A_B",
    "-a",
    "a.b",
    "..",
    "/a",
    "a/b",
    "a:b",
    "Always",
    "1",
    "10Mi",
    "100m",
    "-1",
    "TCP",
    " 1 ",
    "1e3",
    "0.5Gi",
    "1E",
    "+1",
    "1000m",
    "0x10",
    "a b",
    "é",
    "$(A)",
    "a\nb",
    "../a",
    "::1",
    "10.0.0.1",
    "LOCALHOST",
    "0",
];

/// Numbers that some field refuses.
const NUMBERS: &[i64] = &[-1, 0, 1, 65_535, 65_536, 2_147_483_647, 2_147_483_648, i64::MAX];

/// Parts of the paths of items of maps.
const MAPS: [&str; 4] = ["/requests/", "/limits/", "/matchLabels/", "/nodeSelector/"];

/// Changes, removes or repeats a value at a random place, and describes the change.
pub(super) fn mutate(rng: &mut Rng, value: &mut Value) -> String {
    let mut paths = Vec::new();
    collect(value, "", &mut paths);
    let path = paths[rng.usize(..paths.len())].clone();
    let (parent, key) = path.rsplit_once('/').unwrap();
    let (parent, key) = (value.pointer_mut(parent).unwrap(), key.to_owned());
    let change = match parent {
        Value::Array(items) => {
            let index: usize = key.parse().unwrap();
            if rng.bool() {
                let repeated = items[index].clone();
                items.push(repeated);
                "repeated".to_owned()
            } else {
                replace(rng, &mut items[index], false)
            }
        }
        Value::Object(fields) if rng.u8(..4) == 0 => {
            fields.remove(&key);
            "removed".to_owned()
        }
        Value::Object(fields) => {
            // docs/parity.md has the reason why probeshim refuses null as an item of a list or map.
            let is_in_map = MAPS.iter().any(|map| path.contains(map));
            replace(rng, &mut fields[&key], !is_in_map)
        }
        _ => unreachable!("a parent has children"),
    };
    format!("{path}: {change}")
}

/// Collects the paths of all values.
fn collect(value: &Value, path: &str, paths: &mut Vec<String>) {
    if !path.is_empty() {
        paths.push(path.to_owned());
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{path}/{index}"), paths);
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                // Keys of labels and annotations may have a slash.
                if !key.contains('/') {
                    collect(item, &format!("{path}/{key}"), paths);
                }
            }
        }
        _ => {}
    }
}

fn replace(rng: &mut Rng, value: &mut Value, may_be_null: bool) -> String {
    let new = match value {
        _ if may_be_null && rng.u8(..8) == 0 => Value::Null,
        Value::String(_) => json!(TEXTS[rng.usize(..TEXTS.len())]),
        Value::Number(_) => json!(NUMBERS[rng.usize(..NUMBERS.len())]),
        Value::Bool(flag) => json!(!*flag),
        Value::Array(_) => json!([]),
        Value::Object(_) => json!({}),
        Value::Null => json!(1),
    };
    let change = format!("{value} is {new}");
    *value = new;
    change
}
