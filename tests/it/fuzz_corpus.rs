//! The inputs in `fuzz/corpus`, with the bodies of the fuzz targets: seeds, inputs that libFuzzer
//! has found, and those that were the findings.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::thread;

use probeshim::fuzzing::TARGETS;

/// Maximum number of bytes of all inputs together.
const MAX_CORPUS_BYTES: usize = 2 << 20;

#[test]
fn each_input_in_the_corpora_of_the_fuzz_targets_is_handled() {
    let mut failed: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> =
            TARGETS.iter().map(|(name, body)| scope.spawn(move || failures(name, *body))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    failed.sort();
    assert!(failed.is_empty(), "to reproduce: cargo +nightly fuzz run TARGET INPUT\n{}", failed.join("\n"));
}

#[test]
fn each_fuzz_target_has_a_program_and_a_corpus_and_the_corpora_are_small() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert!(TARGETS.is_sorted_by_key(|(name, _)| name));
    let names = |dir: &str| -> BTreeSet<String> {
        files(&fuzz().join(dir))
            .iter()
            .map(|path| path.file_stem().unwrap().to_str().unwrap().into())
            .collect()
    };
    assert_eq!(names("fuzz_targets"), targets);
    assert_eq!(names("corpus"), targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let programs = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
    let programs: BTreeSet<String> = programs.map(|path| path.replace(".rs\"", "")).collect();
    assert_eq!(programs, targets);
    let size =
        |name: &String| -> usize { inputs(name).iter().map(|path| fs::read(path).unwrap().len()).sum() };
    let sizes: Vec<(usize, &String)> = targets.iter().map(|name| (size(name), name)).collect();
    assert!(sizes.iter().all(|(size, _)| *size > 0), "{sizes:?}");
    assert!(sizes.iter().map(|(size, _)| size).sum::<usize>() <= MAX_CORPUS_BYTES, "{sizes:?}");
}

/// Returns the inputs of a target at which its body panics.
fn failures(name: &str, body: fn(&[u8])) -> Vec<String> {
    let is_failure = |path: &PathBuf| {
        let input = fs::read(path).unwrap();
        panic::catch_unwind(AssertUnwindSafe(|| body(&input))).is_err()
    };
    let failed = inputs(name).into_iter().filter(is_failure);
    failed.map(|path| format!("{name} {}", path.display())).collect()
}

fn inputs(name: &str) -> Vec<PathBuf> {
    files(&fuzz().join("corpus").join(name))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}
