//! Text form of the selector of a pause.

use std::fmt;
use std::str::FromStr;

use wildmatch::WildMatch;

use crate::probe::{Selector, SelectorError};

/// Text that selects every container.
const EVERYTHING: &str = "*";

/// Selector of the containers of a pause: `POD`, `NAMESPACE/POD`, or `KEY=PATTERN,…`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PauseSelector(pub Selector);

/// Reason for which a text selects no containers. It is a predicate: messages put the text before
/// it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be POD, NAMESPACE/POD or KEY=PATTERN, or several of the last form separated by commas; the keys are \
     namespace, pod, container, image and label.NAME; * matches any text, and ? one character{0}"
)]
pub struct PauseSelectorError(String);

impl FromStr for PauseSelector {
    type Err = PauseSelectorError;

    fn from_str(text: &str) -> Result<Self, PauseSelectorError> {
        if !text.contains('=') {
            return Self::for_pod(text);
        }
        let mut selector: Selector =
            text.parse().map_err(|error: SelectorError| PauseSelectorError(error.detail().to_owned()))?;
        let pod = selector.pod.as_ref().map(ToString::to_string).unwrap_or_default();
        if pod.contains('/') {
            if selector.namespace.is_some() {
                return Err(PauseSelectorError(
                    "; pod names a namespace, and namespace is given too".to_owned(),
                ));
            }
            let Self(for_pod) = Self::for_pod(&pod)?;
            selector = Selector { namespace: for_pod.namespace, pod: for_pod.pod, ..selector };
        }
        Ok(Self(selector))
    }
}

impl PauseSelector {
    /// Parses `POD` or `NAMESPACE/POD`.
    fn for_pod(text: &str) -> Result<Self, PauseSelectorError> {
        if text == EVERYTHING {
            return Ok(Self::default());
        }
        let (namespace, pod) = text.split_once('/').map_or((None, text), |(it, pod)| (Some(it), pod));
        let is_pattern = |text: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.*?".contains(&byte);
            !text.is_empty() && text.bytes().all(is_allowed)
        };
        if !namespace.into_iter().chain([pod]).all(is_pattern) {
            return Err(PauseSelectorError(String::new()));
        }
        let (namespace, pod) = (namespace.map(WildMatch::new), Some(WildMatch::new(pod)));
        Ok(Self(Selector { namespace, pod, ..Selector::default() }))
    }
}

impl fmt::Display for PauseSelector {
    /// Writes the form that can be parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selector { namespace, pod, container, image, labels } = &self.0;
        let fields = [("namespace", namespace), ("pod", pod), ("container", container), ("image", image)];
        let fields = fields.iter().filter_map(|(key, glob)| Some(format!("{key}={}", glob.as_ref()?)));
        let labels = labels.iter().map(|(key, glob)| format!("label.{key}={glob}"));
        let all: Vec<String> = fields.chain(labels).collect();
        f.write_str(if all.is_empty() { EVERYTHING } else { "" })?;
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selector_of_a_pause_is_a_pod_or_keys_and_is_written_as_keys() {
        for (text, expected) in [
            ("web-1", "pod=web-1"),
            ("shop/web-*", "namespace=shop,pod=web-*"),
            ("pod=shop/web-?,container=main", "namespace=shop,pod=web-?,container=main"),
            ("namespace=shop,label.app=web,image=nginx:*", "namespace=shop,image=nginx:*,label.app=web"),
            ("*", "*"),
        ] {
            let selector: PauseSelector = text.parse().unwrap();
            assert_eq!(selector.to_string(), expected, "{text}");
            assert_eq!(expected.parse::<PauseSelector>().unwrap(), selector, "{text}");
        }
        for (wrong, expected) in [
            ("", "must be POD, NAMESPACE/POD or KEY=PATTERN"),
            ("shop/", "must be POD"),
            ("a/b/c", "must be POD"),
            ("web,api", "must be POD"),
            ("pod=", "one character; pod has no pattern"),
            ("name=web", "one character; unknown key \"name\""),
            ("namespace=a,pod=b/c", "; pod names a namespace, and namespace is given too"),
        ] {
            let error = wrong.parse::<PauseSelector>().unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
