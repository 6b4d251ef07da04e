//! The tables of docs/parity.md: their form, the tests that they name, and the table of totals,
//! which `make generate` writes. The suite `parity` checks the upstream functions.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fixtures::parity_page::{PARITY_PAGE, ParityRow, ParityTopic, STATES, parity_topics};
use regex::Regex;

use super::WRITE;
use crate::layout;
use crate::prose::anchor;

/// Lines before and after the table of totals.
const MARKERS: [&str; 2] = ["<!-- totals, written by `make generate` -->\n", "<!-- end of totals -->\n"];

#[test]
fn the_totals_of_the_parity_page_match_its_tables() {
    let path = root().join(PARITY_PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(MARKERS[0]).expect("the page has the first marker");
    let (_, after) = rest.split_once(MARKERS[1]).expect("the page has the second marker");
    let text = [before, MARKERS[0], "\n", &totals(&parity_topics()), "\n", MARKERS[1], after].concat();
    if std::env::var_os(WRITE).is_some() {
        fs::write(path, text).unwrap();
    } else {
        assert!(page == text, "the totals of {PARITY_PAGE} are out of date; run `make generate`");
    }
}

#[test]
fn every_topic_of_the_parity_page_has_one_table() {
    let topics = parity_topics();
    let headings: BTreeSet<&str> = topics.iter().map(|topic| topic.heading.as_str()).collect();
    assert!(headings.len() > 5 && headings.len() == topics.len(), "{headings:?}");
    for ParityTopic { heading, rows, tables } in &topics {
        assert_eq!(*tables, 1, "tables of {heading:?}");
        assert!(!rows.is_empty(), "{heading:?} has no rows");
    }
    let rows: Vec<_> = topics.iter().flat_map(|topic| &topic.rows).map(|row| &row.cells).collect();
    assert!(rows.len() > 100, "{rows:#?}");
    let distinct: BTreeSet<_> = rows.iter().collect();
    assert_eq!(distinct.len(), rows.len(), "a row is repeated");
}

/// Each row has a rule, a state, upstream functions and tests. A row that is only here names no
/// upstream function.
#[test]
fn every_row_of_the_parity_page_has_four_complete_cells() {
    let mut violations = Vec::new();
    for row in parity_topics().iter().flat_map(|topic| &topic.rows) {
        let mut check = |holds: bool, problem: &str| {
            if !holds {
                violations.push(format!("{PARITY_PAGE}:{}: {problem}", row.line));
            }
        };
        check(row.cells.len() == 4, "a row has four cells");
        check(row.cells.iter().all(|cell| !cell.is_empty()), "no cell is empty");
        let Some(state) = row.state() else {
            check(false, &format!("the second cell begins with one of {STATES:?}"));
            continue;
        };
        let is_repeated = |found: &str| STATES.iter().any(|state| found.starts_with(&format!("{state}:")));
        let sentences = row.cells[1].split(['.', ';']).skip(1);
        check(!sentences.map(str::trim_start).any(is_repeated), "a row has one state");
        check(state == "same" || row.cells[1] != state, "a state other than same has a reason");
        match row.upstream() {
            None => check(false, "upstream is `path`: `function`, `function`; `path`: `function`"),
            Some(functions) => {
                check(functions.is_empty() == (state == "only here"), "only `only here` has upstream none");
                check(functions.values().all(|names| !names.is_empty()), "a file has a function");
            }
        }
        check(row.tests().is_some(), "tests are `name`, `name`; not tested: reason");
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

/// Each row that is the same as in the kubelet names a test. A row of any state names only tests
/// that exist: functions, stories of pods, and targets of the Makefile.
#[test]
fn every_rule_that_is_the_same_as_in_the_kubelet_names_its_test() {
    let tests = test_functions();
    assert!(tests.contains("every_rule_that_is_the_same_as_in_the_kubelet_names_its_test"), "{tests:?}");
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let exists = |name: &str| {
        let is_story = || root().join("tests/e2e/pods").join(format!("{name}.story")).exists();
        let is_target = |target| makefile.contains(&format!("\n{target}:"));
        tests.contains(name) || is_story() || name.strip_prefix("make ").is_some_and(is_target)
    };
    let mut violations = Vec::new();
    for row in parity_topics().iter().flat_map(|topic| &topic.rows) {
        let names = row.tests().unwrap_or_default();
        let unknown = names.iter().filter(|name| !exists(name));
        violations.extend(unknown.map(|name| format!("{PARITY_PAGE}:{}: no test {name}", row.line)));
        if row.state() == Some("same") && names.is_empty() {
            violations.push(format!("{PARITY_PAGE}:{}: a row that is the same names a test", row.line));
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn cells_of_the_parity_page_are_parsed() {
    let row = |state: &str, upstream: &str, tests: &str| ParityRow {
        line: 1,
        cells: ["rule", state, upstream, tests].map(str::to_owned).to_vec(),
    };
    let complete = row("not built: no use", "`a/b.go`: `f`, `g`; `c.go`: `h`", "`t`, `u`; not tested: why");
    assert_eq!(complete.state(), Some("not built"));
    assert_eq!(complete.upstream().unwrap(), [("a/b.go", vec!["f", "g"]), ("c.go", vec!["h"])].into());
    assert_eq!(complete.tests(), Some(vec!["t", "u"]));
    assert_eq!(row("same", "none", "`t`").upstream().unwrap(), [].into());
    assert_eq!(row("same", "none", "`t`").tests(), Some(vec!["t"]));
    assert_eq!(row("same", "none", "not tested: why").tests(), Some(vec![]));
    for (state, upstream, tests) in
        [("samey", "`a.go`", "t"), ("Same", "`a.go`: f", "`t` `u`"), ("none", "", "`t` not tested: why")]
    {
        let row = row(state, upstream, tests);
        assert_eq!((row.state(), row.upstream(), row.tests()), (None, None, None), "{row:?}");
    }
}

/// Returns the table of totals: one row per topic, with a link to its section, and the sums.
fn totals(topics: &[ParityTopic]) -> String {
    let mut text = "| Topic | Same | Different | Not built | Only here |\n|---|--:|--:|--:|--:|\n".to_owned();
    let mut row = |topic: &str, totals: &[usize]| {
        let cells: Vec<String> = totals.iter().map(ToString::to_string).collect();
        writeln!(text, "| {topic} | {} |", cells.join(" | ")).unwrap();
    };
    let mut sums = [0; STATES.len()];
    for topic in topics {
        let totals = topic.totals();
        sums.iter_mut().zip(totals).for_each(|(sum, count)| *sum += count);
        row(&format!("[{}](#{})", topic.heading, anchor(&topic.heading)), &totals);
    }
    row("All topics", &sums);
    text
}

/// Returns the names of all test functions of this repository.
fn test_functions() -> BTreeSet<String> {
    let mut files = Vec::new();
    for directory in ["exec-helper/src", "src", "tests"] {
        layout::collect(&root().join(directory), &mut files);
    }
    let attribute =
        Regex::new(r"#\[(?:tokio::)?test\b[^\]]*\]\s+(?:#\[[^\]]*\]\s+)*(?:async )?fn (\w+)").unwrap();
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(file).unwrap();
        names.extend(attribute.captures_iter(&text).map(|found| found[1].to_owned()));
    }
    names
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
