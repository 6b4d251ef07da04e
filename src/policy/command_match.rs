//! Compares the command of a call with the patterns of many rules.

use std::sync::Arc;
use std::thread;

use super::command_pattern::{CommandPattern, MAX_COMMAND};
use super::offload::offload;

/// Maximum number of steps of automata that a thread of the relay takes for a call: a fraction of a
/// millisecond. More are taken by another thread.
const MAX_STEPS: usize = 128 << 10;

/// Number of steps after which the other thread offers its core to others, which may be threads of
/// the relay: they would otherwise wait until its time slice ends, which takes milliseconds. Longer
/// than any command takes.
const STEPS_AT_ONCE: usize = 64 << 10;

/// Number of steps that the beginning of a search costs.
const BEGIN: usize = 64;

/// The command of a call, with its arguments separated by spaces.
#[derive(Debug)]
pub(super) enum CommandLine {
    /// The call has no command.
    Absent,
    /// The command is longer than [`MAX_COMMAND`], and matches no pattern.
    TooLong,
    /// The command.
    Line(String),
}

/// The patterns that match the command of a call.
#[derive(Debug, Default)]
pub(super) struct Matching {
    by_place: Vec<bool>,
    /// Whether the command is too long for all.
    is_long: bool,
}

impl CommandLine {
    /// Joins a command and its arguments.
    pub(super) fn new(command: Option<&[String]>) -> Self {
        let Some(command) = command else { return Self::Absent };
        let mut line = String::new();
        for (place, argument) in command.iter().enumerate() {
            let space = usize::from(place > 0);
            if line.len() + space + argument.len() > MAX_COMMAND {
                return Self::TooLong;
            }
            if space > 0 {
                line.push(' ');
            }
            line.push_str(argument);
        }
        Self::Line(line)
    }

    /// Returns whether a pattern matches; `None` if the command is too long.
    pub(super) fn matches(&self, pattern: &CommandPattern) -> Option<bool> {
        match self {
            Self::Absent => Some(false),
            Self::TooLong => None,
            Self::Line(line) => Some(pattern.is_match(line)),
        }
    }

    /// Compares the command with the patterns that are `needed`. Takes the steps of many patterns
    /// on another thread, in turn with those for other `key`s.
    pub(super) async fn matching(
        self,
        patterns: &Arc<[CommandPattern]>,
        needed: Vec<usize>,
        key: Option<&str>,
    ) -> Matching {
        let line = match self {
            Self::Line(line) => line,
            Self::Absent => return Matching::default(),
            Self::TooLong => return Matching { is_long: true, ..Matching::default() },
        };
        let steps = (line.len() + BEGIN) * needed.len();
        let mut by_place = vec![false; patterns.len()];
        if steps <= MAX_STEPS {
            for place in needed {
                by_place[place] = patterns[place].is_match(&line);
            }
            return Matching { by_place, is_long: false };
        }

        let (patterns, at_once) = (patterns.clone(), STEPS_AT_ONCE / (line.len() + BEGIN));
        let compare = move || {
            for portion in needed.chunks(at_once) {
                for &place in portion {
                    by_place[place] = patterns[place].is_match(&line);
                }
                thread::yield_now();
            }
            by_place
        };
        let by_place = offload(key, compare).await;
        Matching { by_place, is_long: false }
    }
}

impl Matching {
    /// Returns whether the pattern at a place matches, if it was compared; `None` if the command is
    /// too long.
    pub(super) fn of(&self, place: usize) -> Option<bool> {
        (!self.is_long).then(|| self.by_place.get(place).is_some_and(|is_match| *is_match))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> CommandLine {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        CommandLine::new(Some(&arguments))
    }

    #[test]
    fn arguments_are_separated_by_spaces() {
        let is_line =
            |command: &CommandLine, text: &str| matches!(command, CommandLine::Line(line) if line == text);
        assert!(is_line(&line(&["cat", "", "/tmp/ok"]), "cat  /tmp/ok"));
        assert!(is_line(&line(&["", "x"]), " x"));
        assert!(is_line(&line(&[]), ""));
    }

    #[test]
    fn a_command_beyond_the_limit_matches_no_pattern() {
        let pattern = CommandPattern::new("a$").unwrap();
        let longest = "a".repeat(MAX_COMMAND - 2);
        assert_eq!(line(&["b", &longest]).matches(&pattern), Some(true));
        assert_eq!(line(&["bb", &longest]).matches(&pattern), None);
        assert_eq!(CommandLine::Absent.matches(&pattern), Some(false));
    }

    #[tokio::test]
    async fn many_patterns_match_as_few_do() {
        let patterns: Arc<[CommandPattern]> =
            (0..100).map(|number| CommandPattern::new(&format!("a{number}$")).unwrap()).collect();
        for length in [10, 4000] {
            for (needed, expected) in [((0..100).collect(), vec![7]), ((8..100).collect(), vec![])] {
                let command = line(&[&"a".repeat(length), "a7"]);
                let matching = command.matching(&patterns, needed, Some("c0")).await;
                let places: Vec<usize> = (0..100).filter(|place| matching.of(*place) == Some(true)).collect();
                assert_eq!(places, expected);
            }
        }
    }
}
