//! A value in a document together with its path, for errors that name the field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use crate::manifest::ignored_fields;
use crate::manifest::misplaced;
use crate::manifest::validation::NON_NEGATIVE;
use crate::suggest::most_similar;
use serde_json::{Map, Value};

/// Maximum number of known fields that the error about an unknown field lists.
const MAX_LISTED_FIELDS: usize = 5;

/// An error in a document, in the words of kubectl and the API server
/// (`apimachinery/pkg/util/validation/field/errors.go`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    path: String,
    pub(crate) message: String,
    pub(crate) severity: Severity,
}

/// Effect of a violation on its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The value is invalid.
    Invalid,
    /// The value is valid in Kubernetes, but probeshim does not support it.
    Unsupported,
    /// The value is valid, and the author should know something about it: this, which is shown once
    /// for all values, or, if it is empty, what the message says.
    Remark(&'static str),
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
    /// An API server has validated the document: unknown fields are ignored and named once in the
    /// log, because the server may be newer than probeshim.
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

    /// Returns another value at the same path.
    pub(crate) fn with_value<'b>(&self, value: &'b Value) -> Cursor<'b> {
        Cursor { path: self.path.clone(), value, is_secret: self.is_secret, level: self.level }
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

    /// Reports unknown fields; if the level is lenient, in the log.
    pub(crate) fn deny_unknown(&self, fields: &[&str], problems: &mut Vec<Violation>) {
        let names = self.value.as_object().into_iter().flat_map(Map::keys);
        for name in names.filter(|name| !fields.contains(&name.as_str())) {
            self.unknown_field(name, fields, problems);
        }
    }
    pub(crate) fn list(&self, problems: &mut Vec<Violation>) -> Vec<Self> {
        let list = self.read(self.value.as_array(), "must be a list", problems);
        let at = |(place, value)| self.child(format!("{}[{place}]", self.path), value);
        list.into_iter().flatten().enumerate().map(at).collect()
    }

    /// Returns the items of the list at a path of fields; nothing if there is no list, which is no
    /// error here.
    pub(crate) fn items(&self, names: &[&str]) -> Vec<Self> {
        self.at(names).map(|list| list.list(&mut Vec::new())).unwrap_or_default()
    }

    pub(crate) fn text(&self, problems: &mut Vec<Violation>) -> Option<String> {
        self.read(
            self.value.as_str(),
            "must be a string; quote a value that YAML reads as another type",
            problems,
        )
        .map(str::to_owned)
    }

    pub(crate) fn string_list(&self, problems: &mut Vec<Violation>) -> Vec<String> {
        self.list(problems).iter().filter_map(|node| node.text(problems)).collect()
    }

    /// Reads an object whose values are strings.
    pub(crate) fn map_of_texts(&self, problems: &mut Vec<Violation>) -> BTreeMap<String, String> {
        let Some(object) = self.object(problems) else { return BTreeMap::new() };
        // Go decodes null as an empty text.
        let read = |key: &String| match self.field(key) {
            Some(value) => Some((key.clone(), value.text(problems)?)),
            None => Some((key.clone(), String::new())),
        };
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
            let known: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.unknown_value(&known, problems);
        }
        found
    }

    /// Reads a whole number from 0 to 2147483647. Returns `default` for 0.
    pub(crate) fn positive_or(&self, default: u32, problems: &mut Vec<Violation>) -> u32 {
        self.non_negative(problems).filter(|number| *number != 0).unwrap_or(default)
    }

    /// Reads a whole number from 0 to 2147483647, the range of Kubernetes.
    pub(crate) fn non_negative<T: TryFrom<i64>>(&self, problems: &mut Vec<Violation>) -> Option<T> {
        self.number(0..=i32::MAX.into(), NON_NEGATIVE, problems)
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

    /// Reports an unknown field of this object, and says where it belongs, or suggests the most
    /// similar known field. Without a similar field, reports the known fields, if they are few. If
    /// the level is lenient, names the field once in the log.
    pub(crate) fn unknown_field(&self, name: &str, known: &[&str], problems: &mut Vec<Violation>) {
        if self.is_lenient() {
            ignored_fields::log_once(&self.path_of(name));
            return;
        }
        let path = self.path_of(name);
        let hint = match (misplaced::place_of(name, &self.path), most_similar(name, known.iter().copied())) {
            (Some(place), _) => format!("; {place}"),
            (None, Some(similar)) => format!(", did you mean {similar:?}?"),
            (None, None) if known.len() <= MAX_LISTED_FIELDS => format!(": known fields: {}", quoted(known)),
            (None, None) => String::new(),
        };
        let message = format!("unknown field {path:?}{hint}");
        problems.push(Violation { path, message, severity: Severity::Invalid });
    }

    /// Reports that a required field of this object is missing. An empty `detail` is omitted.
    pub(crate) fn missing(&self, field: &str, detail: &'static str, problems: &mut Vec<Violation>) {
        problems.push(Violation::new(self.path_of(field), &["Required value", detail]));
    }

    /// Reports that this value is required, but empty. An empty `detail` is omitted.
    pub(crate) fn empty(&self, detail: &str, problems: &mut Vec<Violation>) {
        problems.push(Violation::new(self.path.clone(), &["Required value", detail]));
    }

    /// Reports an invalid value.
    pub(crate) fn error(&self, detail: impl Into<Cow<'static, str>>, problems: &mut Vec<Violation>) {
        let parts = ["Invalid value", &self.shown(), &detail.into()];
        problems.push(Violation::new(self.path.clone(), &parts));
    }

    /// Reports an invalid key of this object, for example of labels. Errors show keys even if
    /// values may be secret, because the paths of values contain keys.
    pub(crate) fn invalid_key(&self, key: &str, detail: &str, problems: &mut Vec<Violation>) {
        let parts = ["Invalid value", &format!("{key:?}"), detail];
        problems.push(Violation::new(self.path.clone(), &parts));
    }

    /// Reports a value that is not one of the known values.
    pub(crate) fn unknown_value(&self, known: &[&str], problems: &mut Vec<Violation>) {
        let detail = format!("supported values: {}", quoted(known));
        let parts = ["Unsupported value", &self.shown(), &detail];
        problems.push(Violation::new(self.path.clone(), &parts));
    }

    /// Reports a reference to an object that does not exist.
    pub(crate) fn not_found(&self, detail: &str, problems: &mut Vec<Violation>) {
        problems.push(Violation::new(self.path.clone(), &["Not found", &self.shown(), detail]));
    }

    /// Reports a field of this object whose value another object has already.
    pub(crate) fn duplicate(&self, field: &str, value: &str, problems: &mut Vec<Violation>) {
        let value = if self.is_secret { String::new() } else { format!("{value:?}") };
        problems.push(Violation::new(self.path_of(field), &["Duplicate value", &value]));
    }

    /// Reports a list with more items than `max`.
    pub(crate) fn too_many(&self, max: usize, problems: &mut Vec<Violation>) {
        let count = self.value.as_array().map_or(0, Vec::len);
        let parts = ["Too many", &count.to_string(), &format!("must have at most {max} items")];
        problems.push(Violation::new(self.path.clone(), &parts));
    }

    /// Reports a value that is not allowed together with other values.
    pub(crate) fn forbidden(&self, detail: &str, problems: &mut Vec<Violation>) {
        problems.push(Violation::new(self.path.clone(), &["Forbidden", detail]));
    }

    /// Reports a value that is valid in Kubernetes, but that probeshim does not support.
    pub(crate) fn unsupported(&self, detail: &str, problems: &mut Vec<Violation>) {
        let value = self.shown_scalar();
        let violation = Violation::new(self.path.clone(), &["Unsupported by probeshim", &value, detail]);
        problems.push(Violation { severity: Severity::Unsupported, ..violation });
    }

    /// Returns a remark about this value, which is shown once for all values with the same text.
    pub(crate) fn repeated_remark(&self, text: &'static str) -> Violation {
        Violation { severity: Severity::Remark(text), ..self.remark("") }
    }

    /// Returns a remark about this value, which is valid. A list or object is not described.
    pub(crate) fn remark(&self, text: &str) -> Violation {
        let severity = Severity::Remark("");
        Violation { severity, ..Violation::new(self.path.clone(), &[&self.shown_scalar(), text]) }
    }

    /// Returns whether an error was reported for exactly this path.
    pub(crate) fn has_error(&self, problems: &[Violation]) -> bool {
        problems.iter().any(|problem| problem.path == self.path)
    }

    fn read<T>(&self, value: Option<T>, reason: &'static str, problems: &mut Vec<Violation>) -> Option<T> {
        if value.is_none() {
            self.error(reason, problems);
        }
        value
    }

    /// Returns a scalar as written; an empty text for a list or object.
    fn shown_scalar(&self) -> String {
        let is_scalar = !self.value.is_object() && !self.value.is_array();
        if is_scalar { self.shown() } else { String::new() }
    }

    /// Returns a scalar as written, and a description of a list or object, because a whole object
    /// would hide the error in it. Returns an empty text for a value that may be secret.
    fn shown(&self) -> String {
        if self.is_secret {
            return String::new();
        }
        match self.value {
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

    fn path_of(&self, field: &str) -> String {
        let is_begin = self.path.is_empty() || self.path.ends_with(' ');
        if is_begin { format!("{}{field}", self.path) } else { format!("{}.{field}", self.path) }
    }
}

impl Violation {
    /// Returns the path of the field.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns an error of the parts `TYPE: VALUE: DETAIL`. Empty parts, and the empty path of a
    /// document, are omitted.
    fn new(path: String, parts: &[&str]) -> Self {
        let parts = [path.trim_end_matches(": ")].into_iter().chain(parts.iter().copied());
        let message = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        Self { path, message, severity: Severity::Invalid }
    }

    /// Returns the message, with the text of a remark that is shown once for several values.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        match self.severity {
            Severity::Remark(text) => format!("{}{text}", self.message),
            Severity::Invalid | Severity::Unsupported => self.message.clone(),
        }
    }

    /// Returns whether the document cannot be used because of it.
    pub(crate) fn is_error(&self, ignore_unsupported: bool) -> bool {
        match self.severity {
            Severity::Invalid => true,
            Severity::Unsupported => !ignore_unsupported,
            Severity::Remark(_) => false,
        }
    }
}

fn quoted(texts: &[&str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    quoted.join(", ")
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests;
