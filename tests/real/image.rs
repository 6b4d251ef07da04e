//! Images, made here because none can be pulled: busybox in one layer, as an OCI archive.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The image of every sandbox.
pub(crate) const PAUSE: &str = "probeshim.test/pause:1";
/// The image of every container: a shell and what busybox has.
pub(crate) const BUSYBOX: &str = "probeshim.test/busybox:1";
/// Both, in the order in which they lie in the archive.
pub(crate) const NAMES: [&str; 2] = [PAUSE, BUSYBOX];

/// What holds a sandbox: it ends when it is told to, for those runtimes that ask before they kill.
const WAIT: &str = "trap 'exit 0' TERM; sleep 2147483647 & wait";

const APPLETS: [&str; 13] =
    ["ps", "sh", "sleep", "true", "false", "cat", "echo", "head", "ls", "yes", "kill", "id", "hostname"];

/// Writes both images as one OCI archive to `path`.
pub(crate) fn write_archive(busybox: &Path, path: &Path) {
    let mut archive = tar::Builder::new(fs::File::create(path).unwrap());
    let layer = add_blob(&mut archive, &layer(busybox), "application/vnd.oci.image.layer.v1.tar");
    let manifests: Vec<Value> = [(PAUSE, &["/bin/sh", "-c", WAIT][..]), (BUSYBOX, &["/bin/sh"])]
        .into_iter()
        .map(|(name, entrypoint)| manifest(&mut archive, &layer, name, entrypoint))
        .collect();
    add(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    add(&mut archive, "index.json", index.to_string().as_bytes());
    archive.finish().unwrap();
}

fn manifest(archive: &mut tar::Builder<fs::File>, layer: &Value, name: &str, entrypoint: &[&str]) -> Value {
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = add_blob(archive, config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json");
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut blob =
        add_blob(archive, manifest.to_string().as_bytes(), "application/vnd.oci.image.manifest.v1+json");
    // The first is read by containerd, the second by skopeo.
    blob["annotations"] =
        json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
    blob
}

/// The files of an image: busybox under the names that are used, and who root is.
fn layer(busybox: &Path) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    for folder in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        layer.append_data(&mut header, folder, std::io::empty()).unwrap();
    }
    let mut put = |name: &str, mode, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        layer.append_data(&mut header, name, bytes).unwrap();
    };
    put("bin/busybox", 0o755, &fs::read(busybox).unwrap());
    put("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n");
    for applet in APPLETS {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
    }
    layer.into_inner().unwrap()
}

fn add_blob(archive: &mut tar::Builder<fs::File>, bytes: &[u8], media_type: &str) -> Value {
    let digest = Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    add(archive, &format!("blobs/sha256/{digest}"), bytes);
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()})
}

fn add(archive: &mut tar::Builder<fs::File>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, name, bytes).unwrap();
}

/// This machine's, as Go and with it OCI names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
