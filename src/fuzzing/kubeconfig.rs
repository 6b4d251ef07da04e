//! A kubeconfig, which names the API server and credentials.

use crate::api_server::interpret_kubeconfig;

/// Reads a kubeconfig, and prepares requests if it contains all credentials. The target opens no
/// file.
pub(super) fn run(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        interpret_kubeconfig(text);
    }
}
