//! Runs the exec helper.

use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "the helper has no log")]
fn main() -> ExitCode {
    match exec_helper::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Only a user who starts a helper by hand sees this error.
            let hint = "only `probeshim run` and `probeshim play` start an exec helper";
            eprintln!("probeshim-exec-helper: {hint}: {error}");
            ExitCode::FAILURE
        }
    }
}
