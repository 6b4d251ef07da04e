//! A value in a document together with its path, for errors that name the field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// An error in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    path: String,
    value: String,
    reason: Cow<'static, str>,
    /// Whether the value is valid in Kubernetes, but probeshim does not support it.
    pub(crate) is_unsupported: bool,
}

/// A value in a document, with its path.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    path: String,
    value: &'a Value,
    /// Whether errors omit the value because it may be secret.
    is_secret: bool,
    level: Level,
}

/// Strictness of the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Level {
    /// A person wrote the document: unknown fields are errors, because they are mistakes.
    #[default]
    Strict,
    /// An API server has validated the document: unknown fields are ignored, because the server may
    /// be newer than probeshim.
    Lenient,
}

impl<'a> Cursor<'a> {
    /// Returns a document. `name` is its path in errors.
    pub(crate) fn root(name: &str, value: &'a Value) -> Self {
        Self { path: name.to_owned(), value, is_secret: false, level: Level::default() }
    }

    /// Returns the same value with another strictness.
    pub(crate) fn at_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Returns whether unknown fields are ignored.
    pub(crate) fn is_lenient(&self) -> bool {
        self.level == Level::Lenient
    }

    /// Returns a value below this one.
    fn child(&self, path: String, value: &'a Value) -> Self {
        Self { path, value, is_secret: self.is_secret, level: self.level }
    }

    /// Returns the same value with another path in errors.
    pub(crate) fn with_path(self, name: &str) -> Self {
        Self { path: name.to_owned(), ..self }
    }

    /// Returns the value of a field; `None` if it is absent or null, which are the same in
    /// Kubernetes.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(self.child(self.path_of(name), value))
    }

    /// Returns the same value, which errors do not show.
    pub(crate) fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// Returns the value at a path of fields.
    pub(crate) fn at(&self, names: &[&str]) -> Option<Self> {
        names.iter().try_fold(self.clone(), |node, name| node.field(name))
    }

    /// Returns the value itself.
    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    pub(crate) fn object(&self, problems: &mut Vec<Violation>) -> Option<&'a Map<String, Value>> {
        self.read(self.value.as_object(), "must be an object", problems)
    }

    /// Reports unknown fields, unless the level is lenient.
    pub(crate) fn deny_unknown(&self, fields: &[&str], problems: &mut Vec<Violation>) {
        if self.is_lenient() {
            return;
        }
        let unknown = |(name, value): (&String, &'a Value)| {
            (!fields.contains(&name.as_str())).then(|| self.child(self.path_of(name), value))
        };
        for field in self.value.as_object().into_iter().flatten().filter_map(unknown) {
            field.error(format!("must not be there: known fields are {}", fields.join(", ")), problems);
        }
    }

    pub(crate) fn list(&self, problems: &mut Vec<Violation>) -> Vec<Self> {
        let list = self.read(self.value.as_array(), "must be a list", problems);
        let at = |(place, value)| self.child(format!("{}[{place}]", self.path), value);
        list.into_iter().flatten().enumerate().map(at).collect()
    }

    pub(crate) fn text(&self, problems: &mut Vec<Violation>) -> Option<String> {
        self.read(self.value.as_str(), "must be a string; quote it if it looks like something else", problems)
            .map(str::to_owned)
    }

    pub(crate) fn string_list(&self, problems: &mut Vec<Violation>) -> Vec<String> {
        self.list(problems).iter().filter_map(|node| node.text(problems)).collect()
    }

    /// Reads an object whose values are strings.
    pub(crate) fn map_of_texts(&self, problems: &mut Vec<Violation>) -> BTreeMap<String, String> {
        let Some(object) = self.object(problems) else { return BTreeMap::new() };
        let read = |key: &String| Some((key.clone(), self.field(key)?.text(problems)?));
        object.keys().filter_map(read).collect()
    }

    pub(crate) fn flag(&self, problems: &mut Vec<Violation>) -> Option<bool> {
        self.read(self.value.as_bool(), "must be true or false", problems)
    }

    /// Reads one of a few strings, and returns its meaning.
    pub(crate) fn one_of<T: Copy>(&self, choices: &[(&str, T)], problems: &mut Vec<Violation>) -> Option<T> {
        let text = self.text(problems)?;
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let allowed: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.error(format!("must be one of {}", allowed.join(", ")), problems);
        }
        found
    }

    /// Reads a number of seconds from 0 to 2147483647, the range of Kubernetes. Returns `default`
    /// for 0.
    pub(crate) fn seconds_or(&self, default: u32, problems: &mut Vec<Violation>) -> u32 {
        let reason = "must be a whole number of seconds from 0 to 2147483647";
        let seconds = self.number(0..=i32::MAX.into(), reason, problems);
        seconds.filter(|seconds| *seconds != 0).unwrap_or(default)
    }

    /// Reads a count from 0 to 2147483647, the range of Kubernetes. Returns `default` for 0.
    pub(crate) fn count_or(&self, default: u32, problems: &mut Vec<Violation>) -> u32 {
        let count = self.number(0..=i32::MAX.into(), "must be a whole number from 0 to 2147483647", problems);
        count.filter(|count| *count != 0).unwrap_or(default)
    }

    /// Reads a whole number in a range.
    pub(crate) fn number<T: TryFrom<i64>>(
        &self,
        range: RangeInclusive<i64>,
        reason: &'static str,
        problems: &mut Vec<Violation>,
    ) -> Option<T> {
        let number = self.value.as_i64().filter(|number| range.contains(number));
        self.read(number.and_then(|number| T::try_from(number).ok()), reason, problems)
    }

    /// Reports that a required field is missing.
    pub(crate) fn missing(&self, field: &str, reason: &'static str, problems: &mut Vec<Violation>) {
        let (path, value) = (self.path_of(field), "missing".to_owned());
        problems.push(Violation { path, value, reason: reason.into(), is_unsupported: false });
    }

    /// Reports an invalid value.
    pub(crate) fn error(&self, reason: impl Into<Cow<'static, str>>, problems: &mut Vec<Violation>) {
        problems.push(self.problem(reason.into(), false));
    }

    /// Returns whether an error was reported for exactly this path.
    pub(crate) fn has_error(&self, problems: &[Violation]) -> bool {
        problems.iter().any(|problem| problem.path == self.path)
    }

    /// Reports a value that is valid in Kubernetes, but that probeshim does not support.
    pub(crate) fn unsupported(&self, reason: impl Into<Cow<'static, str>>, problems: &mut Vec<Violation>) {
        problems.push(self.problem(reason.into(), true));
    }

    fn problem(&self, reason: Cow<'static, str>, is_unsupported: bool) -> Violation {
        let value = if self.is_secret { "something else".to_owned() } else { shown(self.value) };
        Violation { path: self.path.clone(), value, reason, is_unsupported }
    }

    fn read<T>(&self, value: Option<T>, reason: &'static str, problems: &mut Vec<Violation>) -> Option<T> {
        if value.is_none() {
            self.error(reason, problems);
        }
        value
    }

    fn path_of(&self, field: &str) -> String {
        let is_begin = self.path.is_empty() || self.path.ends_with(' ');
        if is_begin { format!("{}{field}", self.path) } else { format!("{}.{field}", self.path) }
    }
}

/// Returns a scalar as written, and a description of a list or object, because a whole object would
/// hide the error in it.
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

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, value, reason, is_unsupported: _ } = self;
        if path.is_empty() || path.ends_with(' ') {
            write!(f, "{path}it {reason}, not {value}")
        } else {
            write!(f, "{path} is {value}; it {reason}")
        }
    }
}
