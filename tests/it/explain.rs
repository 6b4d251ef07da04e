//! Sentences of `explain` about recorded calls, word for word. After a change, run
//! `INSTA_UPDATE=always cargo test --test it explain` and review the diff.

use std::fmt::Write as _;

use probeshim::execsync::{CallRecord, explain};
use probeshim::history::json::Call;
use serde::Deserialize;

/// A call record and the property that makes it a test case.
#[derive(Deserialize)]
struct Case {
    name: String,
    call: Call,
}

#[test]
fn explain_has_sentences_for_every_case() {
    let mut said = String::new();
    for line in include_str!("explain.jsonl").lines() {
        let Case { name, call } = serde_json::from_str(line).unwrap();
        let record = CallRecord::try_from(call).unwrap();
        writeln!(said, "# {name}").unwrap();
        for sentence in explain(&record) {
            writeln!(said, "{sentence}").unwrap();
        }
        said.push('\n');
    }
    insta::assert_snapshot!(said);
}
