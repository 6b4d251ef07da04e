//! The one-line form of rules, which resembles failpoints.

use super::action::Action;
use super::when::When;
use super::{FaultStep, RuleError};
use crate::policy::call_match::CallMatch;

/// Form of a rule, for errors.
const FORM: &str = "must be METHOD KEY=VALUE…: TERM -> TERM…, such as \"ExecSync pod=default/web-*: 2*off -> 1*hang -> \
                    delay(500ms)\"";

/// The parts of a rule in the one-line form.
#[derive(Debug, Default)]
pub(super) struct OneLine {
    /// Name of the rule: `name=NAME`.
    pub(super) name: Option<String>,
    /// Whether the rule may select every call of every client: `all=true`.
    pub(super) all: bool,
    pub(super) matches: CallMatch,
    pub(super) when: When,
    pub(super) steps: Vec<FaultStep>,
}

/// Parses the criteria and the steps of a rule.
pub(super) fn parse(text: &str) -> Result<OneLine, RuleError> {
    let wrong = |reason: &str| RuleError::new(format!("rule {text:?}"), reason);
    let mut scanner = Scanner { rest: text };
    let mut parts = Vec::new();
    loop {
        let word = scanner.word().map_err(|reason| wrong(&reason))?;
        match word.strip_suffix(':') {
            Some("") if !parts.is_empty() => break,
            Some(last) if scanner.ended_plain(text) && !last.is_empty() => {
                parts.push(last.to_owned());
                break;
            }
            _ if word.is_empty() => return Err(wrong(FORM)),
            _ => parts.push(word),
        }
    }
    let mut rule = OneLine::default();
    let mut known: Vec<&str> = Vec::new();
    for (index, word) in parts.iter().enumerate() {
        let (key, value) = match word.split_once('=') {
            Some(pair) => pair,
            None if index == 0 => ("method", word.as_str()),
            None => return Err(wrong(FORM)),
        };
        if known.contains(&key) {
            return Err(RuleError::new(format!("{key}={value}"), "is given twice"));
        }
        known.push(key);
        rule.set(key, value).map_err(|reason| RuleError::new(format!("{key}={value}"), reason))?;
    }
    rule.steps = steps(scanner.rest).map_err(|error| match error {
        StepError::Form => wrong(FORM),
        StepError::Rule(error) => error,
    })?;
    Ok(rule)
}

impl OneLine {
    /// Sets a part. The error is a predicate about the value.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "name" => self.name = Some(value.to_owned()),
            "all" if value == "true" || value == "false" => self.all = value == "true",
            "all" => return Err("must be true or false".to_owned()),
            _ if When::KEYS.contains(&key) => return self.when.set(key, value),
            _ => return self.matches.set(key, value),
        }
        Ok(())
    }
}

/// Parses terms that are separated by `->`.
pub(super) fn steps(text: &str) -> Result<Vec<FaultStep>, StepError> {
    let mut steps = Vec::new();
    let mut scanner = Scanner { rest: text };
    loop {
        let times = scanner.times();
        let mut actions = Vec::new();
        loop {
            let (name, args) = scanner.action().ok_or(StepError::Form)?;
            if name != "off" || !args.is_empty() {
                actions.push(Action::new(&name, &args).map_err(StepError::Rule)?);
            }
            if !scanner.takes("+") {
                break;
            }
        }
        if times == Some(0) {
            let reason = "must be a whole number from 1";
            return Err(StepError::Rule(RuleError::new("the number before *", reason)));
        }
        steps.push(FaultStep { times, actions });
        if !scanner.takes("->") {
            break;
        }
    }
    if scanner.rest.trim().is_empty() { Ok(steps) } else { Err(StepError::Form) }
}

/// Reason why terms are invalid.
pub(super) enum StepError {
    /// The text does not have the form of terms.
    Form,
    /// A part is invalid.
    Rule(RuleError),
}

/// The rest of a text.
struct Scanner<'a> {
    rest: &'a str,
}

impl Scanner<'_> {
    /// Takes a word up to a space. Spaces in quotes are part of it; the quotes are not. Returns an
    /// empty word at the end.
    fn word(&mut self) -> Result<String, String> {
        self.rest = self.rest.trim_start();
        let mut word = String::new();
        while let Some(char) = self.rest.chars().next() {
            if char.is_whitespace() {
                break;
            }
            self.rest = &self.rest[char.len_utf8()..];
            if char == '\'' || char == '"' {
                let (inner, rest) =
                    self.rest.split_once(char).ok_or_else(|| format!("lacks a closing {char}"))?;
                word.push_str(inner);
                self.rest = rest;
            } else {
                word.push(char);
            }
        }
        Ok(word)
    }

    /// Returns whether the last character that was taken of `text` is a colon, and not a quote.
    fn ended_plain(&self, text: &str) -> bool {
        text[..text.len() - self.rest.len()].ends_with(':')
    }

    /// Takes a text, if it is next.
    fn takes(&mut self, text: &str) -> bool {
        match self.rest.trim_start().strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes the number of a term, such as `2*`.
    fn times(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.trim_start().split_once('*')?;
        let times = number.trim_end().parse().ok()?;
        self.rest = rest;
        Some(times)
    }

    /// Takes an action: its name and arguments.
    fn action(&mut self) -> Option<(String, Vec<String>)> {
        let text = self.rest.trim_start();
        let end = text.find(|char: char| !char.is_ascii_alphanumeric()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if name.is_empty() {
            return None;
        }
        self.rest = rest;
        let args = if self.takes("(") { self.args()? } else { Vec::new() };
        Some((name.to_owned(), args))
    }

    /// Takes arguments up to the closing parenthesis. A comma separates them, except in quotes.
    fn args(&mut self) -> Option<Vec<String>> {
        let (mut args, mut arg, mut was_quoted) = (Vec::new(), String::new(), false);
        loop {
            let char = self.rest.chars().next()?;
            self.rest = &self.rest[char.len_utf8()..];
            match char {
                '\'' | '"' => {
                    let (inner, rest) = self.rest.split_once(char)?;
                    if !was_quoted {
                        arg.drain(..arg.len() - arg.trim_start().len());
                    }
                    arg.push_str(inner);
                    (self.rest, was_quoted) = (rest, true);
                }
                ',' | ')' => {
                    args.push(if was_quoted { arg } else { arg.trim().to_owned() });
                    (arg, was_quoted) = (String::new(), false);
                    if char == ')' {
                        return Some(args);
                    }
                }
                // Space after a quoted argument is not part of it.
                char if was_quoted && char.is_whitespace() => {}
                char => arg.push(char),
            }
        }
    }
}
