//! Label selectors, as `kubectl get -l` accepts them (apimachinery: `pkg/labels/selector.go`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::manifest::validation::{is_label_value, is_qualified_name};
use crate::terminal::sanitize;

/// Requirements on the labels of a pod, all of which must be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabelSelector {
    text: String,
    requirements: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

/// The condition of a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    /// The label exists and has one of these values.
    In(Vec<String>),
    /// The label has none of these values, or does not exist.
    NotIn(Vec<String>),
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

/// Error of a text that is not a label selector, with its invalid part.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be KEY=VALUE, KEY!=VALUE, KEY in (VALUE,VALUE), KEY notin (VALUE,VALUE), KEY or !KEY, or several of them \
     separated by commas; {0:?} is none of them"
)]
pub(super) struct LabelSelectorError(String);

impl LabelSelector {
    /// Returns whether labels meet all requirements.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.is_met(labels.get(&requirement.key)))
    }
}

impl Requirement {
    fn is_met(&self, value: Option<&String>) -> bool {
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (key, operator) = if let Some(key) = text.strip_prefix('!') {
            (key, Operator::DoesNotExist)
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, Operator::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = text.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key, Operator::In(vec![value.trim().to_owned()]))
        } else if let Some((key, rest)) = text.split_once(char::is_whitespace) {
            let (operator, values) = rest.split_once('(')?;
            let values = values.strip_suffix(')')?.split(',').map(|value| value.trim().to_owned()).collect();
            match operator.trim() {
                "in" => (key, Operator::In(values)),
                "notin" => (key, Operator::NotIn(values)),
                _ => return None,
            }
        } else {
            (text, Operator::Exists)
        };
        let key = key.trim();
        let values = match &operator {
            Operator::In(values) | Operator::NotIn(values) => values.as_slice(),
            Operator::Exists | Operator::DoesNotExist => &[],
        };
        let is_valid = is_qualified_name(key) && values.iter().all(|value| is_label_value(value));
        is_valid.then(|| Self { key: key.to_owned(), operator })
    }
}

impl FromStr for LabelSelector {
    type Err = LabelSelectorError;

    fn from_str(text: &str) -> Result<Self, LabelSelectorError> {
        let parse = |part: &str| {
            let part = part.trim();
            Requirement::parse(part).ok_or_else(|| LabelSelectorError(part.to_owned()))
        };
        let requirements = parts(text).into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), requirements })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sanitize(&self.text))
    }
}

/// Splits a text at commas outside parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_match_as_in_kubectl() {
        let labels = [("app", "web"), ("tier", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = BTreeMap::from(labels);
        for (selector, is_match) in [
            ("app=web", true),
            ("app==web", true),
            ("app=db", false),
            ("app!=db", true),
            ("other!=db", true),
            ("app!=web", false),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("app notin (db,cache)", true),
            ("other notin (db)", true),
            ("app notin (web)", false),
            ("tier", true),
            ("!tier", false),
            ("!example.com/other", true),
            ("tier=", true),
            ("app=web,tier,!other", true),
            ("app in (web,db),other", false),
        ] {
            assert_eq!(selector.parse::<LabelSelector>().unwrap().matches(&labels), is_match, "{selector}");
        }
    }

    #[test]
    fn an_invalid_label_selector_is_reported_with_its_invalid_part() {
        for (selector, part) in [
            ("", ""),
            ("app=web,", ""),
            ("app=web,a b", "a b"),
            ("app in web", "app in web"),
            ("app in (a", "app in (a"),
            ("app>1", "app>1"),
            ("app=a=b", "app=a=b"),
            ("-a=b", "-a=b"),
        ] {
            let error = selector.parse::<LabelSelector>().unwrap_err();
            assert_eq!(error.0, part, "{selector}");
        }
    }
}
