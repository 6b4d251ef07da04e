//! The Container Runtime Interface: its messages, and the codes of the gRPC calls that carry them.

mod redact;
mod status;

pub use status::Code;

/// The messages and enums of package `runtime.v1`, generated from `proto/`.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the words are in proto/")]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/runtime.v1.rs"));
}

/// The compiled `FileDescriptorSet` of package `runtime.v1`, its services included.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runtime_v1.binpb"));
