//! Registry credentials in Docker's configuration files.

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::pod::Credential;

/// Decoder of base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the content of a `config.json`, or of the key `.dockerconfigjson` of a Secret. Returns
/// `None` if it is not JSON of this form.
pub(crate) fn read_config_json(content: &[u8]) -> Option<Vec<Credential>> {
    let config: Value = serde_json::from_slice(content).ok()?;
    match config.as_object()?.get("auths") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(auths) => read_auths(auths.as_object()?),
    }
}

/// Reads the content of a `.dockercfg`, or of the key `.dockercfg` of a Secret. Returns `None` if
/// it is not JSON of this form.
pub(crate) fn read_dockercfg(content: &[u8]) -> Option<Vec<Credential>> {
    read_auths(serde_json::from_slice::<Value>(content).ok()?.as_object()?)
}

fn read_auths(auths: &Map<String, Value>) -> Option<Vec<Credential>> {
    auths.iter().map(|(registry, entry)| credential(registry, entry)).collect()
}

/// Reads the credentials of one registry. The field `auth` takes precedence over the others
/// (kubelet: `pkg/credentialprovider/config.go`: `UnmarshalJSON`).
fn credential(registry: &str, entry: &Value) -> Option<Credential> {
    let entry = entry.as_object()?;
    let text = |field: &str| match entry.get(field) {
        None | Some(Value::Null) => Some(String::new()),
        Some(value) => value.as_str().map(str::to_owned),
    };
    let (mut user, mut password, auth) = (text("username")?, text("password")?, text("auth")?);
    if !auth.is_empty() {
        let decoded = String::from_utf8(BASE64.decode(auth).ok()?).ok()?;
        let (name, secret) = decoded.split_once(':')?;
        (user, password) = (name.to_owned(), secret.to_owned());
    }
    let registry = registry_key(registry);
    Some(Credential { registry, user, password, email: text("email")? })
}

/// Returns host and path of an entry, without scheme and API version, which docker and kubectl
/// write (kubelet: `pkg/credentialprovider/keyring.go`: `Add`).
fn registry_key(registry: &str) -> String {
    let location = registry.strip_prefix("https://").or(registry.strip_prefix("http://")).unwrap_or(registry);
    let (host, path) = location.split_once('/').unwrap_or((location, ""));
    let path = path.strip_prefix("v1/").or(path.strip_prefix("v2/")).unwrap_or(path);
    if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_configurations_give_the_credentials_of_each_registry() {
        let config = br#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "dXNlcjpwYXNz"},
            "a.test": {"username": "one", "password": "p:q", "email": "e"},
            "b.test/path": {"username": "ignored", "password": "ignored", "auth": "dHdvOnA6cQ=="},
            "c.test": {}
        }, "credsStore": "x"}"#;
        let read = read_config_json(config).unwrap();
        let found: Vec<_> = read
            .iter()
            .map(|it| [&it.registry, &it.user, &it.password, &it.email].map(String::as_str))
            .collect();
        assert_eq!(
            found,
            [
                ["a.test", "one", "p:q", "e"],
                ["b.test/path", "two", "p:q", ""],
                ["c.test", "", "", ""],
                ["index.docker.io", "user", "pass", ""],
            ]
        );
        let legacy = read_dockercfg(br#"{"a.test": {"auth": "dXNlcjpwYXNz"}}"#).unwrap();
        assert_eq!(legacy[0].user, "user");
        assert_eq!(read_config_json(b"{}"), Some(Vec::new()));
    }

    #[test]
    fn a_docker_configuration_with_an_unreadable_entry_is_refused() {
        for config in [
            "",
            "[]",
            r#"{"auths": []}"#,
            r#"{"auths": {"a": "b"}}"#,
            r#"{"auths": {"a": {"auth": "dXNlcg"}}}"#,
        ] {
            assert_eq!(read_config_json(config.as_bytes()), None, "{config}");
        }
    }
}
