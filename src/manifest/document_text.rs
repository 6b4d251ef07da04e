//! Parses the documents of a text as kubectl does: several in YAML, or several in JSON.

use std::cell::OnceCell;
use std::path::Path;

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, Options, Spanned};

use crate::manifest::field_lines::FieldLines;
use crate::manifest::yaml_error::syntax_error;

/// Bound below which each whole number is exact as a float.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The documents of a text that have content.
#[derive(Debug)]
pub(super) struct DocumentTexts<'a> {
    /// Content and first line of each document. A float without a fraction is an integer, as after
    /// kubectl's conversion to JSON.
    pub(super) documents: Vec<(Value, u64)>,
    parts: Vec<Part<'a>>,
    /// Whether an object has a key twice.
    has_duplicate_keys: bool,
    /// Lines of the fields of each document, which only errors and warnings need.
    lines: OnceCell<Vec<(FieldLines, u64)>>,
}

/// A part of a text that is parsed by itself: a JSON document, or the whole text.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    text: &'a str,
    /// Number of lines before it.
    offset: u64,
}

/// A key that an object has again.
#[derive(Debug)]
pub(super) struct DuplicateKey {
    /// Path of the value, in the document.
    pub(super) path: String,
    /// Lines of the key that counts, which is the last, and of the one before it.
    pub(super) lines: [u64; 2],
}

impl<'a> DocumentTexts<'a> {
    /// Parses a text. The error has the place, `PATH:LINE` if the line is known, and the reason.
    pub(super) fn parse(path: &Path, text: &'a str) -> Result<Self, (String, String)> {
        let parts = parts(text);
        let (mut documents, mut has_duplicate_keys) = (Vec::new(), false);
        for part in &parts {
            let parse = |duplicate_keys| -> Result<Vec<Spanned<Value>>, Error> {
                serde_saphyr::from_multiple_with_options(part.text, options(duplicate_keys))
            };
            let parsed = parse(DuplicateKeyPolicy::Error).or_else(|error| {
                if !matches!(error.without_snippet(), Error::DuplicateMappingKey { .. }) {
                    return Err(error);
                }
                has_duplicate_keys = true;
                parse(DuplicateKeyPolicy::LastWins)
            });
            // Only the text of a single part has errors.
            let parsed = parsed.map_err(|error| syntax_error(path, part.text, &error))?;
            documents.extend(parsed.into_iter().map(|document| {
                let line = document.defined.line() + part.offset;
                (with_whole_numbers(document.value), line)
            }));
        }
        Ok(Self { documents, parts, has_duplicate_keys, lines: OnceCell::new() })
    }

    /// Returns the line of the value at a path in a document.
    pub(super) fn line(&self, document: usize, path: &str) -> u64 {
        match self.lines().get(document) {
            Some((lines, offset)) => lines.line(path) + offset,
            None => self.documents.get(document).map_or(1, |(_, line)| *line),
        }
    }

    /// Returns the keys that the objects of a document have again.
    pub(super) fn duplicate_keys(&self, document: usize) -> Vec<DuplicateKey> {
        if !self.has_duplicate_keys {
            return Vec::new();
        }
        let Some((lines, offset)) = self.lines().get(document) else { return Vec::new() };
        let duplicates = lines.duplicate_keys().into_iter();
        duplicates
            .map(|(path, lines)| DuplicateKey { path, lines: lines.map(|line| line + offset) })
            .collect()
    }

    fn lines(&self) -> &[(FieldLines, u64)] {
        self.lines.get_or_init(|| {
            let of_part = |part: &Part<'_>| {
                let (lines, offset) =
                    (FieldLines::from_text(part.text, options(DuplicateKeyPolicy::LastWins)), part.offset);
                lines.into_iter().map(move |lines| (lines, offset))
            };
            self.parts.iter().flat_map(of_part).collect()
        })
    }
}

