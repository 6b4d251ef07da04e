//! Reads a kubeconfig: the API server and the credentials of its current context. Everything that
//! would need another program or a proxy is refused.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::credentials::{Content, Credentials, CredentialsError};
use crate::ascii_url;
use crate::regular_file::{MAX_YAML_BYTES, read_to_string};

/// Reason why the API server is unknown, or cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is not a kubeconfig that can be used; all problems, one line for each.
    #[error("{0}")]
    Invalid(String),
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The process does not run in a pod.
    #[error("in-cluster needs a pod with a service account: {variable} is not set, or invalid")]
    NotInCluster {
        /// The missing variable.
        variable: &'static str,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Kubeconfig {
    current_context: String,
    contexts: Vec<NamedContext>,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<Value>,
    proxy_url: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    username: Option<Value>,
}

/// Reads a kubeconfig. The error has all problems.
pub(super) fn read(path: &Path) -> Result<(Url, Credentials), KubeconfigError> {
    let text = read_to_string(path, MAX_YAML_BYTES);
    let text = text.map_err(|source| KubeconfigError::File { path: path.to_owned(), source })?;
    parse(&text, path)
}

/// Parses the text of a kubeconfig, and opens no file. The error has all problems.
pub(super) fn parse(text: &str, path: &Path) -> Result<(Url, Credentials), KubeconfigError> {
    let invalid = |reasons: &[String]| {
        let lines: Vec<String> =
            reasons.iter().map(|reason| format!("{}: {reason}", path.display())).collect();
        KubeconfigError::Invalid(lines.join("\n"))
    };
    let kubeconfig: Kubeconfig = serde_saphyr::from_str(text)
        .map_err(|error| invalid(&[format!("is no kubeconfig: {}", error.without_snippet())]))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    convert(kubeconfig, dir).map_err(|problems| invalid(&problems))
}

/// Returns the API server and the credentials of the current context, or all problems. Relative
/// paths are resolved against `dir`.
fn convert(kubeconfig: Kubeconfig, dir: &Path) -> Result<(Url, Credentials), Vec<String>> {
    let Kubeconfig { current_context, contexts, clusters, users } = kubeconfig;
    let context = contexts.into_iter().find(|it| it.name == current_context);
    let Some(NamedContext { context, .. }) = context else {
        return Err(vec![format!("current-context {current_context:?} must be one of the contexts")]);
    };
    let cluster = clusters.into_iter().find(|it| it.name == context.cluster);
    let user = users.into_iter().find(|it| it.name == context.user);
    let (Some(NamedCluster { cluster, .. }), Some(NamedUser { user, .. })) = (cluster, user) else {
        let Context { cluster, user } = context;
        return Err(vec![format!(
            "cluster {cluster:?} and user {user:?} of the context {current_context:?} must both exist"
        )]);
    };
    let mut problems = Vec::new();
    let mut reader = FieldReader { dir, problems: &mut problems };
    let url = reader.url(&cluster.server);
    let authority = reader.authority(&cluster);
    let certificate =
        reader.content("client-certificate", user.client_certificate, user.client_certificate_data);
    let key = reader.content("client-key", user.client_key, user.client_key_data);
    let token_file = user.token_file.filter(|path| !path.as_os_str().is_empty());
    let token = match (token_file, user.token.filter(|token| !token.is_empty())) {
        (Some(file), _) => Some(Content::File(dir.join(file))),
        (None, Some(token)) => {
            Some(Content::Inline { name: "token".to_owned(), content: token.into_bytes() })
        }
        (None, None) => None,
    };
    for (field, value) in [
        ("tls-server-name", cluster.tls_server_name),
        ("proxy-url", cluster.proxy_url),
        ("exec", user.exec),
        ("auth-provider", user.auth_provider),
        ("username", user.username),
    ] {
        // client-go takes an empty text for a field that is not set.
        if value.is_some_and(|value| value != "") {
            problems.push(format!(
                "{field} is not supported: the user must have token, tokenFile or a client certificate, and the \
                 cluster must be reached directly by the name in its certificate"
            ));
        }
    }
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            problems.push("client-certificate and client-key must be set together".to_owned());
            None
        }
    };
    if problems.is_empty() && identity.is_none() && token.is_none() {
        problems.push("the user must have token, tokenFile, or client-certificate and client-key".to_owned());
    }
    match url.filter(|_| problems.is_empty()) {
        Some(url) => Ok((url, Credentials { authority, identity, token })),
        None => Err(problems),
    }
}

/// Reads fields and collects their problems.
struct FieldReader<'a> {
    dir: &'a Path,
    problems: &'a mut Vec<String>,
}

