//! Patterns of commands: regular expressions that are compiled to automata, whose memory and time
//! are bounded.
//!
//! An automaton takes one step for each byte of a command, whatever the pattern is. Equal patterns
//! share one automaton.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Maximum length in bytes of a command that is compared with patterns.
pub const MAX_COMMAND: usize = 4 << 10;

/// Maximum size in bytes of an automaton, and of the memory to build it.
const MAX_AUTOMATON: usize = 1 << 20;

/// Maximum size in bytes of all automata together.
const MAX_AUTOMATA: usize = 32 << 20;

/// The automata of the process.
static AUTOMATA: LazyLock<Arc<Automata>> = LazyLock::new(|| Arc::new(Automata::new(MAX_AUTOMATA)));

/// A pattern of commands. Clones share its automaton.
#[derive(Clone)]
pub(crate) struct CommandPattern(Arc<Compiled>);

struct Compiled {
    text: String,
    automaton: dense::DFA<Vec<u32>>,
    automata: Arc<Automata>,
}

/// The automata that are in use, by their patterns.
#[derive(Debug)]
struct Automata {
    /// Maximum size in bytes of all automata together.
    limit: usize,
    in_use: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    by_text: HashMap<String, Weak<Compiled>>,
    bytes: usize,
}

impl CommandPattern {
    /// Compiles a pattern. The error is a predicate about it.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        AUTOMATA.pattern(text)
    }

    /// Returns whether a part of a command matches. The command must not be longer than
    /// [`MAX_COMMAND`], so that the time is bounded.
    pub(super) fn is_match(&self, command: &str) -> bool {
        debug_assert!(command.len() <= MAX_COMMAND, "longer commands are not compared");
        let input = Input::new(command).anchored(Anchored::No).earliest(true);
        // A search fails at bytes at which the automaton gives up. This automaton has none.
        self.0.automaton.try_search_fwd(&input).is_ok_and(|end| end.is_some())
    }

    /// Returns a number that all equal patterns in use have, and no others.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.text, f)
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("text", &self.text).finish_non_exhaustive()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let mut in_use = self.automata.in_use();
        in_use.bytes -= self.automaton.memory_usage();
        // An equal pattern may have been compiled since the last use of this one ended.
        if in_use.by_text.get(&self.text).is_some_and(|known| known.strong_count() == 0) {
            in_use.by_text.remove(&self.text);
        }
    }
}

impl Automata {
    fn new(limit: usize) -> Self {
        Self { limit, in_use: Mutex::default() }
    }

