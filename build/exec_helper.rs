//! The program of the exec helper, for `src/direct/helper_process.rs`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the helper's package and program.
const PACKAGE: &str = "probeshim-exec-helper";

/// Builds the helper in a directory of its own, because cargo has locked that of probeshim. Returns
/// the path of the program.
pub(crate) fn build(root: &Path, out: &Path) -> PathBuf {
    let variable = |name| env::var(name).expect("cargo sets it");
    let target = variable("TARGET");
    // The directory of the profile `dev` is `debug`.
    let (profile, built) = match variable("PROFILE").as_str() {
        "release" => ("exec-helper", "exec-helper"),
        _ => ("dev", "debug"),
    };
    let directory = out.join("exec-helper");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.arg("build").arg("--manifest-path").arg(root.join("exec-helper/Cargo.toml"));
    cargo
        .args(["--bin", PACKAGE, "--profile", profile, "--target", &target])
        .arg("--target-dir")
        .arg(&directory);
    // probeshim has the same dependencies, which cargo has fetched.
    cargo.args(["--locked", "--offline"]);
    // clippy's wrapper of the compiler.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot run {cargo:?}: {error}"));
    assert!(status.success(), "{cargo:?} failed: {status}");
    directory.join(target).join(built).join(PACKAGE)
}
