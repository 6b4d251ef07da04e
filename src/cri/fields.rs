//! Fields of requests and responses by their path, as text. All other fields of a message stay
//! unchanged, including those that probeshim does not know.

mod json;
mod path;
mod secrets;

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, MapKey, MessageDescriptor, MethodDescriptor, ReflectMessage as _,
    ServiceDescriptor, Value,
};

pub use json::MessageJsonError;
pub use path::{FieldError, FieldPath};
pub use secrets::Redaction;

use path::{Item, Segment, item_kind, parse_value};

use super::method::Method;
use super::raw_request::POOL;

/// The two messages of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageSide {
    /// The request.
    Request,
    /// The response, or each message of a stream.
    Response,
}

/// A decoded message whose fields are read and changed by name.
#[derive(Clone, Debug)]
pub struct FieldMessage(DynamicMessage);

/// Descriptors of all methods by their names, which no two methods share.
static METHODS: LazyLock<HashMap<String, MethodDescriptor>> = LazyLock::new(|| {
    let services = POOL.services().collect::<Vec<_>>();
    let methods = services.iter().flat_map(ServiceDescriptor::methods);
    methods.map(|method| (method.name().to_owned(), method)).collect()
});

/// Returns the descriptor of a method.
fn descriptor(method: Method) -> &'static MethodDescriptor {
    METHODS.get(method.name()).expect("the CRI defines the method")
}

impl Method {
    /// Returns whether the response of the method is a stream of messages.
    #[must_use]
    pub fn is_streaming(self) -> bool {
        descriptor(self).is_server_streaming()
    }

    /// Returns whether a request of the method names a pod, a container or an image.
    #[must_use]
    pub fn names_object(self) -> bool {
        let named = ["container_id", "pod_sandbox_id", "config", "sandbox_config", "image"];
        self.message(MessageSide::Request).fields().any(|field| named.contains(&field.name()))
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

    /// Returns the message itself.
    pub(super) fn into_dynamic(self) -> DynamicMessage {
        self.0
    }

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.0.encode_to_vec().into()
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
        Value::List(items) => {
            let mut is_changed = false;
            for (index, item) in items.iter_mut().enumerate() {
                if first.item.as_ref().is_none_or(|selected| selected.is_index(index))
                    && let Some(inner) = item.as_message_mut()
                {
                    is_changed |= change(inner, rest, edit);
                }
            }
            is_changed
        }
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
            for entry in entries.values_mut() {
                *entry = value.clone();
            }
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
mod tests;
