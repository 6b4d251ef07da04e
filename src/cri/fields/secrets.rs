//! Removal of secrets from messages. The rules depend on types and names of fields, so that they
//! apply to every message of the CRI.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage as _, Value};

use super::FieldMessage;
use crate::redact::without_queries;

/// Text in place of a value that was removed.
const REDACTED: &str = "redacted";

/// Maps of texts whose values are kept. The values of all other maps are removed.
const PUBLIC_MAPS: [&str; 4] = ["labels", "label_selector", "sysctls", "unified"];

/// Annotations that a kubelet sets, and whose values are numbers, hashes or paths.
const PUBLIC_ANNOTATIONS: [&str; 5] = [
    "io.kubernetes.container.hash",
    "io.kubernetes.container.restartCount",
    "io.kubernetes.container.terminationMessagePath",
    "io.kubernetes.container.terminationMessagePolicy",
    "io.kubernetes.pod.terminationGracePeriod",
];

/// Texts that are secrets wherever they occur: URLs of streams contain a token.
const SECRET_TEXTS: [&str; 2] = ["credential_spec", "url"];

/// Lists of a program and its arguments.
const COMMANDS: [&str; 2] = ["cmd", "command"];

/// Extent of a redaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Removes env values, credentials, output, and the values of annotations and of verbose
    /// information.
    Secrets,
    /// Removes arguments of commands and messages of states too.
    SecretsAndCommands,
}

/// A removal in progress.
struct Removal {
    redaction: Redaction,
    /// Paths of the fields from which values were removed.
    removed: BTreeSet<String>,
}

impl FieldMessage {
    /// Removes secrets and unknown fields, which cannot be checked. Returns the paths of the fields
    /// from which values were removed, such as `config.envs[*].value`, in alphabetical order.
    pub fn remove_secrets(&mut self, redaction: Redaction) -> Vec<String> {
        let mut removal = Removal { redaction, removed: BTreeSet::new() };
        removal.visit(&mut self.0, "");
        removal.removed.into_iter().collect()
    }
}

impl Removal {
    fn visit(&mut self, message: &mut DynamicMessage, prefix: &str) {
        if message.take_unknown_fields().count() > 0 {
            self.removed.insert(format!("{prefix}(unknown fields)"));
        }
        let is_auth = message.descriptor().name() == "AuthConfig";
        for (field, value) in message.fields_mut() {
            let path = format!("{prefix}{}", field.name());
            match value {
                Value::Message(inner) => self.visit(inner, &format!("{path}.")),
                Value::List(items) => self.visit_list(items, &field, &path),
                Value::Map(entries) => {
                    for (key, entry) in entries {
                        let key = key.as_str().unwrap_or_default();
                        self.visit_entry(key, entry, &field, &path);
                    }
                }
                Value::String(text) if self.is_secret(is_auth, field.name(), text) => {
                    REDACTED.clone_into(text);
                    self.removed.insert(path);
                }
                // Messages of registries contain URLs with signatures.
                Value::String(text) if field.name() == "message" => {
                    if let Cow::Owned(shown) = without_queries(text) {
                        *text = shown;
                    }
                }
                Value::Bytes(bytes) => self.clear(bytes, path),
                _ => {}
            }
        }
    }

    fn visit_list(&mut self, items: &mut Vec<Value>, field: &FieldDescriptor, path: &str) {
        let has_arguments = match field.name() {
            name if COMMANDS.contains(&name) => items.len() > 1,
            name => name == "args" && !items.is_empty(),
        };
        if has_arguments && self.redaction == Redaction::SecretsAndCommands {
            items.truncate(usize::from(field.name() != "args"));
            self.removed.insert(path.to_owned());
        }
        for item in items {
            match item {
                Value::Message(inner) => self.visit(inner, &format!("{path}[*].")),
                Value::Bytes(bytes) => self.clear(bytes, format!("{path}[*]")),
                _ => {}
            }
        }
    }

