//! Registry credentials in Docker's configuration files.

use serde_json::{Map, Value};

use super::go_base64::{CorruptInputError, Padding, decode};
use super::pod::Credential;

/// Reason why a configuration cannot be read, in the words of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DockerConfigError {
    /// The text is not JSON. Go describes the error in other words.
    #[error("{0}")]
    Syntax(String),
    /// A value has another type.
    #[error("json: cannot unmarshal {found} into Go {place}")]
    Type {
        /// Type of the value.
        found: &'static str,
        /// Field and its type.
        place: String,
    },
    /// The field `auth` is not base64.
    #[error(transparent)]
    Base64(#[from] CorruptInputError),
    /// The decoded field `auth` has no colon.
    #[error("unable to parse auth field, must be formatted as base64(username:password)")]
    Auth,
    /// The decoded field `auth` is not UTF-8. The kubelet fails when it sends the request for the
    /// pull.
    #[error(
        "rpc error: code = Internal desc = grpc: error while marshaling: string field contains invalid UTF-8"
    )]
    NotUtf8,
}

/// Place of the entries of registries in a configuration.
#[derive(Clone, Copy)]
enum Entries {
    /// In the field `auths`.
    Auths,
    /// At the top level.
    TopLevel,
}

/// Reads the content of a `config.json`, or of the key `.dockerconfigjson` of a Secret. Fails if an
/// entry cannot be read.
pub(crate) fn read_config_json(content: &[u8]) -> Result<Vec<Credential>, DockerConfigError> {
    let config = parse(content)?;
    let config = object(&config, || "value of type credentialprovider.DockerConfigJSON".to_owned())?;
    let Some(auths) = config.and_then(|config| config.get("auths")) else { return Ok(Vec::new()) };
    read_entries(auths, Entries::Auths)
}

/// Reads the content of a `.dockercfg`, or of the key `.dockercfg` of a Secret. Fails if an entry
/// cannot be read.
pub(crate) fn read_dockercfg(content: &[u8]) -> Result<Vec<Credential>, DockerConfigError> {
    read_entries(&parse(content)?, Entries::TopLevel)
}

fn parse(content: &[u8]) -> Result<Value, DockerConfigError> {
    serde_json::from_slice(content).map_err(|error| DockerConfigError::Syntax(error.to_string()))
}

fn read_entries(auths: &Value, entries: Entries) -> Result<Vec<Credential>, DockerConfigError> {
    let auths = object(auths, || entries.place("credentialprovider.DockerConfig"))?;
    let auths = auths.into_iter().flatten();
    auths.map(|(registry, entry)| credential(registry, entry, entries)).collect()
}

/// Reads the credentials of one registry. The field `auth` takes precedence over the others
/// (kubelet: `pkg/credentialprovider/config.go`: `UnmarshalJSON`).
fn credential(registry: &str, entry: &Value, entries: Entries) -> Result<Credential, DockerConfigError> {
    let entry = object(entry, || entries.place("credentialprovider.dockerConfigEntryWithAuth"))?;
    let text = |field: &str| match entry.and_then(|entry| entry.get(field)) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(DockerConfigError::new(other, entries.place_of_text(field))),
    };
    let (mut user, mut password, email) = (text("username")?, text("password")?, text("email")?);
    let auth = text("auth")?;
    if !auth.is_empty() {
        (user, password) = decode_auth(&auth)?;
    }
    Ok(Credential { registry: registry_key(registry), user, password, email })
}

/// Returns user and password in a field `auth` (kubelet: `pkg/credentialprovider/config.go`:
/// `decodeDockerConfigFieldAuth`).
fn decode_auth(auth: &str) -> Result<(String, String), DockerConfigError> {
    let padding = if auth.trim().ends_with('=') { Padding::Required } else { Padding::Forbidden };
    let decoded = decode(auth, padding)?;
    let colon = decoded.iter().position(|byte| *byte == b':').ok_or(DockerConfigError::Auth)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| DockerConfigError::NotUtf8);
    Ok((text(&decoded[..colon])?, text(&decoded[colon + 1..])?))
}

