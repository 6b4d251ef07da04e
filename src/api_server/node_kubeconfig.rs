//! Kubeconfigs of kubelets: whether they suffice to read the pods of a node.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};

use super::{ApiServer, kubeconfig};
use crate::file_id::FileStamp;
use crate::terminal::sanitize;

/// Reason why the name of the node is unknown.
const NO_NODE_NAME: &str = "nodeName must be set beside kubeconfig: the user has no client certificate of a node, \
                            with system:node:NAME as common name";

/// A kubeconfig that suffices to read the pods of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeKubeconfig {
    /// The kubeconfig and the files that it names, each with its stamp before it was read.
    files: Vec<(PathBuf, Option<FileStamp>)>,
}

/// The kubeconfigs that were examined, by path. One that suffices is read again when a file has
/// changed, because a look at the node is frequent and certificates are parsed slowly.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeKubeconfigs(BTreeMap<PathBuf, NodeKubeconfig>);

impl NodeKubeconfig {
    /// Reads a kubeconfig and the files that it names. The error is the reason why it does not
    /// suffice, in one line.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let in_one_line = |problem: String| sanitize(&problem.replace('\n', "; "));
        // A change while the files are read is noticed later.
        let stamp = FileStamp::from_path(path);
        let (url, credentials) = kubeconfig::read(path).map_err(|error| in_one_line(error.to_string()))?;
        let named = credentials.files().map(|file| (file.to_owned(), FileStamp::from_path(file)));
        let files = iter::once((path.to_owned(), stamp)).chain(named).collect();
        let server = ApiServer { url, credentials }.checked();
        let server = server.map_err(|error| in_one_line(error.to_string()))?;
        match server.node_name() {
            Ok(Some(_)) => Ok(Self { files }),
            Ok(None) => Err(in_one_line(format!("{}: {NO_NODE_NAME}", path.display()))),
            Err(error) => Err(in_one_line(error.to_string())),
        }
    }

    /// Returns whether all files are as they were read.
    fn is_current(&self) -> bool {
        self.files.iter().all(|(path, stamp)| stamp.is_some() && FileStamp::from_path(path) == *stamp)
    }
}

impl NodeKubeconfigs {
    /// Returns the reason why a kubeconfig does not suffice; `None` if it suffices.
    pub(crate) fn problem(&mut self, path: &Path) -> Option<String> {
        if self.0.get(path).is_some_and(NodeKubeconfig::is_current) {
            return None;
        }
        self.0.remove(path);
        match NodeKubeconfig::read(path) {
            Ok(kubeconfig) => {
                self.0.insert(path.to_owned(), kubeconfig);
                None
            }
            Err(problem) => Some(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use fixtures::authority::Authority;

    use super::*;

    fn text(cluster: &str, user: &str) -> String {
        format!(
            "
current-context: a
contexts: [{{name: a, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: 'https://h', insecure-skip-tls-verify: true, {cluster}}}}}]
users: [{{name: u, user: {{{user}}}}}]
"
        )
    }

    #[test]
    fn a_kubeconfig_without_the_credentials_of_a_node_does_not_suffice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.conf");
        let problem = |cluster: &str, user: &str| {
            fs::write(&path, text(cluster, user)).unwrap();
            NodeKubeconfig::read(&path).unwrap_err()
        };
        let path = path.display();
        assert!(problem("", "token: t").starts_with(&format!("{path}: nodeName must be set")));
        let unsupported = problem("proxy-url: 'http://a', tls-server-name: b", "exec: {command: aws}");
        for field in ["tls-server-name", "proxy-url", "exec"] {
            assert!(unsupported.contains(&format!("{path}: {field} is not supported")), "{unsupported}");
        }
        assert!(!unsupported.contains('\n'), "{unsupported}");
        let missing = problem("", "client-certificate: /none.pem, client-key: /none.pem");
        assert!(missing.contains("/none.pem"), "{missing}");
    }

    #[test]
    fn a_kubeconfig_that_suffices_is_read_again_if_it_or_a_file_that_it_names_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "authority");
        let path = dir.path().join("kubelet.conf");
        let user = "client-certificate: kubelet.pem, client-key: kubelet.key";
        let issue = |user: &str, seconds: u64| {
            let (certificate, _) = authority.issue_to("kubelet", user, "system:nodes");
            // The clock of the file system may be the same as before.
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::options().write(true).open(certificate).unwrap().set_modified(modified).unwrap();
        };
        fs::write(&path, text("", user)).unwrap();
        let mut kubeconfigs = NodeKubeconfigs::default();
        assert!(kubeconfigs.problem(&path).unwrap().contains("kubelet.pem"), "the certificate is missing");
        issue("system:node:a", 1);
        assert_eq!(kubeconfigs.problem(&path), None, "a problem is not final");
        let read = kubeconfigs.0[&path].clone();
        assert!(read.is_current());
        assert_eq!(read.files.len(), 3);

        issue("another-user", 2);
        assert!(!read.is_current(), "the certificate was replaced");
        assert!(kubeconfigs.problem(&path).unwrap().contains("nodeName must be set"));
        issue("system:node:a", 3);
        assert_eq!(kubeconfigs.problem(&path), None);
        fs::write(&path, text("", "token: t")).unwrap();
        assert!(kubeconfigs.problem(&path).unwrap().contains("nodeName must be set"));
        fs::remove_file(&path).unwrap();
        assert!(kubeconfigs.problem(&path).is_some());
    }
}
