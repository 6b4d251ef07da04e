//! procrun beside containerd: every mistake of a client is told with the same code and in the same words, which are in one table.

use std::fs;
use std::path::Path;

use crate::real::containerd::{Containerd, Version};
use crate::real::life::Runtime;
use crate::real::mistakes;
use crate::real::procrun::Procrun;
use crate::support::skip::need;

/// What containerd 2.2 says.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/mistakes.txt");

#[tokio::test]
async fn mistakes_are_told_by_procrun_as_in_the_table() {
    compare(&Procrun::start()).await;
}

#[tokio::test]
async fn mistakes_are_told_by_containerd_as_in_the_table() {
    compare(&need!(Containerd::start(Version::V2_2))).await;
}

async fn compare(runtime: &impl Runtime) {
    let told = mistakes::all(&runtime.socket(), runtime.folder()).await;
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let table = fs::read_to_string(Path::new(TABLE)).unwrap();
    let table: Vec<&str> = table.lines().collect();
    let differing: Vec<_> = told.iter().zip(&table).filter(|(told, in_table)| told != in_table).collect();
    assert!(differing.is_empty(), "what was told, and what is in the table:\n{differing:#?}");
    assert_eq!(told.len(), table.len());
}
