//! Fields of requests and responses by their path, as text. All other fields of a message stay
//! unchanged, including those that probeshim does not know.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, MethodDescriptor,
    ReflectMessage as _, Value,
};

use super::method::Method;
use super::raw_request::POOL;
use crate::suggest::did_you_mean;

/// The two messages of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageSide {
    /// The request.
    Request,
    /// The response, or each message of a stream.
    Response,
}

/// Path of a field, such as `status.conditions[1].status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    segments: Vec<Segment>,
}

/// Part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    name: String,
    /// Items of a list or map; `None` for the field itself.
    item: Option<Item>,
}

/// Selection of items of a list or map.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// All items: `[*]`.
    All,
    /// The item at this index of a list, or with this key of a map.
    One(String),
}

/// Reason why a path or value does not suit a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldError(String);

/// A decoded message whose fields are read and changed by name.
#[derive(Clone, Debug)]
pub struct FieldMessage(DynamicMessage);

/// Returns the descriptor of a method.
fn descriptor(method: Method) -> MethodDescriptor {
    let mut methods = POOL.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.find(|known| known.name() == method.name()).expect("the CRI defines the method")
}

impl Method {
    /// Returns whether the response of the method is a stream of messages.
    #[must_use]
    pub fn is_streaming(self) -> bool {
        descriptor(self).is_server_streaming()
    }

    fn message(self, side: MessageSide) -> MessageDescriptor {
        match side {
            MessageSide::Request => descriptor(self).input(),
            MessageSide::Response => descriptor(self).output(),
        }
    }
}

impl FieldMessage {
    /// Decodes a message of a method, without its gRPC frame. Returns `None` if it is malformed.
    #[must_use]
    pub fn decode(method: Method, side: MessageSide, message: &[u8]) -> Option<Self> {
        DynamicMessage::decode(method.message(side), message).ok().map(Self)
    }

    /// Returns the text at a path of fields; `None` if there is none, or if it is empty.
    #[must_use]
    pub fn text(&self, path: &[&str]) -> Option<String> {
        with_field(&self.0, path, |field| field.as_str().filter(|text| !text.is_empty()).map(str::to_owned))
    }

    /// Returns the list of texts in a field; `None` if it is absent or empty.
    #[must_use]
    pub fn texts(&self, name: &str) -> Option<Vec<String>> {
        with_field(&self.0, &[name], |field| {
            Some(field.as_list()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        })
    }

    /// Returns the map of texts at a path; `None` if it is absent or empty.
    #[must_use]
    pub fn map(&self, path: &[&str]) -> Option<HashMap<String, String>> {
        with_field(&self.0, path, |field| {
            let entries = field.as_map()?.iter();
            let entry = |(key, value): (&MapKey, &Value)| {
                Some((key.as_str()?.to_owned(), value.as_str()?.to_owned()))
            };
            Some(entries.filter_map(entry).collect())
        })
    }

    /// Returns the number in a field; `None` if it is absent or 0.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        with_field(&self.0, &[name], Value::as_i64)
    }

    /// Sets the field at a path to a value. Returns whether there is such a field in this message:
    /// an index may be beyond the end of its list.
    pub fn set(&mut self, path: &FieldPath, value: &str) -> bool {
        change(&mut self.0, &path.segments, &mut |message, field, item| {
            set_field(message, field, item, value)
        })
    }

    /// Removes the field, or items of it, at a path. Returns whether there was one.
    pub fn remove(&mut self, path: &FieldPath) -> bool {
        change(&mut self.0, &path.segments, &mut remove_field)
    }

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.0.encode_to_vec().into()
    }
}

