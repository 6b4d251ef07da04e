//! What is said of calls, word for word. To look at what has changed: `INSTA_UPDATE=always cargo test --test it explain`, and the diff.

use std::fmt::Write as _;

use probeshim::execsync::{CallRecord, explain};
use probeshim::history::json::Call;
use serde::Deserialize;

/// A call, as it is recorded, and what is remarkable about it.
#[derive(Deserialize)]
struct Case {
    name: String,
    call: Call,
}

#[test]
fn every_case_is_said_in_words() {
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
