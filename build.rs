//! Compiles the protocol definitions in `proto/` to Rust, without protoc, and lists the methods that they define.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message as _;
use tonic_prost_build::{Config, FileDescriptorSet};

/// Messages whose `Debug` form would print secrets; `src/cri/redact.rs` writes theirs by hand.
const SECRET: [&str; 2] = [".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["runtime/v1/api.proto"], ["proto"])?;

    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("runtime_v1.binpb"), descriptors.encode_to_vec())?;
    write_paths(&descriptors, &out.join("paths.rs"))?;

    let mut config = Config::new();
    config.skip_debug(SECRET).enable_type_names();
    tonic_prost_build::configure().build_transport(false).compile_fds_with_config(descriptors, config)?;

    let events = protox::compile(["containerd/events.proto"], ["proto"])?;
    tonic_prost_build::configure().build_transport(false).build_server(false).compile_fds(events)?;
    Ok(())
}

/// Writes the path of every method as an array of strings.
fn write_paths(descriptors: &FileDescriptorSet, to: &Path) -> io::Result<()> {
    let mut paths = Vec::new();
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                paths.push(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
            }
        }
    }
    fs::write(to, format!("{paths:?}"))
}