/// Returns the fields of an object; `None` for `null`, which has none. Fails with the place of the
/// value if it is of another type.
fn object(
    value: &Value,
    place: impl FnOnce() -> String,
) -> Result<Option<&Map<String, Value>>, DockerConfigError> {
    match value {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        other => Err(DockerConfigError::new(other, place())),
    }
}

impl DockerConfigError {
    fn new(found: &Value, place: String) -> Self {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Self::Type { found, place }
    }
}

impl Entries {
    /// Returns how Go names the place of the entries, or of one entry.
    fn place(self, name: &str) -> String {
        match self {
            Self::Auths => format!("struct field DockerConfigJSON.auths of type {name}"),
            Self::TopLevel => format!("value of type {name}"),
        }
    }

    /// Returns how Go names the place of a text in an entry.
    fn place_of_text(self, field: &str) -> String {
        let parent = match self {
            Self::Auths => "DockerConfigJSON.auths",
            Self::TopLevel => "dockerConfigEntryWithAuth",
        };
        format!("struct field {parent}.{field} of type string")
    }
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
        assert_eq!(read_config_json(b"{}"), Ok(Vec::new()));
    }

    /// The messages are those of Go 1.26.
    #[test]
    fn a_docker_configuration_with_an_unreadable_entry_gives_the_error_of_the_kubelet() {
        let of_json = |config: &str| read_config_json(config.as_bytes()).unwrap_err().to_string();
        for (config, error) in [
            ("[]", "json: cannot unmarshal array into Go value of type credentialprovider.DockerConfigJSON"),
            (
                r#"{"auths": 3}"#,
                "json: cannot unmarshal number into Go struct field DockerConfigJSON.auths of type \
                 credentialprovider.DockerConfig",
            ),
            (
                r#"{"auths": {"a": "b"}}"#,
                "json: cannot unmarshal string into Go struct field DockerConfigJSON.auths of type \
                 credentialprovider.dockerConfigEntryWithAuth",
            ),
            (
                r#"{"auths": {"a": {"auth": true}}}"#,
                "json: cannot unmarshal bool into Go struct field DockerConfigJSON.auths.auth of type string",
            ),
            (
                r#"{"auths": {"a": {"auth": "dXNlcg"}}}"#,
                "unable to parse auth field, must be formatted as base64(username:password)",
            ),
            (r#"{"auths": {"a": {"auth": "dXNl=g"}}}"#, "illegal base64 data at input byte 4"),
        ] {
            assert_eq!(of_json(config), error, "{config}");
        }
        assert!(matches!(read_config_json(b""), Err(DockerConfigError::Syntax(_))));
        let of_dockercfg = |config: &str| read_dockercfg(config.as_bytes()).unwrap_err().to_string();
        for (config, error) in [
            ("[]", "json: cannot unmarshal array into Go value of type credentialprovider.DockerConfig"),
            (
                r#"{"a": "b"}"#,
                "json: cannot unmarshal string into Go value of type \
                 credentialprovider.dockerConfigEntryWithAuth",
            ),
            (
                r#"{"a": {"username": 5}}"#,
                "json: cannot unmarshal number into Go struct field dockerConfigEntryWithAuth.username of \
                 type string",
            ),
        ] {
            assert_eq!(of_dockercfg(config), error, "{config}");
        }
    }

    #[test]
    fn a_field_auth_may_have_line_breaks_and_a_registry_no_credentials() {
        let read =
            read_config_json(br#"{"auths": {"a": {"auth": "dXNl\ncjpw\r\nYR==\n"}, "b": null}}"#).unwrap();
        assert_eq!((read[0].user.as_str(), read[0].password.as_str()), ("user", "pa"));
        assert_eq!((read[1].user.as_str(), read[1].password.as_str()), ("", ""));
        assert_eq!(read_config_json(b"null"), Ok(Vec::new()));
    }
}
