//! Tests that this machine cannot run.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Leaves a test out, with the reason in the summary of `make test`. With CI=true a test that is left out has failed.
pub(crate) fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} cannot be run: {reason}");
    if let Some(file) = std::env::var_os("PROBESHIM_SKIPPED") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{test}: {reason}").unwrap();
    }
}

/// What a test needs, or its end where that is not to be had.
macro_rules! need {
    ($what:expr) => {
        match $what {
            Ok(had) => had,
            Err(reason) => return crate::skip::skip(module_path!(), &reason),
        }
    };
}
pub(crate) use need;
