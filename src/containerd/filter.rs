//! Filters of events, in containerd's syntax: conditions that are separated by commas, such as
//! `topic~="/tasks/",namespace==k8s.io`.

use std::str::FromStr;

use regex::Regex;

use super::v1::Envelope;

/// Conditions that an event has to meet, all of them.
#[derive(Clone, Debug)]
pub(crate) struct EventFilter(Vec<Condition>);

#[derive(Clone, Debug)]
struct Condition {
    field: Field,
    test: Test,
}

/// A field of an event.
#[derive(Clone, Copy, Debug)]
enum Field {
    Topic,
    Namespace,
}

#[derive(Clone, Debug)]
enum Test {
    IsPresent,
    Equals(String),
    Differs(String),
    Matches(Regex),
}

/// Reason for which a filter is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FilterError {
    /// Events have no such field, or it cannot be tested.
    #[error("filter {filter:?}: unknown field {field:?}, must be \"topic\" or \"namespace\"")]
    Field {
        /// The filter.
        filter: String,
        /// The field.
        field: String,
    },
    /// The text between two commas has another form.
    #[error("filter {filter:?}: must be FIELD, FIELD==VALUE, FIELD!=VALUE or FIELD~=REGEX, at {rest:?}")]
    Form {
        /// The filter.
        filter: String,
        /// The filter from the condition on.
        rest: String,
    },
    /// A value is not a regular expression.
    #[error("filter {filter:?}: {regex:?} is not a regular expression")]
    Regex {
        /// The filter.
        filter: String,
        /// The value.
        regex: String,
    },
}

impl EventFilter {
    /// Returns whether an event meets all conditions.
    pub(crate) fn matches(&self, event: &Envelope) -> bool {
        self.0.iter().all(|condition| {
            let value = match condition.field {
                Field::Topic => &event.topic,
                Field::Namespace => &event.namespace,
            };
            match &condition.test {
                Test::IsPresent => !value.is_empty(),
                Test::Equals(other) => value == other,
                Test::Differs(other) => value != other,
                Test::Matches(regex) => regex.is_match(value),
            }
        })
    }
}

impl FromStr for EventFilter {
    type Err = FilterError;

    fn from_str(filter: &str) -> Result<Self, FilterError> {
        let mut conditions = Vec::new();
        let mut rest = filter;
        loop {
            let form = || FilterError::Form { filter: filter.to_owned(), rest: rest.to_owned() };
            let name_end = rest.find([',', '=', '!', '~']).unwrap_or(rest.len());
            let field = match &rest[..name_end] {
                "topic" => Field::Topic,
                "namespace" => Field::Namespace,
                field => {
                    let (filter, field) = (filter.to_owned(), field.to_owned());
                    return Err(FilterError::Field { filter, field });
                }
            };
            let after = &rest[name_end..];
            let (test, after) = match after.get(..2) {
                Some(operator @ ("==" | "!=" | "~=")) => {
                    let (value, after) = value(&after[2..]).ok_or_else(form)?;
                    (Test::new(operator, value, filter)?, after)
                }
                _ => (Test::IsPresent, after),
            };
            conditions.push(Condition { field, test });
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(Self(conditions)),
                None => return Err(form()),
            }
        }
    }
}

impl Test {
    fn new(operator: &str, value: String, filter: &str) -> Result<Self, FilterError> {
        match operator {
            "==" => Ok(Self::Equals(value)),
            "!=" => Ok(Self::Differs(value)),
            _ => match Regex::new(&value) {
                Ok(regex) => Ok(Self::Matches(regex)),
                Err(_) => Err(FilterError::Regex { filter: filter.to_owned(), regex: value }),
            },
        }
    }
}

/// Reads a value, which may be quoted, from the beginning of a text. Returns it and the rest;
/// `None` if it has no end.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let (mut value, mut characters) = (String::new(), quoted.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::TASK_EVENT_FILTER;
    use super::*;

    fn event(topic: &str, namespace: &str) -> Envelope {
        Envelope { topic: topic.to_owned(), namespace: namespace.to_owned(), ..Envelope::default() }
    }

    #[test]
    fn an_event_must_meet_all_conditions_of_a_filter() {
        let matches = |filter: &str, topic: &str, namespace: &str| {
            filter.parse::<EventFilter>().unwrap().matches(&event(topic, namespace))
        };
        assert!(matches(TASK_EVENT_FILTER, "/tasks/exit", "k8s.io"));
        assert!(!matches(TASK_EVENT_FILTER, "/tasks/exit", "moby"));
        assert!(!matches(TASK_EVENT_FILTER, "/images/create", "k8s.io"));
        assert!(matches("topic!=/tasks/exit", "/tasks/start", ""));
        assert!(!matches("topic,namespace", "/tasks/start", ""));
        assert!(matches(r#"topic=="a\"b,c",namespace"#, "a\"b,c", "n"));
    }

    #[test]
    fn an_invalid_filter_is_refused_with_its_reason() {
        for (filter, reason) in [
            ("event.id==1", "unknown field \"event.id\", must be"),
            ("topic==1,", "unknown field \"\""),
            ("topic==", "must be FIELD, FIELD==VALUE"),
            ("topic==\"x", "must be FIELD, FIELD==VALUE"),
            ("topic~=(", "\"(\" is not a regular expression"),
            ("topic=x", "must be FIELD, FIELD==VALUE"),
        ] {
            let error = filter.parse::<EventFilter>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(&format!("{filter:?}")), "{error}");
        }
    }
}