impl FieldPath {
    /// Parses a path: names of fields separated by dots, each possibly with `[INDEX]`, `[KEY]` or
    /// `[*]` for all items.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let wrong = || {
            FieldError(format!(
                "{text:?} must be names of fields separated by dots, such as status.conditions[0].status"
            ))
        };
        let mut segments = Vec::new();
        let mut rest = text;
        loop {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if name.is_empty() {
                return Err(wrong());
            }
            let (item, after) = match after.strip_prefix('[') {
                None => (None, after),
                Some(inner) => {
                    let (item, after) = inner.split_once(']').ok_or_else(wrong)?;
                    let item = item.trim_matches('"');
                    (Some(if item == "*" { Item::All } else { Item::One(item.to_owned()) }), after)
                }
            };
            segments.push(Segment { name: name.to_owned(), item });
            match after.strip_prefix('.') {
                Some(more) => rest = more,
                None if after.is_empty() => break,
                None => return Err(wrong()),
            }
        }
        Ok(Self { text: text.to_owned(), segments })
    }

    /// Checks the path against the message of a method, and the value that it is set to, if there
    /// is one.
    pub fn check(&self, method: Method, side: MessageSide, value: Option<&str>) -> Result<(), FieldError> {
        let mut message = method.message(side);
        let (last, parents) = self.segments.split_last().ok_or_else(|| FieldError(String::new()))?;
        for segment in parents {
            let field = field_of(&message, &segment.name)?;
            let kind = item_kind(&field, segment)?;
            let Kind::Message(inner) = kind else {
                return Err(FieldError(format!("{} of {} has no fields", segment.name, message.name())));
            };
            if (field.is_list() || field.is_map()) && segment.item.is_none() {
                let reason =
                    format!("{} of {} needs an item, such as [0] or [*]", segment.name, message.name());
                return Err(FieldError(reason));
            }
            message = inner;
        }
        let field = field_of(&message, &last.name)?;
        let kind = item_kind(&field, last)?;
        let Some(value) = value else { return Ok(()) };
        if (field.is_list() || field.is_map()) && last.item.is_none() {
            let reason = format!("{} of {} needs an item, such as [0] or [*]", last.name, message.name());
            return Err(FieldError(reason));
        }
        parse_value(&kind, value).map(drop)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads the field at a path of fields, if it is set.
fn with_field<T>(
    message: &DynamicMessage,
    path: &[&str],
    read: impl FnOnce(&Value) -> Option<T>,
) -> Option<T> {
    let (name, rest) = path.split_first()?;
    if !message.has_field_by_name(name) {
        return None;
    }
    let field = message.get_field_by_name(name)?;
    if rest.is_empty() { read(&field) } else { with_field(field.as_message()?, rest, read) }
}

/// Returns the field with a name.
fn field_of(message: &MessageDescriptor, name: &str) -> Result<FieldDescriptor, FieldError> {
    message.get_field_by_name(name).ok_or_else(|| {
        let fields: Vec<FieldDescriptor> = message.fields().collect();
        let names: Vec<&str> = fields.iter().map(FieldDescriptor::name).collect();
        let hint = did_you_mean(name, names.iter().copied());
        let known = if hint.is_empty() { format!(": its fields are {}", names.join(", ")) } else { hint };
        FieldError(format!("{} has no field {name:?}{known}", message.name()))
    })
}

/// Returns the kind of a field, or of its items.
fn item_kind(field: &FieldDescriptor, segment: &Segment) -> Result<Kind, FieldError> {
    let name = field.name();
    match &segment.item {
        Some(Item::One(index)) if field.is_list() && index.parse::<usize>().is_err() => {
            Err(FieldError(format!("{name}[{index}] must have a whole number from 0 as its index, or *")))
        }
        Some(_) if !field.is_list() && !field.is_map() => {
            Err(FieldError(format!("{name} is neither a list nor a map")))
        }
        _ => Ok(match field.kind() {
            Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
            kind => kind,
        }),
    }
}

/// Parses the value of a field.
fn parse_value(kind: &Kind, text: &str) -> Result<Value, FieldError> {
    fn number<T: std::str::FromStr>(
        text: &str,
        make: fn(T) -> Value,
        name: &str,
    ) -> Result<Value, FieldError> {
        text.parse().map(make).map_err(|_| FieldError(format!("{text:?} must be {name}")))
    }
    match kind {
        Kind::String => Ok(Value::String(text.to_owned())),
        Kind::Bool => number(text, Value::Bool, "true or false"),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => number(text, Value::I32, "a whole number of 32 bits"),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => number(text, Value::I64, "a whole number of 64 bits"),
        Kind::Uint32 | Kind::Fixed32 => number(text, Value::U32, "a whole number from 0 to 4294967295"),
        Kind::Uint64 | Kind::Fixed64 => {
            number(text, Value::U64, "a whole number from 0 to 18446744073709551615")
        }
        Kind::Double => number(text, Value::F64, "a number"),
        Kind::Float => number(text, Value::F32, "a number"),
        Kind::Bytes => {
            let bytes = BASE64_STANDARD.decode(text);
            let bytes = bytes.map_err(|_| FieldError(format!("{text:?} must be bytes in base64")))?;
            Ok(Value::Bytes(bytes.into()))
        }
        Kind::Enum(values) => enum_value(values, text),
        Kind::Message(message) => Err(FieldError(format!(
            "a {} is set field by field: the path must lead to a text, number, boolean or enum",
            message.name()
        ))),
    }
}

fn enum_value(values: &EnumDescriptor, text: &str) -> Result<Value, FieldError> {
    let value = values.get_value_by_name(text).map(|value| value.number());
    let value = value.or_else(|| text.parse().ok()).ok_or_else(|| {
        let known: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
        FieldError(format!("{text:?} must be one of {}", known.join(", ")))
    })?;
    Ok(Value::EnumNumber(value))
}

/// Changes the field at a path below a message. Returns whether a field was changed.
fn change(
    message: &mut DynamicMessage,
    path: &[Segment],
    edit: &mut impl FnMut(&mut DynamicMessage, &FieldDescriptor, Option<&Item>) -> bool,
) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    let Some(field) = message.descriptor().get_field_by_name(&first.name) else { return false };
    if rest.is_empty() {
        return edit(message, &field, first.item.as_ref());
    }
    match message.get_field_mut(&field) {
        Value::Message(inner) => change(inner, rest, edit),
        Value::List(items) => match &first.item {
            Some(Item::One(index)) => {
                let item = index.parse().ok().and_then(|index: usize| items.get_mut(index));
                item.and_then(Value::as_message_mut).is_some_and(|inner| change(inner, rest, edit))
            }
            _ => {
                let mut is_changed = false;
                for inner in items.iter_mut().filter_map(Value::as_message_mut) {
                    is_changed |= change(inner, rest, edit);
                }
                is_changed
            }
        },
        Value::Map(entries) => {
            let mut is_changed = false;
            for (key, value) in entries {
                if first.item.as_ref().is_some_and(|item| item.is_key(key))
                    && let Some(inner) = value.as_message_mut()
                {
                    is_changed |= change(inner, rest, edit);
                }
            }
            is_changed
        }
        _ => false,
    }
}

