//! The program of the exec helper, for `src/direct/helper_process.rs`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the helper's package and program.
const PACKAGE: &str = "probeshim-exec-helper";

/// Builds the helper in a directory of its own, because cargo has locked that of probeshim. Returns
/// the path of the program.
pub(crate) fn build(root: &Path, out: &Path) -> PathBuf {
    let target = variable("TARGET");
    // The directory of the profile `dev` is `debug`.
    let (profile, profile_dir) = match variable("PROFILE").as_str() {
        "release" => ("exec-helper", "exec-helper"),
        _ => ("dev", "debug"),
    };
    let target_dir = out.join("exec-helper");
    let mut cargo = Command::new(variable("CARGO"));
    // The versions of the dependencies are those of probeshim.
    cargo.args(["build", "--locked", "--bin", PACKAGE, "--profile", profile, "--target", &target]);
    cargo.arg("--manifest-path").arg(root.join("exec-helper/Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_dir);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(&target)).env("CARGO_BUILD_BUILD_DIR", &target_dir);
    // Releases abort too, so that tests see how a helper ends.
    cargo.env("CARGO_PROFILE_DEV_PANIC", "abort");
    // Clippy sets it, and checks the helper with the rest of the workspace.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot run {cargo:?}: {error}"));
    assert!(status.success(), "{cargo:?} failed: {status}");
    target_dir.join(target).join(profile_dir).join(PACKAGE)
}

/// Returns the flags of the compiler: those of probeshim, or by default for a static program. Each
/// command begins with a copy of the helper's mappings, of which a static program has fewer.
fn flags(target: &str) -> String {
    let given = variable("CARGO_ENCODED_RUSTFLAGS");
    // The instrumentation of a fuzzer does not link with LTO, and no fuzzer starts the helper.
    let is_fuzzing = env::var_os("CARGO_CFG_FUZZING").is_some();
    if !given.is_empty() && !is_fuzzing {
        return given;
    }
    let is_static = target == variable("HOST") && has_static_libc();
    if is_static { "-Ctarget-feature=+crt-static".to_owned() } else { String::new() }
}

/// Returns whether this machine has the C library for static programs.
fn has_static_libc() -> bool {
    let found = Command::new("cc").arg("-print-file-name=libc.a").output();
    // The linker prints the bare name of a file that it does not find.
    found.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
