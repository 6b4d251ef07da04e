//! A network for the pods of one runtime: a bridge and a subnet that no other test has.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static MADE: AtomicU32 = AtomicU32::new(0);

/// A bridge that is deleted when dropped. The CNI plugin makes it with the first pod.
#[derive(Debug)]
pub(crate) struct Network {
    bridge: String,
}

impl Network {
    /// Writes its configuration into `folder/cni`.
    pub(crate) fn configure(folder: &Path) -> Self {
        // Unique among the tests that run at once, in this process and others.
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let unique = (std::process::id().wrapping_mul(8) + nth) % 512;
        let bridge = format!("ps{unique}");
        // Set aside for tests by RFC 2544, so that no machine has a route there.
        let subnet = format!("198.{}.{}.0/24", 18 + unique / 256, unique % 256);
        let network = serde_json::json!({
            "cniVersion": "0.4.0",
            "name": bridge,
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": bridge,
                    "isGateway": true,
                    "ipMasq": false,
                    "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "dataDir": folder.join("ipam")},
                },
                {"type": "portmap", "capabilities": {"portMappings": true}},
                {"type": "loopback"},
            ],
        });
        fs::create_dir(folder.join("cni")).unwrap();
        fs::write(folder.join("cni/10-bridge.conflist"), network.to_string()).unwrap();
        Self { bridge }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", &self.bridge]).output();
    }
}
