//! Compiles the protocol definitions in `proto/` to Rust, without protoc.

use std::path::PathBuf;
use std::{env, fs};

use prost::Message as _;

/// Messages whose `Debug` form would print secrets; `src/cri/redact.rs` writes theirs by hand.
const SECRET: [&str; 2] = [".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["runtime/v1/api.proto"], ["proto"])?;

    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("runtime_v1.binpb"), descriptors.encode_to_vec())?;

    let mut config = prost_build::Config::new();
    config.skip_debug(SECRET);
    config.compile_fds(descriptors)?;
    Ok(())
}
