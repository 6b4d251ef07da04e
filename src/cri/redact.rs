//! `Debug` for messages that contain secrets. Only public fields and sizes are shown.

use std::fmt;
use std::sync::Arc;

use super::v1::{AuthConfig, KeyValue};

/// The bytes of a captured request, which may contain secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedBytes(pub Arc<[u8]>);

impl fmt::Debug for RedactedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &self.key)
            .field("value", &format_args!("<{} bytes>", self.value.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_cri_messages_contains_no_secrets() {
        let auth = AuthConfig {
            username: "s3cret".into(),
            password: "s3cret".into(),
            auth: "s3cret".into(),
            server_address: "registry.test".into(),
            identity_token: "s3cret".into(),
            registry_token: "s3cret".into(),
        };
        let env = KeyValue { key: "TOKEN".into(), value: b"s3cret".to_vec() };
        let request = RedactedBytes(b"s3cret".as_slice().into());
        let shown = format!("{auth:?} {env:?} {request:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("registry.test") && shown.contains("TOKEN") && shown.contains("<6 bytes>"));
    }
}
