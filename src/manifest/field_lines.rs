//! Lines of the fields of a document. They are computed only if there are errors, which name them.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Options, Spanned};

/// A value of a document, and the line on which it begins. A field begins with its name.
#[derive(Debug)]
pub(crate) struct FieldLines {
    line: u64,
    children: Children,
}

/// Values below a value.
#[derive(Debug)]
enum Children {
    /// Fields of an object, with their names.
    Fields(Vec<(String, FieldLines)>),
    /// Items of a list.
    Items(Vec<FieldLines>),
    /// The value is a scalar.
    None,
}

impl FieldLines {
    /// Returns the lines of each document of a text; nothing for a text that cannot be parsed.
    /// Documents without content are skipped.
    pub(crate) fn from_text(text: &str, options: Options) -> Vec<Self> {
        let documents: Result<Vec<Spanned<Children>>, _> =
            serde_saphyr::from_multiple_with_options(text, options);
        documents.unwrap_or_default().into_iter().map(Self::from_value).collect()
    }

    /// Returns the line of the value at a path such as `spec.containers[0].image`. If the path does
    /// not exist, for example because a field is missing, returns the line of the last value on the
    /// path that does.
    pub(crate) fn line(&self, path: &str) -> u64 {
        self.child(path).map_or(self.line, |(child, rest)| child.line(rest))
    }

    /// Returns the next value on a path, and the rest of the path. A name can contain dots.
    fn child<'a>(&self, path: &'a str) -> Option<(&Self, &'a str)> {
        match &self.children {
            Children::Fields(fields) => {
                // The last of equal names counts.
                let named = fields.iter().rev().filter_map(|(name, field)| {
                    let rest = path.strip_prefix(name.as_str())?;
                    let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
                    is_whole.then(|| (field, rest.strip_prefix('.').unwrap_or(rest)))
                });
                named.min_by_key(|(_, rest)| rest.len())
            }
            Children::Items(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let item = items.get(index.parse::<usize>().ok()?)?;
                Some((item, rest.strip_prefix('.').unwrap_or(rest)))
            }
            Children::None => None,
        }
    }

    /// Returns the path of each field whose name its object has before, with the lines of both.
    pub(crate) fn duplicate_keys(&self) -> Vec<(String, [u64; 2])> {
        let mut duplicates = Vec::new();
        self.add_duplicate_keys("", &mut duplicates);
        duplicates
    }

    fn add_duplicate_keys(&self, path: &str, duplicates: &mut Vec<(String, [u64; 2])>) {
        match &self.children {
            Children::Fields(fields) => {
                let mut lines = HashMap::new();
                let last: HashMap<&String, usize> =
                    fields.iter().enumerate().map(|(place, (name, _))| (name, place)).collect();
                for (place, (name, field)) in fields.iter().enumerate() {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    if let Some(earlier) = lines.insert(name, field.line) {
                        duplicates.push((path.clone(), [field.line, earlier]));
                    }
                    // Keys within an overridden value do not count.
                    if last.get(name) == Some(&place) {
                        field.add_duplicate_keys(&path, duplicates);
                    }
                }
            }
            Children::Items(items) => {
                for (place, item) in items.iter().enumerate() {
                    item.add_duplicate_keys(&format!("{path}[{place}]"), duplicates);
                }
            }
            Children::None => {}
        }
    }

    /// Returns the lines of a value. An alias has the lines of its anchor, where an error in the
    /// value is.
    fn from_value(value: Spanned<Children>) -> Self {
        Self { line: value.defined.line(), children: value.value }
    }
}

impl<'de> Deserialize<'de> for Children {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChildrenVisitor)
    }
}

struct ChildrenVisitor;

impl<'de> Visitor<'de> for ChildrenVisitor {
    type Value = Children;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Children, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            let children = map.next_value()?;
            fields.push((name.value, FieldLines { line: name.defined.line(), children }));
        }
        Ok(Children::Fields(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Children, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(FieldLines::from_value(item));
        }
        Ok(Children::Items(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_unit<E>(self) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_none<E>(self) -> Result<Children, E> {
        Ok(Children::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<FieldLines> {
        FieldLines::from_text(text, Options::default())
    }

    #[test]
    fn a_path_has_the_line_of_its_field_or_of_the_last_value_that_exists() {
        let text = "\
# A comment
kind: Pod
metadata:
  labels:
    app.kubernetes.io/name: web
    app: [1]
spec:
  containers:
  - name: a

  - image: i
    ports:
      - {containerPort: 1,
         name: x}
";
        let [document] = &lines(text)[..] else { panic!() };
        for (path, line) in [
            ("", 2),
            ("kind", 2),
            ("metadata.labels.app.kubernetes.io/name", 5),
            ("metadata.labels.app[0]", 6),
            ("metadata.name", 3),
            ("spec.containers[0].name", 9),
            ("spec.containers[0].image", 9),
            ("spec.containers[1]", 11),
            ("spec.containers[1].ports[0].name", 14),
            ("spec.containers[7].name", 8),
        ] {
            assert_eq!(document.line(path), line, "{path}");
        }
    }

    #[test]
    fn every_document_has_the_lines_of_its_file() {
        let documents = lines(
            "a: 1\n---\n# nothing\n---\n\nb: &b {c: 1,\n  d: x}\ne: *b\n---\n{\"f\": [null,\n true]}\n",
        );
        let found: Vec<u64> = documents.iter().map(|document| document.line("")).collect();
        assert_eq!(found, [1, 6, 10]);
        assert_eq!(documents[1].line("e.d"), 7, "the line of the anchor");
        assert_eq!(documents[2].line("f[1]"), 11);
        assert!(lines("a: [").is_empty());
    }
}
