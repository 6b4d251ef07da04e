//! Rules in documents: `faults` of the configuration file.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;

use super::action::Action;
use super::one_line::{self, OneLine, StepError};
use super::when::When;
use super::{FaultRule, FaultStep, RuleError, check_name};
use crate::duration;
use crate::manifest::cursor::{Cursor, Violation};
use crate::policy::call_match::CallMatch;
use crate::policy::lifetime::is_lifetime;

/// Reads the rules of a list. Their names must differ.
pub(crate) fn rules(list: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<FaultRule> {
    let (mut rules, mut names) = (Vec::new(), HashSet::new());
    for node in list.list(problems) {
        let Some(read) = rule(&node, problems) else { continue };
        if names.insert(read.name.clone()) {
            rules.push(read);
        } else {
            node.duplicate("name", &read.name, problems);
        }
    }
    rules
}

/// Reads a rule: either `rule` in the one-line form, or `match`, `when` and `do`.
pub(super) fn rule(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<FaultRule> {
    node.object(problems)?;
    node.deny_unknown(&["name", "rule", "match", "when", "do", "for", "all"], problems);
    let before = problems.len();
    let name = node.field("name").and_then(|name| name.text(problems));
    if name.is_none() && problems.len() == before {
        node.missing("name", "must be a name of 1 to 63 letters, digits, -, _ and .", problems);
    }
    let name = name.unwrap_or_default();
    if problems.len() == before
        && let (Err(error), Some(node)) = (check_name(&name), node.field("name"))
    {
        node.error(error.reason, problems);
    }
    let lifetime = lifetime(node, problems);
    let mut all = node.field("all").and_then(|all| all.flag(problems)).unwrap_or(false);
    let parts = match node.field("rule") {
        Some(text) => {
            for field in ["match", "when", "do"] {
                if let Some(other) = node.field(field) {
                    other.forbidden("must not be set together with rule", problems);
                }
            }
            parsed(&text, problems).map(|OneLine { all: also_all, matches, when, steps, .. }| {
                all |= also_all;
                (matches, when, steps)
            })
        }
        None => Some((call_match(node, problems), when(node, problems), steps(node, problems))),
    };
    if problems.len() > before {
        return None;
    }
    let (matches, when, steps) = parts?;
    let rule = FaultRule { name: name.into(), matches, when, steps, lifetime };
    match rule.validated(all) {
        Ok(rule) => Some(rule),
        Err(error) => {
            let part = node.field("rule").or_else(|| node.field("do"));
            part.as_ref().unwrap_or(node).error(error.to_string(), problems);
            None
        }
    }
}

/// Reads the mandatory lifetime.
fn lifetime(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Duration> {
    let reason = "must be a duration above 0s and up to 24h, such as 10m: each rule ends by itself";
    let Some(field) = node.field("for") else {
        node.missing("for", reason, problems);
        return None;
    };
    let text = word(&field, problems)?;
    let lifetime = duration::parse(&text).filter(|it| is_lifetime(*it));
    if lifetime.is_none() {
        field.error(reason, problems);
    }
    lifetime
}

fn parsed(text: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<OneLine> {
    let parts = one_line::parse(&text.text(problems)?);
    let parts = parts.map_err(|error| text.error(error.to_string(), problems)).ok()?;
    if parts.name.is_some() {
        text.error("must not set a name: name is a field of its own here", problems);
    }
    Some(parts)
}

fn call_match(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> CallMatch {
    let mut matches = CallMatch::default();
    let Some(node) = node.field("match") else { return matches };
    let Some(fields) = node.object(problems) else { return matches };
    for key in fields.keys() {
        let Some(field) = node.field(key) else { continue };
        if key == "labels" {
            for label in field.object(problems).into_iter().flat_map(|labels| labels.keys()) {
                set(&field, label, |value| matches.set(&format!("label.{label}"), value), problems);
            }
        } else if CallMatch::KEYS.contains(&key.as_str()) {
            set(&node, key, |value| matches.set(key, value), problems);
        } else {
            let known: Vec<&str> = CallMatch::KEYS.into_iter().chain(["labels"]).collect();
            node.unknown_field(key, &known, problems);
        }
    }
    matches
}

fn when(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> When {
    let mut when = When::default();
    let Some(node) = node.field("when") else { return when };
    node.deny_unknown(&When::KEYS, problems);
    for key in When::KEYS {
        set(&node, key, |value| when.set(key, value), problems);
    }
    when
}

/// Reads a field, and passes it to `set`.
fn set(
    node: &Cursor<'_>,
    key: &str,
    set: impl FnOnce(&str) -> Result<(), String>,
    problems: &mut Vec<Violation>,
) {
    let Some(field) = node.field(key) else { return };
    if let Some(text) = word(&field, problems)
        && let Err(reason) = set(&text)
    {
        field.error(reason, problems);
    }
}

/// Reads a text, or a number or boolean as a text.
fn word(field: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<String> {
    match field.value() {
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => field.text(problems),
    }
}

/// Reads `do`: an action, several in order, or a list of steps.
fn steps(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<FaultStep> {
    let Some(node) = node.field("do") else {
        node.missing("do", "must be an action, such as delay: 500ms", problems);
        return Vec::new();
    };
    match node.value() {
        Value::Array(_) => {
            let steps = node.list(problems);
            steps.iter().map(|step| self::step(step, problems)).collect()
        }
        Value::String(text) => match one_line::steps(text) {
            Ok(steps) => steps,
            Err(StepError::Rule(error)) => {
                node.error(error.to_string(), problems);
                Vec::new()
            }
            Err(StepError::Form) => {
                node.error("must be TERM -> TERM…, such as 2*off -> delay(500ms)", problems);
                Vec::new()
            }
        },
        _ => vec![step(&node, problems)],
    }
}

/// Reads one step: its actions, and the number of times.
fn step(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> FaultStep {
    let mut step = FaultStep { times: None, actions: Vec::new() };
    if node.object(problems).is_none() {
        return step;
    }
    let known: Vec<&str> = ["times", "off"].into_iter().chain(Action::names()).collect();
    node.deny_unknown(&known, problems);
    let range = 1..=i64::from(i32::MAX);
    step.times =
        node.field("times").and_then(|times| times.number(range, "must be a whole number from 1", problems));
    for name in Action::names() {
        let Some(field) = node.field(name) else { continue };
        match (name, field.value()) {
            ("hang" | "drop" | "refuse" | "goaway", Value::Bool(is_set)) => {
                if *is_set {
                    add(&mut step, &field, name, &[], problems);
                }
            }
            ("hang" | "drop" | "refuse" | "goaway", _) => field.error("must be true or false", problems),
            ("set", Value::Object(fields)) => {
                for path in fields.keys() {
                    let Some(value) = field.field(path) else { continue };
                    let Some(text) = word(&value, problems) else { continue };
                    add(&mut step, &value, name, &[format!("{path}={text}")], problems);
                }
            }
            ("remove", Value::Array(_)) => {
                for path in field.list(problems) {
                    if let Some(text) = path.text(problems) {
                        add(&mut step, &path, name, &[text], problems);
                    }
                }
            }
            (_, Value::Object(_)) => {
                let args = arguments(name, &field, problems);
                add(&mut step, &field, name, &args, problems);
            }
            _ => {
                if let Some(text) = word(&field, problems) {
                    add(&mut step, &field, name, &[text], problems);
                }
            }
        }
    }
    step
}

/// Returns the arguments of an action that is written as an object.
fn arguments(name: &str, node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<String> {
    let fields: &[&str] = match name {
        "delay" => &["fixedDelay", "jitter"],
        "abort" => &["grpcStatus", "message", "details"],
        "truncate" => &["messages", "grpcStatus"],
        "exit" => &["exitCode", "stdout", "stderr"],
        _ => {
            node.error("must be a single value", problems);
            return Vec::new();
        }
    };
    node.deny_unknown(fields, problems);
    let mut values: Vec<Option<String>> =
        fields.iter().map(|name| node.field(name).and_then(|field| word(&field, problems))).collect();
    while values.last().is_some_and(Option::is_none) {
        values.pop();
    }
    values.into_iter().map(Option::unwrap_or_default).collect()
}

fn add(step: &mut FaultStep, node: &Cursor<'_>, name: &str, args: &[String], problems: &mut Vec<Violation>) {
    match Action::new(name, args) {
        Ok(action) => step.actions.push(action),
        Err(RuleError { reason, .. }) => node.error(reason, problems),
    }
}