    fn visit_entry(&mut self, key: &str, entry: &mut Value, field: &FieldDescriptor, path: &str) {
        let is_public = PUBLIC_MAPS.contains(&field.name())
            || (field.name() == "annotations" && PUBLIC_ANNOTATIONS.contains(&key));
        match entry {
            Value::Message(inner) => self.visit(inner, &format!("{path}[*].")),
            Value::Bytes(bytes) => self.clear(bytes, format!("{path}[*]")),
            Value::String(text) if !is_public && !text.is_empty() => {
                REDACTED.clone_into(text);
                self.removed.insert(format!("{path}[*]"));
            }
            _ => {}
        }
    }

    fn clear(&mut self, bytes: &mut Bytes, path: String) {
        if !bytes.is_empty() {
            *bytes = Bytes::new();
            self.removed.insert(path);
        }
    }

    /// Returns whether a text is removed. `is_auth`: it is a field of an `AuthConfig`, of which
    /// only the address of the registry is kept, if it contains no user.
    fn is_secret(&self, is_auth: bool, name: &str, text: &str) -> bool {
        let is_secret = match name {
            "server_address" => text.contains('@'),
            "message" => self.redaction == Redaction::SecretsAndCommands,
            name => is_auth || SECRET_TEXTS.contains(&name),
        };
        is_secret && !text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::Kind;

    use super::*;
    use crate::cri::raw_request::POOL;
    use crate::cri::{MessageSide, Method, v1};

    const SECRET: &str = "s3cret";

    /// Names of the text fields whose values are kept. A field of a later version of the CRI must
    /// be added to this list, or to the rules.
    const PUBLIC_TEXTS: &str = "add_ambient_capabilities add_capabilities apparmor_profile args cgroup_parent cmd \
         command container_id container_path cpuset_cpus cpuset_mems drop_capabilities help host_ip host_path \
         hostname id image image_id image_ref image_sub_path ip key label_keys label_values level localhost_ref \
         location log_directory log_path masked_paths message mountpoint name namespace options page_size \
         permissions pod_cidr pod_sandbox_id readonly_paths reason repo_digests repo_tags role run_as_username \
         runtime_api_version runtime_handler runtime_name runtime_version seccomp_profile_path searches \
         server_address servers target_id type uid user user_specified_image username version working_dir";

    fn cleaned(
        name: &str,
        side: MessageSide,
        message: &impl prost::Message,
        redaction: Redaction,
    ) -> (String, String) {
        let mut bytes = message.encode_to_vec();
        prost::encoding::string::encode(1000, &SECRET.to_owned(), &mut bytes);
        let method = Method::from_name(name).unwrap();
        let mut message = FieldMessage::decode(method, side, &bytes).unwrap();
        let removed = message.remove_secrets(redaction).join(" ");
        let encoded = message.encode();
        assert!(!encoded.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()), "{message:?}");
        (message.to_json().to_string(), removed)
    }