/// Returns options for the parser. Their limits are high enough for all manifests of a node in one
/// file.
fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    let budget = serde_saphyr::budget! {
        max_documents: 100_000,
        max_nodes: 25_000_000,
        max_events: 100_000_000,
    };
    // File modes are commonly written as octal numbers.
    serde_saphyr::options! { budget: budget, legacy_octal_numbers: true, duplicate_keys: duplicate_keys }
}

/// Returns the JSON documents of a text that consists of several
/// (`apimachinery/pkg/util/yaml/decoder.go`: `YAMLOrJSONDecoder`), or else the whole text.
fn parts(text: &str) -> Vec<Part<'_>> {
    let whole = vec![Part { text, offset: 0 }];
    let begin = text.trim_start_matches('\u{feff}');
    if !begin.trim_start().starts_with('{') {
        return whole;
    }
    let mut values = serde_json::Deserializer::from_str(begin).into_iter::<IgnoredAny>();
    let (mut parts, mut from, mut offset) = (Vec::new(), 0, 0);
    while let Some(value) = values.next() {
        let Some(part) = value.ok().and_then(|_| begin.get(from..values.byte_offset())) else {
            // JSON that is not valid may be YAML.
            return whole;
        };
        parts.push(Part { text: part, offset });
        from = values.byte_offset();
        offset += part.bytes().map(|byte| u64::from(byte == b'\n')).sum::<u64>();
    }
    if parts.len() > 1 { parts } else { whole }
}

/// Returns a value in which each float without a fraction is an integer. kubectl converts YAML to
/// JSON, and JSON has one kind of numbers.
fn with_whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MAX_EXACT);
            match whole.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                Some(whole) => whole.into(),
                None => Value::Number(number),
            }
        }
        Value::Array(list) => list.into_iter().map(with_whole_numbers).collect(),
        Value::Object(object) => {
            object.into_iter().map(|(key, value)| (key, with_whole_numbers(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(text: &str) -> DocumentTexts<'_> {
        DocumentTexts::parse(Path::new("a.yaml"), text).unwrap()
    }

    #[test]
    fn whole_numbers_are_integers_however_they_are_written() {
        let texts = parsed("a: [10.0, 1e+06, 1.00067e+09, -2.0, 1.5, 1e300]");
        let expected = json!({"a": [10, 1_000_000, 1_000_670_000, -2, 1.5, 1e300]});
        assert_eq!(texts.documents, [(expected, 1)]);
    }

    #[test]
    fn json_documents_one_after_another_are_read_with_their_lines() {
        let texts = parsed("{\"a\": 1}\n{\n\t\"b\":\n\t\t{\"c\": 2}\n}{\"d\": 3}");
        let expected = [(json!({"a": 1}), 1), (json!({"b": {"c": 2}}), 2), (json!({"d": 3}), 5)];
        assert_eq!(texts.documents, expected);
        assert_eq!(["b", "b.c"].map(|path| texts.line(1, path)), [3, 4]);
        let yaml = parsed("{a: 1}\n---\n{\"b\": 2}\n");
        assert_eq!(yaml.documents.len(), 2);
    }

    #[test]
    fn the_last_of_equal_keys_counts_and_is_named_with_its_line() {
        let texts = parsed("a: 1\n---\nb:\n  c: 1\n  d: 2\n  c: 3\n  c: 4\n");
        assert_eq!(texts.documents[1].0, json!({"b": {"c": 4, "d": 2}}));
        assert_eq!(texts.line(1, "b.c"), 7);
        assert!(texts.duplicate_keys(0).is_empty());
        let found: Vec<_> = texts.duplicate_keys(1).into_iter().map(|key| (key.path, key.lines)).collect();
        assert_eq!(found, [("b.c".to_owned(), [6, 4]), ("b.c".to_owned(), [7, 6])]);
    }

    #[test]
    fn a_key_that_overrides_a_merged_one_is_no_duplicate() {
        let texts = parsed("x: &x {a: 1, b: 2}\ny: {<<: *x, a: 3}\nz: 1\nz: 2\n");
        assert_eq!(texts.documents[0].0["y"], json!({"a": 3, "b": 2}));
        assert_eq!(texts.duplicate_keys(0).len(), 1);
    }
}
