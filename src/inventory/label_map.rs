//! Labels and annotations.

use std::collections::HashMap;

/// Texts by their keys, sorted. Each sandbox and container has two maps, most of them with one or
/// two entries that hardly ever change, so the representation is compact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelMap(Box<[(Box<str>, Box<str>)]>);

impl LabelMap {
    /// Returns the text of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[found].1)
    }

    /// Returns all entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, text)| (&**key, &**text))
    }

    /// Returns whether the entries are equal to `labels`.
    pub(super) fn is(&self, labels: &HashMap<String, String>) -> bool {
        labels.len() == self.0.len() && labels.iter().all(|(key, text)| self.get(key) == Some(text))
    }
}

impl<'a> FromIterator<(&'a String, &'a String)> for LabelMap {
    fn from_iter<T: IntoIterator<Item = (&'a String, &'a String)>>(texts: T) -> Self {
        let mut texts: Vec<(Box<str>, Box<str>)> =
            texts.into_iter().map(|(key, text)| (key.as_str().into(), text.as_str().into())).collect();
        texts.sort_unstable();
        Self(texts.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_by_their_keys() {
        let labels =
            [("tier", "web"), ("app", "shop"), ("zone", "")].map(|(key, text)| (key.into(), text.into()));
        let labels = HashMap::from(labels);
        let label_map: LabelMap = labels.iter().collect();
        assert!(label_map.iter().eq([("app", "shop"), ("tier", "web"), ("zone", "")]));
        assert_eq!(["app", "zone", "other"].map(|key| label_map.get(key)), [Some("shop"), Some(""), None]);
        assert!(label_map.is(&labels) && !label_map.is(&HashMap::new()) && !LabelMap::default().is(&labels));
    }
}
