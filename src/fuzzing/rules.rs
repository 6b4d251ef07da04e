//! Fault rules, in the one-line form and in a document, and selectors of pauses.

use serde_json::Value;

use super::text::assert_harmless;
use crate::cri::{FieldMessage, Method};
use crate::manifest::cursor::Cursor;
use crate::policy::{self, Action, CallMatch, FaultRule, PauseSelector};
use crate::terminal::harmless_text;

/// Name of a rule that has none.
const NAME: &str = "rule";

/// Parses a text as each form of a rule and of a selector. A text that a rule or a selector is
/// written as is parsed to the same one.
pub(super) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let all = text.len() % 2 == 0;
    if let Ok(rule) = FaultRule::parse(NAME, text, None, all) {
        assert_reads_back(&rule);
        apply(&rule);
    }
    if let Ok(selector) = text.parse::<PauseSelector>() {
        let shown = selector.to_string();
        assert_eq!(shown.parse(), Ok(selector), "{shown:?}");
    }
    if let Ok(document) = serde_saphyr::from_str::<Value>(text) {
        let mut problems = Vec::new();
        let rules = policy::rules(&Cursor::root("faults", &document), &mut problems);
        rules.iter().for_each(assert_reads_back);
        for problem in problems {
            assert_harmless(&harmless_text(&problem.to_string()));
        }
    }
}

/// Asserts that the text of a rule is read as the same rule.
fn assert_reads_back(rule: &FaultRule) {
    let shown = rule.to_string();
    let read = FaultRule::parse(&rule.name, &shown, rule.lifetime, true);
    let read = read.unwrap_or_else(|error| panic!("{shown:?}: {error}"));
    assert_eq!(read.to_string(), shown);
    assert_eq!(parts(&read), parts(rule), "{shown:?}");
}

/// Returns the parts of a rule as text. A rule that selects no method in a document selects all
/// methods, as `*` does in the one-line form.
fn parts(rule: &FaultRule) -> String {
    let FaultRule { name, matches, when, steps, lifetime } = rule;
    let CallMatch { selector, command, client, probe, .. } = matches;
    let methods: Vec<Method> = matches.methods().collect();
    format!(
        "{name} {methods:?} {selector:?} {command:?} {client:?} {probe:?} {when:?} {steps:?} {lifetime:?}"
    )
}

/// Applies the changes of a rule to messages without fields.
fn apply(rule: &FaultRule) {
    for action in rule.steps.iter().flat_map(|step| &step.actions) {
        let (Action::Set(side, path, _) | Action::Remove(side, path)) = action else { continue };
        for method in rule.matches.methods() {
            let Some(mut message) = FieldMessage::decode(method, *side, &[]) else { continue };
            match action {
                Action::Set(_, _, value) => message.set(path, value),
                _ => message.remove(path),
            };
            assert!(FieldMessage::decode(method, *side, &message.encode()).is_some(), "{rule}");
        }
    }
}