    fn annotations() -> std::collections::HashMap<String, String> {
        [("team", SECRET), ("io.kubernetes.container.restartCount", "7")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    fn config() -> v1::ContainerConfig {
        v1::ContainerConfig {
            envs: vec![v1::KeyValue { key: "TOKEN".into(), value: SECRET.into() }],
            command: vec!["sh".into(), "-c".into()],
            args: vec!["a".into()],
            annotations: annotations(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            image: Some(v1::ImageSpec { annotations: annotations(), ..Default::default() }),
            mounts: vec![v1::Mount { host_path: "/data".into(), ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn env_values_annotations_and_unknown_fields_are_removed_from_a_request() {
        let request = v1::CreateContainerRequest { config: Some(config()), ..Default::default() };
        let (json, removed) = cleaned("CreateContainer", MessageSide::Request, &request, Redaction::Secrets);
        assert_eq!(
            removed,
            "(unknown fields) config.annotations[*] config.envs[*].value config.image.annotations[*]"
        );
        for kept in ["TOKEN", "\"-c\"", "web", "/data", r#""team":"redacted""#, r#"restartCount":"7""#] {
            assert!(json.contains(kept), "{kept}: {json}");
        }
    }

    #[test]
    fn arguments_of_commands_are_removed_if_commands_are_redacted() {
        let mut config = config();
        config.args = vec![SECRET.into()];
        config.command[1] = SECRET.into();
        let request = v1::CreateContainerRequest { config: Some(config), ..Default::default() };
        let redaction = Redaction::SecretsAndCommands;
        let (json, removed) = cleaned("CreateContainer", MessageSide::Request, &request, redaction);
        assert!(removed.contains("config.args config.command"), "{removed}");
        assert!(json.contains(r#""command":["sh"]"#), "{json}");
        let request = v1::ExecSyncRequest { cmd: vec!["cat".into(), SECRET.into()], ..Default::default() };
        let (json, removed) = cleaned("ExecSync", MessageSide::Request, &request, redaction);
        assert_eq!((json.as_str(), removed.as_str()), (r#"{"cmd":["cat"]}"#, "(unknown fields) cmd"));
        let status = v1::ContainerStatus { message: SECRET.into(), ..Default::default() };
        let response = v1::ContainerStatusResponse { status: Some(status), ..Default::default() };
        let (_, removed) = cleaned("ContainerStatus", MessageSide::Response, &response, redaction);
        assert_eq!(removed, "(unknown fields) status.message");
    }

    #[test]
    fn credentials_output_urls_and_verbose_information_are_removed() {
        let secret = || SECRET.to_owned();
        let auth = v1::AuthConfig {
            username: secret(),
            password: secret(),
            auth: secret(),
            server_address: "registry.test".into(),
            identity_token: secret(),
            registry_token: secret(),
        };
        let with_user =
            v1::AuthConfig { server_address: format!("u:{SECRET}@registry.test"), ..auth.clone() };
        let pull = |auth| v1::PullImageRequest { auth: Some(auth), ..Default::default() };
        let (json, removed) = cleaned("PullImage", MessageSide::Request, &pull(auth), Redaction::Secrets);
        assert!(json.contains("registry.test") && !removed.contains("server_address"), "{json} {removed}");
        let (_, removed) = cleaned("PullImage", MessageSide::Request, &pull(with_user), Redaction::Secrets);
        assert!(removed.contains("auth.server_address"), "{removed}");
        let output = v1::ExecSyncResponse { stdout: SECRET.into(), stderr: SECRET.into(), exit_code: 3 };
        let (json, removed) = cleaned("ExecSync", MessageSide::Response, &output, Redaction::Secrets);
        assert_eq!(
            (json.as_str(), removed.as_str()),
            (r#"{"exitCode":3}"#, "(unknown fields) stderr stdout")
        );
        let url = v1::ExecResponse { url: format!("http://localhost/exec/{SECRET}") };
        cleaned("Exec", MessageSide::Response, &url, Redaction::Secrets);
        let info = [("info".to_owned(), secret())].into();
        let verbose = v1::ContainerStatusResponse { info, ..Default::default() };
        let (json, _) = cleaned("ContainerStatus", MessageSide::Response, &verbose, Redaction::Secrets);
        assert_eq!(json, r#"{"info":{"info":"redacted"}}"#);
    }

    #[test]
    fn each_text_field_of_the_cri_is_known_to_be_a_secret_or_not() {
        let public: BTreeSet<&str> = PUBLIC_TEXTS.split_whitespace().collect();
        let mut found = BTreeSet::new();
        for message in POOL.all_messages().filter(|message| !message.is_map_entry()) {
            for field in message.fields().filter(|field| !field.is_map() && field.kind() == Kind::String) {
                let is_secret = message.name() == "AuthConfig" && field.name() != "server_address";
                if !is_secret && !SECRET_TEXTS.contains(&field.name()) {
                    found.insert(field.name().to_owned());
                }
            }
        }
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, public);
    }
}
