//! Requests of clients with changes in single fields. All other fields stay unchanged, including
//! those that probeshim does not know.

use std::fmt;
use std::sync::LazyLock;

use prost::{DecodeError, Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MapKey, Value};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::client::{MAX_RESPONSE_BYTES, lazy_channel};
use super::{FILE_DESCRIPTOR_SET, v1};
use crate::socket::SocketPath;

/// Descriptors of the messages of the CRI.
pub(super) static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the descriptors are compiled in"));

/// A captured request of a client.
#[derive(Clone, PartialEq)]
pub(crate) struct RawRequest<T> {
    decoded: T,
    message: DynamicMessage,
}

/// A request that creates a sandbox.
pub(crate) type RawRunPodSandbox = RawRequest<v1::RunPodSandboxRequest>;

/// A request that creates a container.
pub(crate) type RawCreateContainer = RawRequest<v1::CreateContainerRequest>;

/// Sends captured requests.
#[derive(Clone, Debug)]
pub(crate) struct RawClient(Channel);

impl<T: Message + Name + Default> RawRequest<T> {
    /// Decodes a captured request.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let kind = POOL.get_message_by_name(&T::full_name()).expect("the CRI defines the message");
        Ok(Self { decoded: T::decode(bytes)?, message: DynamicMessage::decode(kind, bytes)? })
    }

    /// Returns the known fields of the request as they were captured, without later changes.
    pub(crate) fn decoded(&self) -> &T {
        &self.decoded
    }

    /// Sets the field at `path`. Does nothing if `path` leads to no message.
    pub(crate) fn set_field(&mut self, path: &[&str], value: Value) {
        if let [before @ .., field] = path
            && let Some(message) = self.inner(before)
        {
            message.set_field_by_name(field, value);
        }
    }

    /// Replaces the value of `key` in the map at `path`, if there is one.
    pub(crate) fn set_map_entry(&mut self, path: &[&str], key: &str, text: String) {
        let [before @ .., field] = path else { return };
        let map = self.inner(before).and_then(|message| message.get_field_by_name_mut(field));
        let map = map.and_then(Value::as_map_mut);
        if let Some(value) = map.and_then(|map| map.get_mut(&MapKey::String(key.to_owned()))) {
            *value = Value::String(text);
        }
    }

    fn inner(&mut self, path: &[&str]) -> Option<&mut DynamicMessage> {
        path.iter().try_fold(&mut self.message, |message, field| {
            if !message.has_field_by_name(field) {
                return None;
            }
            message.get_field_by_name_mut(field)?.as_message_mut()
        })
    }
}

impl<T> fmt::Debug for RawRequest<T> {
    /// Writes the size only, because the request may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a request of {} bytes", self.message.encoded_len())
    }
}

impl RawClient {
    /// Creates a client of the runtime at `socket`.
    pub(crate) fn new(socket: &SocketPath) -> Self {
        Self(lazy_channel(socket))
    }

    /// Creates a sandbox.
    pub(crate) async fn run_pod_sandbox(
        &self,
        request: RawRunPodSandbox,
    ) -> Result<Response<v1::RunPodSandboxResponse>, Status> {
        self.send(request.message, "/runtime.v1.RuntimeService/RunPodSandbox").await
    }

    /// Creates a container.
    pub(crate) async fn create_container(
        &self,
        request: RawCreateContainer,
    ) -> Result<Response<v1::CreateContainerResponse>, Status> {
        self.send(request.message, "/runtime.v1.RuntimeService/CreateContainer").await
    }

    async fn send<A: Message + Default + 'static>(
        &self,
        request: DynamicMessage,
        path: &'static str,
    ) -> Result<Response<A>, Status> {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<DynamicMessage, A>::default();
        grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a request with fields of a later version, in the request itself and in its config.
    fn with_unknown_fields() -> Vec<u8> {
        let mut config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "app".to_owned(), attempt: 0 }),
            annotations: [("count".to_owned(), "0".to_owned())].into(),
            log_path: "app/0.log".to_owned(),
            ..v1::ContainerConfig::default()
        }
        .encode_to_vec();
        config.extend(unknown(b"inner"));
        let mut request = v1::CreateContainerRequest {
            pod_sandbox_id: "one".to_owned(),
            ..v1::CreateContainerRequest::default()
        }
        .encode_to_vec();
        prost::encoding::bytes::encode(2, &config, &mut request);
        request.extend(unknown(b"outer"));
        request
    }

    /// Returns field 1000 with this content.
    fn unknown(content: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        prost::encoding::bytes::encode(1000, &content.to_vec(), &mut field);
        field
    }

    #[test]
    fn unknown_fields_of_a_raw_request_are_preserved() {
        let request = with_unknown_fields();
        let mut authored = RawCreateContainer::read(&request).unwrap();
        authored.set_field(&["pod_sandbox_id"], Value::String("two".to_owned()));
        authored.set_field(&["config", "metadata", "attempt"], Value::U32(7));
        authored.set_field(&["config", "log_path"], Value::String("app/7.log".to_owned()));
        authored.set_map_entry(&["config", "annotations"], "count", "7".to_owned());
        authored.set_map_entry(&["config", "annotations"], "other", "7".to_owned());
        authored.set_field(&["sandbox_config", "metadata", "attempt"], Value::U32(7));
        let sent = authored.message.encode_to_vec();
        for content in [&b"inner"[..], b"outer"] {
            let field = unknown(content);
            assert_eq!(sent.windows(field.len()).filter(|bytes| *bytes == field).count(), 1);
        }
        let read = v1::CreateContainerRequest::decode(&*sent).unwrap();
        let config = read.config.unwrap();
        assert_eq!((read.pod_sandbox_id.as_str(), config.log_path.as_str()), ("two", "app/7.log"));
        assert_eq!(config.metadata.unwrap().attempt, 7);
        assert_eq!(config.annotations, [("count".to_owned(), "7".to_owned())].into());
        assert_eq!(read.sandbox_config, None, "the request has no sandbox config");
        assert_eq!(sent.len(), request.len() + 2, "only the set fields have changed");
        assert_eq!(format!("{authored:?}"), format!("a request of {} bytes", sent.len()));
    }
}
