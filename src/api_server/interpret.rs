//! Interprets a text as a kubeconfig, for a fuzz target.

use std::path::Path;

use super::credentials::Content;
use super::{ApiServer, kubeconfig};

/// Path of the kubeconfig. No file is opened.
const PATH: &str = "/etc/kubernetes/kubelet.conf";

/// Parses a kubeconfig, and prepares a request if it contains all credentials.
pub(crate) fn interpret_kubeconfig(text: &str) {
    let path = Path::new(PATH);
    let (url, credentials) = match kubeconfig::parse(text, path) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(error.to_string().lines().all(|line| line.starts_with(PATH)), "{error}");
            return;
        }
    };
    assert!(url.scheme() == "https" && url.host_str().is_some(), "{url}");
    assert!(url.username().is_empty() && url.password().is_none() && url.query().is_none(), "{url}");
    let dir = path.parent().expect("the path has a parent");
    for file in credentials.files() {
        assert!(file.starts_with(dir) || file.is_absolute(), "{}", file.display());
    }
    // Debug output shows the origin of credentials, and not their content.
    let shown = format!("{credentials:?}");
    let secrets = [credentials.identity.as_ref().map(|(_, key)| key), credentials.token.as_ref()];
    for secret in secrets.into_iter().flatten() {
        if let Content::Inline { content, .. } = secret
            && content.len() > shown.len()
        {
            assert!(!shown.contains(&*String::from_utf8_lossy(content)), "{shown}");
        }
    }
    if credentials.files().next().is_some() {
        return;
    }
    let server = ApiServer { url, credentials };
    if let Ok(server) = server.checked() {
        let node = server.node_name();
        assert!(node.is_err() || node.is_ok_and(|name| name.is_none_or(|name| !name.is_empty())));
        // The path of the server may be one that cannot be requested.
        let _ = server.request("/api/v1/pods", Vec::new());
    }
}
