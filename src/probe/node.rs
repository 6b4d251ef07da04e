//! A place in a document, which knows its path, and what is wrong there.

use std::fmt;

use serde_json::{Map, Value};

/// Something that a document should not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    path: String,
    value: String,
    reason: &'static str,
}

/// A value in a document.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    path: String,
    value: &'a Value,
    /// Whether what stands here may be a secret, and is shown to nobody.
    is_secret: bool,
}

impl<'a> Node<'a> {
    /// The document itself, which is called so in what is wrong with it.
    pub(super) fn root(name: &str, value: &'a Value) -> Self {
        Self { path: name.to_owned(), value, is_secret: false }
    }

    /// What is at a field; nothing where it is absent or null, as Kubernetes takes it.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Some(Self { path, value, is_secret: self.is_secret })
    }

    /// The same, but that nothing in it is shown.
    pub(super) fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// The field of a field.
    pub(super) fn at(&self, names: &[&str]) -> Option<Self> {
        names.iter().try_fold(self.clone(), |node, name| node.field(name))
    }

    pub(super) fn object(&self, problems: &mut Vec<Problem>) -> Option<&'a Map<String, Value>> {
        self.read(self.value.as_object(), "must be an object", problems)
    }

    pub(super) fn list(&self, problems: &mut Vec<Problem>) -> Vec<Self> {
        let list = self.read(self.value.as_array(), "must be a list", problems);
        let at = |(place, value)| {
            let path = format!("{}[{place}]", self.path);
            Node { path, value, is_secret: self.is_secret }
        };
        list.into_iter().flatten().enumerate().map(at).collect()
    }

    pub(super) fn text(&self, problems: &mut Vec<Problem>) -> Option<String> {
        self.read(self.value.as_str(), "must be a string; quote it if it looks like something else", problems)
            .map(str::to_owned)
    }

    pub(super) fn texts(&self, problems: &mut Vec<Problem>) -> Vec<String> {
        self.list(problems).iter().filter_map(|node| node.text(problems)).collect()
    }

    /// A number of seconds that Kubernetes takes; `default` for 0.
    pub(super) fn seconds_or(&self, default: i32, problems: &mut Vec<Problem>) -> i32 {
        let seconds = self.value.as_i64().and_then(|seconds| i32::try_from(seconds).ok());
        let seconds = seconds.filter(|seconds| *seconds >= 0);
        let seconds = self.read(seconds, "must be a whole number of seconds from 0 to 2147483647", problems);
        seconds.filter(|seconds| *seconds != 0).unwrap_or(default)
    }

    /// It should not be here, or not be so.
    pub(super) fn complain(&self, reason: &'static str, problems: &mut Vec<Problem>) {
        let value = if self.is_secret { "something else".to_owned() } else { shown(self.value) };
        problems.push(Problem { path: self.path.clone(), value, reason });
    }

    fn read<T>(&self, value: Option<T>, reason: &'static str, problems: &mut Vec<Problem>) -> Option<T> {
        if value.is_none() {
            self.complain(reason, problems);
        }
        value
    }
}

/// The value as it was written, or what kind of thing it is: whole objects would hide what is wrong with them.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(object) if object.is_empty() => "an empty object".to_owned(),
        Value::Object(object) => {
            let fields: Vec<&str> = object.keys().take(3).map(String::as_str).collect();
            let more = if object.len() > fields.len() { ", …" } else { "" };
            format!("an object with {}{more}", fields.join(", "))
        }
        Value::Array(list) if list.is_empty() => "an empty list".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) if text.chars().count() > 60 => "a long string".to_owned(),
        other => other.to_string(),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, value, reason } = self;
        if path.is_empty() {
            write!(f, "it {reason}, not {value}")
        } else {
            write!(f, "{path} is {value}; it {reason}")
        }
    }
}
