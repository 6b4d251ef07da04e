//! The code in `proto/generated`, which is made from the protocol definitions beside it. It is checked in, so that a build needs neither a
//! compiler of protocol definitions nor the 25 crates of one. `make generate` writes it.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic_prost_build::Config;

/// Set by `make generate`: differing files are written instead of reported.
const WRITE: &str = "PROBESHIM_GENERATE";

/// Messages whose `Debug` form would print secrets; `src/cri/redact.rs` writes theirs by hand.
const SECRET: [&str; 2] = [".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"];

#[test]
fn the_generated_code_is_what_the_protocol_definitions_give() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let temporary = tempfile::tempdir().unwrap();
    generate(&proto, temporary.path());
    let (mut differing, checked_in) = (Vec::new(), proto.join("generated"));
    for file in fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let (new, place) = (fs::read(&file).unwrap(), checked_in.join(file.file_name().unwrap()));
        if fs::read(&place).ok().as_ref() == Some(&new) {
            continue;
        }
        if std::env::var_os(WRITE).is_some() {
            fs::write(&place, new).unwrap();
        } else {
            differing.push(place);
        }
    }
    assert!(differing.is_empty(), "{differing:?} are not up to date; run `make generate`");
    let names = |folder: &Path| -> Vec<_> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&checked_in), names(temporary.path()), "a file is in one of them alone");
}

/// Writes the messages and clients, the descriptors of the CRI and the path of each of its methods.
fn generate(proto: &Path, to: &Path) {
    let compiled = |file: &str| protox::compile([file], [proto]).unwrap();
    let cri = compiled("runtime/v1/api.proto");
    fs::write(to.join("runtime_v1.binpb"), cri.encode_to_vec()).unwrap();
    fs::write(to.join("method_paths.rs"), format!("{:#?}\n", method_paths(&cri))).unwrap();
    let mut config = Config::new();
    config.skip_debug(SECRET).enable_type_names();
    let builder = || tonic_prost_build::configure().build_transport(false).out_dir(PathBuf::from(to));
    builder().compile_fds_with_config(cri, config).unwrap();
    builder().build_server(false).compile_fds(compiled("containerd/events.proto")).unwrap();
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
