//! Credentials by registries and repositories.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use wildmatch::WildMatch;

use crate::cri::v1::AuthConfig;
use crate::hex::hex;
use crate::manifest::pod::Credential;

/// Registry of the credentials for Docker Hub.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// The Secret that contains credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubelet) struct SecretSource {
    pub(in crate::kubelet) namespace: String,
    pub(in crate::kubelet) name: String,
}

/// Credentials for a registry, and their source (kubelet: `pkg/credentialprovider/keyring.go`:
/// `TrackedAuthConfig`).
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubelet) struct TrackedCredential {
    pub(in crate::kubelet) credential: Credential,
    /// The Secret; `None` for credentials of the node.
    pub(in crate::kubelet) source: Option<SecretSource>,
}

/// JSON of credentials, from which the kubelet computes their hash.
#[derive(Serialize)]
struct HashedAuthConfig<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    password: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    email: &'a str,
}

impl TrackedCredential {
    /// Returns the credentials as a message of the CRI. The server address is left out: the runtime
    /// would parse it as a URL.
    pub(super) fn auth_config(&self) -> AuthConfig {
        AuthConfig {
            username: self.credential.user.clone(),
            password: self.credential.password.clone(),
            ..AuthConfig::default()
        }
    }

    /// Returns the hash of the credentials (kubelet: `pkg/credentialprovider/keyring.go`:
    /// `hashAuthConfig`).
    pub(super) fn hash(&self) -> String {
        let Credential { user, password, email, .. } = &self.credential;
        let hashed = HashedAuthConfig { username: user, password, email };
        // Serialization of probeshim's own types does not fail. Go escapes these characters.
        let json = serde_json::to_string(&hashed).unwrap_or_default();
        let json = json.replace('<', r"\u003c").replace('>', r"\u003e").replace('&', r"\u0026");
        hex(&Sha256::digest(json))
    }
}

/// Returns the credentials that match a repository, those with the most specific registry first.
/// For a repository of the default registry without a match it returns those of `index.docker.io`
/// (kubelet: `pkg/credentialprovider/keyring.go`: `BasicDockerKeyring.Lookup`). `repository` is the
/// normalized name of an image, without tag and digest.
pub(super) fn lookup(repository: &str, known: &[TrackedCredential]) -> Vec<TrackedCredential> {
    let registry = |it: &&TrackedCredential| it.credential.registry.clone();
    let mut found: Vec<&TrackedCredential> =
        known.iter().filter(|it| matches_registry(&it.credential.registry, repository)).collect();
    if found.is_empty() && is_of_default_registry(repository) {
        found = known.iter().filter(|it| it.credential.registry == DEFAULT_REGISTRY).collect();
    }
    found.sort_by_key(|it| std::cmp::Reverse(registry(it)));
    found.into_iter().cloned().collect()
}

/// Returns whether a registry, whose host may contain patterns and whose path is a prefix, matches
/// a repository (kubelet: `pkg/credentialprovider/keyring.go`: `URLsMatch`).
fn matches_registry(registry: &str, repository: &str) -> bool {
    let (pattern, prefix) = registry.split_once('/').unwrap_or((registry, ""));
    let (location, path) = repository.split_once('/').unwrap_or((repository, ""));
    let ((pattern, pattern_port), (host, port)) = (split_port(pattern), split_port(location));
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern_port == port
        && patterns.len() == parts.len()
        && path.starts_with(prefix)
        && patterns.iter().zip(parts).all(|(pattern, part)| WildMatch::new(pattern).matches(part))
}

/// Splits off the port of a host.
fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, ""),
    }
}

/// Returns whether the runtime pulls a repository from Docker Hub, as far as its name shows
/// (kubelet: `pkg/credentialprovider/keyring.go`: `isDefaultRegistryMatch`).
fn is_of_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("", _)) => false,
        Some((first, _)) => ["docker.io", DEFAULT_REGISTRY].contains(&first) || !first.contains(['.', ':']),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::manifest::image_name::ImageName;

    /// Returns credentials for a registry, with the registry as the user.
    pub(in crate::kubelet::images) fn credential(registry: &str, secret: Option<&str>) -> TrackedCredential {
        let credential = Credential {
            registry: registry.to_owned(),
            user: registry.to_owned(),
            password: "secret".to_owned(),
            email: String::new(),
        };
        let source = secret.map(|name| SecretSource { namespace: "test".to_owned(), name: name.to_owned() });
        TrackedCredential { credential, source }
    }

    #[test]
    fn image_credentials_match_registries_and_repositories() {
        let known = ["ghcr.io", "ghcr.io/a", "*.example.com", "index.docker.io", "127.0.0.1:5000"];
        let known = known.map(|registry| credential(registry, Some("s")));
        for (image, expected) in [
            ("ghcr.io/a/b:1", &["ghcr.io/a", "ghcr.io"][..]),
            ("ghcr.io/b", &["ghcr.io"]),
            ("my.example.com/x", &["*.example.com"]),
            ("my.example.com:443/x", &[]),
            ("my.own.example.com/x", &[]),
            ("busybox", &["index.docker.io"]),
            ("me/busybox:1", &["index.docker.io"]),
            ("docker.io/me/busybox", &["index.docker.io"]),
            ("localhost/busybox", &["index.docker.io"]),
            ("127.0.0.1:5000/x", &["127.0.0.1:5000"]),
            ("127.0.0.1:5001/x", &[]),
        ] {
            let found = lookup(&ImageName::parse(image).unwrap().repository, &known);
            let users: Vec<String> = found.iter().map(|it| it.auth_config().username).collect();
            assert_eq!(users, expected, "{image}");
            assert!(
                found.iter().all(|it| it.auth_config().server_address.is_empty()),
                "the runtime would parse it as a URL"
            );
        }
    }

    /// The expected hash is that of Kubernetes' `Test_MakeDockerKeyring`.
    #[test]
    fn the_hash_of_credentials_is_that_of_the_kubelet() {
        let mut tracked = credential("test.registry.io", None);
        tracked.credential.user = "user".to_owned();
        tracked.credential.password = "password".to_owned();
        assert_eq!(tracked.hash(), "a55436fc140d516560d072c5fe8700385ce9f41629abf65c1edcbcb39fac691d");
    }
}
