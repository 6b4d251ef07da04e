//! Tests that this machine cannot run.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Leaves the running test out, with the reason in the summary of `make test`. With CI=true it has failed instead.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} cannot be run: {reason}");
    if let Some(file) = std::env::var_os("PROBESHIM_SKIPPED") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{test}: {reason}").unwrap();
    }
}

/// Unwraps what a test needs, or ends the test as skipped.
macro_rules! need {
    ($what:expr) => {
        match $what {
            Ok(had) => had,
            Err(reason) => return crate::support::skip::skip(&reason),
        }
    };
}
#[allow(unused_imports, reason = "each test binary uses its own part")]
pub(crate) use need;
