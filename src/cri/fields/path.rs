//! Paths of fields, and the values of the fields.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};

use super::MessageSide;
use crate::cri::Method;
use crate::suggest::did_you_mean;

/// Path of a field, such as `status.conditions[1].status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    pub(super) segments: Vec<Segment>,
}

/// Part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) name: String,
    /// Items of a list or map; `None` for the field itself.
    pub(super) item: Option<Item>,
}

/// Selection of items of a list or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// All items: `[*]`.
    All,
    /// The item at this index of a list, or with this key of a map.
    One(String),
}

/// Reason why a path or value does not suit a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldError(String);

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

impl Item {
    /// Returns whether the item at an index is selected.
    pub(super) fn is_index(&self, index: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(text) => text.parse() == Ok(index),
        }
    }

    /// Returns whether the entry with a key is selected.
    pub(super) fn is_key(&self, key: &MapKey) -> bool {
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
pub(super) fn item_kind(field: &FieldDescriptor, segment: &Segment) -> Result<Kind, FieldError> {
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
pub(super) fn parse_value(kind: &Kind, text: &str) -> Result<Value, FieldError> {
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