    /// Returns the pattern with this text, which is compiled if it is not in use. The error is a
    /// predicate about it.
    fn pattern(self: &Arc<Self>, text: &str) -> Result<CommandPattern, String> {
        if let Some(known) = self.in_use().by_text.get(text).and_then(Weak::upgrade) {
            return Ok(CommandPattern(known));
        }
        let automaton = compile(text)?;
        let bytes = automaton.memory_usage();
        let mut in_use = self.in_use();
        // Another thread may have compiled an equal pattern in the meantime.
        if let Some(known) = in_use.by_text.get(text).and_then(Weak::upgrade) {
            return Ok(CommandPattern(known));
        }
        if in_use.bytes + bytes > self.limit {
            let (used, limit) = (in_use.bytes >> 10, self.limit >> 10);
            return Err(format!(
                "needs {} KiB, and the patterns of the other rules have {used} KiB of the {limit} KiB that all may \
                 have",
                bytes.div_ceil(1 << 10)
            ));
        }
        in_use.bytes += bytes;
        let compiled = Arc::new(Compiled { text: text.to_owned(), automaton, automata: self.clone() });
        in_use.by_text.insert(text.to_owned(), Arc::downgrade(&compiled));
        Ok(CommandPattern(compiled))
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        // The sum stays valid whatever panicked.
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compiles a pattern to an automaton that finds it anywhere in a command. The error is a
/// predicate about it.
fn compile(text: &str) -> Result<dense::DFA<Vec<u32>>, String> {
    // Classes such as `\w` are those of ASCII: the automata of Unicode's are a hundred times
    // larger.
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let parsed = syntax::parse_with(text, &syntax);
    let hir =
        parsed.map_err(|error| format!("must be a regular expression: {}", cause(&error.to_string())))?;
    let limits = thompson::Config::new().utf8(false).nfa_size_limit(Some(MAX_AUTOMATON));
    let nfa = thompson::Compiler::new().configure(limits).build_from_hir(&hir);
    let nfa = nfa.map_err(|error| match error.size_limit() {
        Some(_) => too_large(),
        None => format!("must be a simpler regular expression: {error}"),
    })?;
    let limits = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .dfa_size_limit(Some(MAX_AUTOMATON))
        .determinize_size_limit(Some(MAX_AUTOMATON));
    dense::Builder::new().configure(limits).build_from_nfa(&nfa).map_err(|error| {
        if error.is_size_limit_exceeded() {
            too_large()
        } else {
            format!("must be a simpler regular expression: {error}")
        }
    })
}

fn too_large() -> String {
    format!(
        "must be a simpler regular expression: its automaton would need more than {} KiB",
        MAX_AUTOMATON >> 10
    )
}

/// Returns the last line of an error of a regular expression, which has its cause.
fn cause(error: &str) -> &str {
    let line = error.lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, command: &str) -> bool {
        CommandPattern::new(pattern).unwrap().is_match(command)
    }

    #[test]
    fn a_pattern_matches_a_part_of_a_command() {
        for (pattern, command) in [
            ("ready", "pg_isready -U app"),
            ("^pg_isready", "pg_isready -U app"),
            (r"-U \w+$", "pg_isready -U app"),
            (r"\bisready\b|\bping\b", "redis-cli ping"),
            ("(?i)PING", "redis-cli ping"),
            ("caf.", "cat /café"),
            ("/café$", "cat /café"),
            ("", ""),
        ] {
            assert!(matches(pattern, command), "{pattern:?} in {command:?}");
        }
        for (pattern, command) in
            [("^isready", "pg_isready"), (r"\bready", "pg_isready"), ("PING", "redis-cli ping"), ("a", "")]
        {
            assert!(!matches(pattern, command), "{pattern:?} in {command:?}");
        }
    }

    #[test]
    fn a_pattern_that_is_invalid_or_too_large_is_refused_with_the_reason() {
        for (pattern, reason) in [
            ("(", "must be a regular expression: unclosed group"),
            ("[b-a]", "must be a regular expression: invalid character class range"),
            ("a.{20}b", "must be a simpler regular expression: its automaton would need more than 1024 KiB"),
            (
                "((((a{30}){30}){30}){30})",
                "must be a simpler regular expression: its automaton would need more than 1024 KiB",
            ),
            (r"(?u:\b)a", "must be a simpler regular expression: "),
        ] {
            let error = CommandPattern::new(pattern).unwrap_err();
            assert!(error.starts_with(reason), "{pattern}: {error}");
        }
    }

    #[test]
    fn all_automata_together_have_a_limit_and_equal_patterns_share_one() {
        let automata = Arc::new(Automata::new(3000));
        let first = automata.pattern("cat.*health").unwrap();
        let same: Vec<_> = (0..100).map(|_| automata.pattern("cat.*health").unwrap()).collect();
        assert!(same.iter().all(|pattern| pattern.id() == first.id()));
        let error = automata.pattern("cat.*ready").unwrap_err();
        assert_eq!(
            error,
            "needs 2 KiB, and the patterns of the other rules have 1 KiB of the 2 KiB that all may have"
        );
        drop((first, same));
        assert_eq!(automata.in_use().bytes, 0);
        assert!(automata.in_use().by_text.is_empty());
        automata.pattern("cat.*ready").unwrap();
    }
}
