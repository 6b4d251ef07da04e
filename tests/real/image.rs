//! Images, made here because none can be pulled: busybox in one layer, under many names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The image of every sandbox.
pub(crate) const PAUSE: &str = "probeshim.test/pause:1";
/// The image of every container: a shell and what busybox has.
pub(crate) const BUSYBOX: &str = "probeshim.test/busybox:1";
/// Both.
pub(crate) const NAMES: [&str; 2] = [PAUSE, BUSYBOX];

/// What holds a sandbox: it ends when it is told to, for those runtimes that ask before they kill.
pub(crate) const WAIT: [&str; 3] = ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"];

/// Who there is in an image.
const PASSWD: &str =
    "root:x:0:0:root:/:/bin/sh\nwww-data:x:33:33:www-data:/:/bin/sh\ndefault-user:x:1000:1000::/:/bin/sh\n";
const GROUP: &str =
    "root:x:0:\nwww-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n";

/// The media types of the parts of an image.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What an image is, beside busybox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    /// Its name with its tag.
    pub(crate) name: &'static str,
    /// What its containers run as; empty for root.
    pub(crate) user: &'static str,
    /// What they run.
    pub(crate) command: &'static [&'static str],
}

/// Images and all that they are made of.
#[derive(Debug)]
pub(crate) struct Store {
    /// By digest, with `sha256:` before it.
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    /// The manifests, as an index tells of them, by the name of the image.
    pub(crate) manifests: BTreeMap<&'static str, Value>,
    layer: Value,
}

impl Store {
    /// A store that has the two images of every test.
    pub(crate) fn new(busybox: &Path) -> Self {
        let mut store = Self { blobs: BTreeMap::new(), manifests: BTreeMap::new(), layer: Value::Null };
        store.layer = store.add_blob(layer(busybox), LAYER);
        store.add(Image { name: PAUSE, user: "", command: &WAIT });
        store.add(Image { name: BUSYBOX, user: "", command: &["/bin/sh"] });
        store
    }

    /// Adds an image. Two that differ in nothing but the part of their names behind the colon are one.
    pub(crate) fn add(&mut self, image: Image) {
        let (repository, _) = image.name.rsplit_once(':').unwrap();
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": image.command,
                "Env": ["PATH=/bin"],
                "User": image.user,
                "Labels": {"repository": repository},
            },
            "rootfs": {"type": "layers", "diff_ids": [self.layer["digest"]]},
        });
        let config = self.add_blob(config.to_string().into_bytes(), CONFIG);
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [self.layer]});
        let mut manifest = self.add_blob(manifest.to_string().into_bytes(), MANIFEST);
        // The first is read by containerd, the second by skopeo.
        manifest["annotations"] =
            json!({"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name});
        self.manifests.insert(image.name, manifest);
    }

    fn add_blob(&mut self, bytes: Vec<u8>, media_type: &str) -> Value {
        let hex = Sha256::digest(&bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let (digest, size) = (format!("sha256:{hex}"), bytes.len());
        self.blobs.insert(digest.clone(), bytes);
        json!({"mediaType": media_type, "digest": digest, "size": size})
    }

    /// Writes everything as an OCI archive.
    pub(crate) fn write_archive(&self, path: &Path) {
        let mut archive = tar::Builder::new(fs::File::create(path).unwrap());
        for (digest, blob) in &self.blobs {
            put(&mut archive, &format!("blobs/{}", digest.replace(':', "/")), 0o644, blob);
        }
        put(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#);
        let index = json!({"schemaVersion": 2, "manifests": self.manifests.values().collect::<Vec<_>>()});
        put(&mut archive, "index.json", 0o644, index.to_string().as_bytes());
        archive.finish().unwrap();
    }
}

/// The files of an image: busybox under all of its names, who there is, and a page for its web server.
fn layer(busybox: &Path) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    for folder in ["bin", "etc", "tmp", "proc", "sys", "dev", "www"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(if folder == "tmp" { 0o1777 } else { 0o755 });
        header.set_size(0);
        layer.append_data(&mut header, folder, std::io::empty()).unwrap();
    }
    put(&mut layer, "bin/busybox", 0o755, &fs::read(busybox).unwrap());
    put(&mut layer, "etc/passwd", 0o644, PASSWD.as_bytes());
    put(&mut layer, "etc/group", 0o644, GROUP.as_bytes());
    put(&mut layer, "www/index.html", 0o644, b"<h1>Welcome</h1>\n");
    let applets = Command::new(busybox).arg("--list").output().unwrap().stdout;
    for applet in String::from_utf8(applets).unwrap().lines().filter(|applet| *applet != "busybox") {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
    }
    layer.into_inner().unwrap()
}

fn put<W: std::io::Write>(archive: &mut tar::Builder<W>, name: &str, mode: u32, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
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
