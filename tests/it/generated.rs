//! The code in `proto/generated`, which is generated from the protocol definitions next to it.
//! It is checked in, so that a build needs no protocol compiler and none of its 25 crates.
//! `make generate` writes it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic_prost_build::Config;

/// Environment variable that `make generate` sets. With it the test writes files instead of
/// reporting differences.
const WRITE: &str = "PROBESHIM_GENERATE";

/// Messages whose `Debug` form would print secrets; `src/cri/redact.rs` writes theirs by hand.
const SECRET: [&str; 2] = [".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"];

#[test]
fn the_generated_code_matches_the_protocol_definitions() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let temporary = tempfile::tempdir().unwrap();
    generate(&proto, temporary.path());
    let checked_in = proto.join("generated");
    let (is, should) = (files(&checked_in), files(temporary.path()));
    let mut names: Vec<_> = is.keys().chain(should.keys()).collect();
    names.retain(|name| is.get(*name) != should.get(*name));
    if std::env::var_os(WRITE).is_none() {
        assert!(names.is_empty(), "{names:?} in proto/generated are not up to date; run `make generate`");
    }
    for name in names {
        let path = checked_in.join(name);
        match should.get(name) {
            Some(content) => fs::write(path, content).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
    }
}

/// Returns the content of each file of a directory, by file name.
fn files(directory: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

/// Writes the messages, clients and servers, the descriptors of the CRI and the path of each of its
/// methods.
fn generate(proto: &Path, to: &Path) {
    let compiled = |file: &str| protox::compile([file], [proto]).unwrap();
    let cri = compiled("runtime/v1/api.proto");
    fs::write(to.join("runtime_v1.binpb"), cri.encode_to_vec()).unwrap();
    fs::write(to.join("method_paths.rs"), format!("{:#?}\n", method_paths(&cri))).unwrap();
    let mut config = Config::new();
    config.skip_debug(SECRET).enable_type_names();
    let builder = || tonic_prost_build::configure().build_transport(false).out_dir(PathBuf::from(to));
    builder().compile_fds_with_config(cri, config).unwrap();
    builder().compile_fds(compiled("containerd/events.proto")).unwrap();
}

/// Returns the path of every method, as it is requested over HTTP/2.
fn method_paths(descriptors: &FileDescriptorSet) -> Vec<String> {
    let mut paths = Vec::new();
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                paths.push(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
            }
        }
    }
    paths
}
