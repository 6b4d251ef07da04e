//! Answers of probeshim to the questions about an incident, and the score.

use std::fmt;

use super::incident::{About, Incident};

/// A program that answers questions: a command line of probeshim, and its output.
pub(crate) type Ask<'a> = &'a dyn Fn(&[&str]) -> Result<String, String>;

/// Diagnosis of an incident.
#[derive(Debug)]
pub(crate) struct Diagnosis {
    incident: String,
    cause: String,
    /// Condition that was not reached.
    missed: Option<String>,
    answers: Vec<Answer>,
}

/// An answer of a command.
#[derive(Debug)]
struct Answer {
    command: &'static str,
    text: String,
    unmet: Vec<String>,
}

/// Number of right answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    right: usize,
    all: usize,
}

impl Diagnosis {
    /// Reads the answers about an incident. `pod` is the name of its pod.
    pub(crate) fn read(incident: &Incident, pod: &str, missed: Option<String>, ask: Ask<'_>) -> Self {
        let mut answers = Vec::new();
        // An error is no answer, whatever it says.
        let mut answer = |command, text: Result<String, String>, unmet_by: &dyn Fn(&str) -> Vec<String>| {
            let unmet =
                text.as_ref().map_or_else(|_| vec!["must not fail".to_owned()], |text| unmet_by(text));
            answers.push(Answer { command, text: text.unwrap_or_else(|error| error), unmet });
        };
        let of_pod = ["--namespace", "e2e", "--pod", pod];
        if let Some(explained) = &incident.explain {
            let flags: Vec<&str> = explained.call.split_whitespace().collect();
            let text = ask(&[&["explain"], &flags[..], &of_pod].concat());
            answer("explain", text, &|text| explained.expected.unmet_by(text));
        }
        if let Some(linted) = &incident.lint {
            let found = ask(&["lint"]).map(|text| findings_about(&text, linted.about, pod));
            answer("lint", found, &|text| linted.unmet_by(&paragraphs(text)));
        }
        if let Some(expected) = &incident.describe {
            let text = ask(&["describe", &format!("pod/{pod}"), "--namespace", "e2e"]);
            answer("describe", text, &|text| expected.unmet_by(text));
        }
        Self { incident: incident.name.clone(), cause: incident.cause.clone(), missed, answers }
    }

    /// Reads the findings about a node after all its incidents: its runtime answered all the time.
    pub(crate) fn read_node(name: &str, ask: Ask<'_>) -> Self {
        let found = ask(&["lint"]).map(|text| findings_about(&text, About::Node, ""));
        let is_wrong = |finding: &&str| {
            ["hanging-runtime", "runtime-unavailable", "runtime-lost"]
                .iter()
                .any(|lint| finding.contains(lint))
        };
        let unmet = match &found {
            Ok(text) => paragraphs(text).into_iter().filter(is_wrong).map(str::to_owned).collect(),
            Err(_) => vec!["must not fail".to_owned()],
        };
        let answer = Answer { command: "lint", text: found.unwrap_or_else(|error| error), unmet };
        let cause = "The runtime answered every call.".to_owned();
        Self { incident: name.to_owned(), cause, missed: None, answers: vec![answer] }
    }

    /// Returns the number of right answers.
    pub(crate) fn score(&self) -> Score {
        let right = self.answers.iter().filter(|answer| self.missed.is_none() && answer.unmet.is_empty());
        Score { right: right.count(), all: self.answers.len() }
    }
}

impl fmt::Display for Diagnosis {
    /// Writes a line with the results, and the complete answers that are wrong, or all answers if
    /// the variable `DIAGNOSE_ANSWERS` is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<24}", self.incident)?;
        for Answer { command, unmet, .. } in &self.answers {
            write!(f, " {command} {:<6}", if unmet.is_empty() { "ok" } else { "WRONG" })?;
        }
        if let Some(missed) = &self.missed {
            write!(f, " NOT REACHED: {missed}")?;
        }
        if !self.score().is_full() {
            write!(f, "\n    cause: {}", self.cause)?;
        }
        for Answer { command, text, unmet } in &self.answers {
            if !unmet.is_empty() || std::env::var_os("DIAGNOSE_ANSWERS").is_some() {
                for expectation in unmet {
                    write!(f, "\n    {command} {expectation}")?;
                }
                for line in text.lines() {
                    write!(f, "\n    | {line}")?;
                }
            }
        }
        Ok(())
    }
}

impl Score {
    pub(crate) fn is_full(self) -> bool {
        self.right == self.all
    }
}

impl std::iter::Sum for Score {
    fn sum<I: Iterator<Item = Self>>(scores: I) -> Self {
        scores.fold(Self::default(), |sum, score| Self {
            right: sum.right + score.right,
            all: sum.all + score.all,
        })
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} right", self.right, self.all)
    }
}

/// Returns the findings, in the output of `lint`, that name a pod, or those about the node.
fn findings_about(text: &str, about: About, pod: &str) -> String {
    let name = regex::Regex::new(&format!(r"\be2e/{}(\W|$)", regex::escape(pod))).unwrap();
    let is_about = |finding: &&str| match about {
        About::Pod => name.is_match(finding),
        About::Node => finding.lines().next().is_some_and(|line| line.contains(": node")),
    };
    paragraphs(text).into_iter().filter(is_about).collect::<Vec<_>>().join("\n\n")
}

/// Returns the findings of `lint`, which blank lines separate, without the last line about all.
fn paragraphs(text: &str) -> Vec<&str> {
    let is_finding =
        |text: &&str| ["error ", "warning ", "info "].iter().any(|severity| text.starts_with(severity));
    text.split("\n\n").filter(is_finding).collect()
}