impl FieldReader<'_> {
    fn url(&mut self, server: &str) -> Option<Url> {
        let url = ascii_url::parse(server).ok();
        let Some(url) = url.filter(|url| url.scheme() == "https" && url.host_str().is_some()) else {
            self.problems.push("server must be https://HOST:PORT".to_owned());
            return None;
        };
        // The address is shown, and these parts may be secret.
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !is_plain {
            let reason = "server must be https://HOST:PORT without a user, a query and a fragment";
            self.problems.push(reason.to_owned());
        }
        is_plain.then_some(url)
    }

    fn authority(&mut self, cluster: &Cluster) -> Option<Content> {
        if cluster.insecure_skip_tls_verify {
            return None;
        }
        let (file, data) =
            (cluster.certificate_authority.clone(), cluster.certificate_authority_data.clone());
        let before = self.problems.len();
        let authority = self.content("certificate-authority", file, data);
        if authority.is_none() && self.problems.len() == before {
            self.problems.push(
                "certificate-authority or certificate-authority-data must be set, unless \
                 insecure-skip-tls-verify is true"
                    .to_owned(),
            );
        }
        authority
    }

    /// Returns the content of a field: the decoded field with the suffix `-data`, which takes
    /// precedence, or a file.
    fn content(&mut self, field: &str, file: Option<PathBuf>, data: Option<String>) -> Option<Content> {
        let name = format!("{field}-data");
        let file = file.filter(|path| !path.as_os_str().is_empty());
        match data.filter(|data| !data.is_empty()) {
            None => file.map(|file| Content::File(self.dir.join(file))),
            Some(data) => match STANDARD.decode(data.trim()) {
                Ok(content) => Some(Content::Inline { name, content }),
                Err(error) => {
                    self.problems.push(format!("{name} must be base64: {error}"));
                    None
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Url, Credentials), Vec<String>> {
        convert(serde_saphyr::from_str(text).unwrap(), Path::new("/etc/kubernetes"))
    }

    #[test]
    fn the_current_context_of_a_kubeconfig_selects_the_server_and_the_credentials() {
        let text = "
current-context: b
contexts:
- {name: a, context: {cluster: far, user: admin}}
- {name: b, context: {cluster: near, user: kubelet, namespace: x}}
clusters:
- {name: far, cluster: {server: 'https://192.0.2.1'}}
- {name: near, cluster: {server: 'https://[::1]:6443/prefix', certificate-authority-data: YQ==}}
users:
- {name: kubelet, user: {client-certificate: pki/a.pem, client-key: /b.pem, tokenFile: token}}
";
        let (url, credentials) = parsed(text).unwrap();
        assert_eq!(url.as_str(), "https://[::1]:6443/prefix");
        let file = |path: &str| Content::File(PathBuf::from(path));
        let authority =
            Content::Inline { name: "certificate-authority-data".to_owned(), content: b"a".into() };
        let expected = Credentials {
            authority: Some(authority),
            identity: Some((file("/etc/kubernetes/pki/a.pem"), file("/b.pem"))),
            token: Some(file("/etc/kubernetes/token")),
        };
        assert_eq!(credentials, expected);
    }

    #[test]
    fn all_problems_of_a_kubeconfig_are_reported_together() {
        let text = "
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'http://192.0.2.1', proxy-url: 'http://a'}}]
users: [{name: u, user: {client-certificate-data: '!', exec: {command: aws}, token: t}}]
";
        let problems = parsed(text).unwrap_err().join("\n");
        for expected in [
            "server must be https://HOST:PORT",
            "certificate-authority or certificate-authority-data must be set",
            "client-certificate-data must be base64",
            "proxy-url is not supported",
            "exec is not supported",
        ] {
            assert!(problems.contains(expected), "{expected} is not in\n{problems}");
        }
        let problems = parsed("current-context: a").unwrap_err();
        assert_eq!(problems, ["current-context \"a\" must be one of the contexts"]);
    }

    fn with(cluster: &str, user: &str) -> Result<(Url, Credentials), Vec<String>> {
        parsed(&format!(
            "
current-context: a
contexts: [{{name: a, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{{cluster}}}}}]
users: [{{name: u, user: {{{user}}}}}]
"
        ))
    }

    #[test]
    fn the_address_of_an_api_server_has_no_credential_and_no_error_shows_one() {
        let expected = ["server must be https://HOST:PORT without a user, a query and a fragment"];
        for server in ["https://u:secret@h:1", "https://secret@h", "https://h/?secret", "https://h/#secret"] {
            let cluster = format!("server: '{server}', insecure-skip-tls-verify: true");
            assert_eq!(with(&cluster, "token: t").unwrap_err(), expected, "{server}");
        }
        let cluster = "server: 'http://u:secret@h', insecure-skip-tls-verify: true";
        assert_eq!(with(cluster, "token: t").unwrap_err(), ["server must be https://HOST:PORT"]);
    }

    #[test]
    fn an_empty_text_of_a_kubeconfig_is_not_set() {
        let cluster = "server: 'https://h', certificate-authority: /ca, certificate-authority-data: '', \
                       proxy-url: '', tls-server-name: ''";
        let user = "client-certificate: '', client-certificate-data: '', client-key: '', client-key-data: '', \
                    username: '', tokenFile: '', token: t";
        let (_, credentials) = with(cluster, user).unwrap();
        let expected = Credentials {
            authority: Some(Content::File(PathBuf::from("/ca"))),
            identity: None,
            token: Some(Content::Inline { name: "token".to_owned(), content: b"t".into() }),
        };
        assert_eq!(credentials, expected);
        let missing =
            with("server: 'https://h', certificate-authority: ''", "token: t").unwrap_err().join("");
        assert!(missing.contains("certificate-authority-data must be set"), "{missing}");
    }
}
