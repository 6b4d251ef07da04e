//! Text forms of selectors: fields in a document, and the values of flags.

use std::str::FromStr;

use wildmatch::WildMatch;

use crate::manifest::cursor::{Cursor, Violation};
use crate::probe::rule::Selector;

/// Prefix of the key of a label in a flag.
const LABEL: &str = "label.";

/// Reason for which a text is not a selector.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be KEY=PATTERN, or several separated by commas; the keys are namespace, pod, container, image and label.NAME; \
     * matches any text, and ? one character{0}"
)]
pub struct SelectorError(String);

impl SelectorError {
    /// Returns the part of the text that is wrong, after a semicolon; empty if the whole form is.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0
    }
}

/// Reads the fields of a selector in a document.
pub(crate) fn matches(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Selector {
    if node.object(problems).is_none() {
        return Selector::default();
    }
    node.deny_unknown(&["namespace", "pod", "container", "image", "labels"], problems);
    let glob = |node: &Cursor<'_>, problems: &mut Vec<Violation>| {
        let text = node.text(problems)?;
        if text.is_empty() {
            node.error("must not be empty; * matches any text, and ? one character", problems);
        }
        Some(WildMatch::new(&text))
    };
    let mut field = |name: &str| node.field(name).and_then(|node| glob(&node, problems));
    let (namespace, pod) = (field("namespace"), field("pod"));
    let (container, image) = (field("container"), field("image"));
    let labels = node.field("labels");
    let object = labels.as_ref().and_then(|labels| labels.object(problems));
    let label = |key: &String| Some((key.clone(), glob(&labels.as_ref()?.field(key)?, problems)?));
    let labels = object.into_iter().flat_map(|object| object.keys()).filter_map(label).collect();
    Selector { namespace, pod, container, image, labels }
}

impl FromStr for Selector {
    type Err = SelectorError;

    /// Parses `KEY=PATTERN,…`, the form of selectors in flags.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut matches = Self::default();
        for part in text.split(',') {
            let (key, pattern) = part.split_once('=').ok_or_else(|| SelectorError(String::new()))?;
            if pattern.is_empty() {
                return Err(SelectorError(format!("; {key} has no pattern")));
            }
            let glob = WildMatch::new(pattern);
            let field = match key {
                "namespace" => &mut matches.namespace,
                "pod" => &mut matches.pod,
                "container" => &mut matches.container,
                "image" => &mut matches.image,
                _ => {
                    let label = key.strip_prefix(LABEL).filter(|label| !label.is_empty());
                    let label = label.ok_or_else(|| SelectorError(format!("; unknown key {key:?}")))?;
                    matches.labels.push((label.to_owned(), glob));
                    continue;
                }
            };
            if field.replace(glob).is_some() {
                return Err(SelectorError(format!("; {key} is given twice")));
            }
        }
        Ok(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_a_text_form() {
        let read: Selector = "namespace=kube-*,container=main,label.app=web".parse().unwrap();
        assert_eq!(read.to_string(), "namespace kube-*, container main, label app=web");
        for (wrong, expected) in [
            ("", "must be KEY=PATTERN"),
            ("shop", "must be KEY=PATTERN"),
            ("pod=", "pod has no pattern"),
            ("label.=x", "unknown key \"label.\""),
            ("name=web", "unknown key \"name\""),
            ("pod=a,pod=b", "pod is given twice"),
        ] {
            let error = wrong.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