impl Item {
    fn is_key(&self, key: &MapKey) -> bool {
        match self {
            Self::All => true,
            Self::One(text) => match key {
                MapKey::String(key) => key == text,
                MapKey::Bool(key) => key.to_string() == *text,
                MapKey::I32(key) => key.to_string() == *text,
                MapKey::I64(key) => key.to_string() == *text,
                MapKey::U32(key) => key.to_string() == *text,
                MapKey::U64(key) => key.to_string() == *text,
            },
        }
    }
}

fn set_field(
    message: &mut DynamicMessage,
    field: &FieldDescriptor,
    item: Option<&Item>,
    value: &str,
) -> bool {
    let segment = Segment { name: field.name().to_owned(), item: item.cloned() };
    let Ok(value) = item_kind(field, &segment).and_then(|kind| parse_value(&kind, value)) else {
        return false;
    };
    match (item, message.get_field_mut(field)) {
        (None, current) => *current = value,
        (Some(Item::One(index)), Value::List(items)) => {
            let item = index.parse().ok().and_then(|index: usize| items.get_mut(index));
            return item.map(|item| *item = value).is_some();
        }
        (Some(Item::One(key)), Value::Map(entries)) => {
            entries.insert(MapKey::String(key.clone()), value);
        }
        (Some(Item::All), Value::List(items)) => items.fill(value),
        (Some(Item::All), Value::Map(entries)) => {
            entries.values_mut().for_each(|entry| *entry = value.clone())
        }
        _ => return false,
    }
    true
}

fn remove_field(message: &mut DynamicMessage, field: &FieldDescriptor, item: Option<&Item>) -> bool {
    if !message.has_field(field) {
        return false;
    }
    match (item, message.get_field_mut(field)) {
        (Some(Item::One(index)), Value::List(items)) => match index.parse::<usize>() {
            Ok(index) if index < items.len() => drop(items.remove(index)),
            _ => return false,
        },
        (Some(item @ Item::One(_)), Value::Map(entries)) => {
            let before = entries.len();
            entries.retain(|key, _| !item.is_key(key));
            return entries.len() < before;
        }
        _ => message.clear_field(field),
    }
    true
}

#[cfg(test)]
mod tests {
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
        let (is_changed, message) =
            changed(|message| message.set(&path("status.conditions[1].status"), "false"));
        assert_eq!((is_changed, ready(&message)), (true, vec![true, false]));
        let (_, message) = changed(|message| message.set(&path("status.conditions[*].status"), "false"));
        assert_eq!(ready(&message), [false, false]);
        let (is_changed, message) = changed(|message| message.remove(&path("status.conditions[0]")));
        assert_eq!((is_changed, ready(&message)), (true, vec![true]));
        let (is_changed, message) =
            changed(|message| message.set(&path("status.conditions[2].status"), "false"));
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
        assert!(
            streaming.contains(&"GetContainerEvents") && !streaming.contains(&"ExecSync"),
            "{streaming:?}"
        );
    }
}
