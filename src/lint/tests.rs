//! Tests of the lints together.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::fixture::Fixture;
use super::*;
use crate::events::reason;

#[test]
fn the_worst_finding_comes_first_and_quick_attempts_have_none() {
    assert_eq!(lint(&Fixture::new().build()), []);
    assert_eq!(lint(&Fixture::new().attempts(200, 10).build()), []);
    let leaked = "A process (pid 9) still runs 5.00s after call 7 ended: sleep 1";
    let facts = Fixture::new().event(reason::EXEC_PROCESS_LEAKED, leaked);
    let facts = facts.command(&["sh", "-c", "check now"]).attempts(20, 10).timeouts(4);
    let found: Vec<(&str, Severity)> =
        lint(&facts.build()).iter().map(|found| (found.lint, found.severity)).collect();
    let expected = [
        ("timeout", Severity::Error),
        ("leaked-process", Severity::Warning),
        ("shell-for-one-program", Severity::Info),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_guide_describes_each_lint() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/lint.md");
    let guide = fs::read_to_string(guide).unwrap();
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let described: BTreeSet<&str> = rows.collect();
    assert_eq!(described, LINTS.into_iter().collect());
}
