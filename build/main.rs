//! Builds the exec helper, and passes it and the commit of the sources to the compiler.

#![allow(clippy::print_stdout, reason = "cargo reads directives from stdout")]

mod commit;
mod exec_helper;

use std::env;
use std::path::PathBuf;

fn main() {
    let directory = |name| PathBuf::from(env::var_os(name).expect("cargo sets it"));
    let root = directory("CARGO_MANIFEST_DIR");
    let epoch = env::var("SOURCE_DATE_EPOCH").ok();
    for directive in commit::directives(&root, epoch.as_deref()) {
        println!("cargo::{directive}");
    }
    let helper = exec_helper::build(&root, &directory("OUT_DIR"));
    println!("cargo::rustc-env=PROBESHIM_EXEC_HELPER={}", helper.display());
}
