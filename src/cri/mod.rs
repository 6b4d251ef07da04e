//! The Container Runtime Interface: methods and messages, gRPC frames and codes, and clients for
//! internal calls.

mod client;
mod error_cause;
mod exit_code;
mod field_client;
mod fields;
mod framing;
mod grpc_timeout;
pub(crate) mod labels;
mod lazy_stream;
mod metered_client;
mod method;
mod observed;
mod raw_request;
mod redact;
mod status;
mod status_message;

pub(crate) use client::{RUNTIME_REQUEST_TIMEOUT, ignore_not_found, with_timeout};
pub use client::{image_client, lazy_channel, runtime_client};
pub use error_cause::{LARGE_MESSAGE, NO_WORKING_DIRECTORY, error_cause, is_container_exited, known_cause};
pub use exit_code::{KILLED, NOT_EXECUTABLE, NOT_FOUND, signal_name};
pub(crate) use field_client::FieldClient;
pub use fields::{FieldError, FieldMessage, FieldPath, MessageJsonError, MessageSide, Redaction};
pub use framing::{FrameError, framed_message, unary_message};
pub use grpc_timeout::grpc_timeout;
pub use lazy_stream::LazyStream;
pub use metered_client::{CountingService, MeteredChannel, MeteredRuntimeClient};
pub use method::{Method, MethodName};
pub use observed::{ContainerObservation, SandboxObservation};
pub(crate) use raw_request::{RawClient, RawCreateContainer, RawRunPodSandbox};
pub use redact::RedactedBytes;
pub use status::Code;
pub use status_message::StatusMessage;

/// Runtime name in procrun's response to Version.
pub(crate) const PROCRUN_RUNTIME_NAME: &str = "procrun";

/// Messages and enums of package `runtime.v1`, generated from `proto/`.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the comments are in proto/")]
pub mod v1 {
    include!("../../proto/generated/runtime.v1.rs");
}

/// The compiled `FileDescriptorSet` of package `runtime.v1`, its services included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../../proto/generated/runtime_v1.binpb");
