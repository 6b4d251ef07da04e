//! Messages of a response, as grpc-go reads them (`rpc_util.go`, `stream.go`: `csAttempt.recvMsg`).

use std::io::{self, Read as _};

use bytes::{Buf as _, BytesMut};
use flate2::bufread::MultiGzDecoder;

use super::protobuf::{Value, fields};
use super::status::RpcStatus;

/// Maximum number of bytes of a message.
const MAX_MESSAGE: usize = 4 << 20;

/// Number of bytes before each message: a flag and the length.
const PREFIX: usize = 5;

/// The messages of a response with one message.
#[derive(Debug, Default)]
pub(super) struct Messages {
    buffer: BytesMut,
    /// Value of `grpc-encoding`.
    encoding: Option<Vec<u8>>,
    /// The status in the first message.
    first: Option<i32>,
}

impl Messages {
    pub(super) fn set_encoding(&mut self, encoding: Option<Vec<u8>>) {
        self.encoding = encoding.filter(|encoding| !encoding.is_empty() && encoding != b"identity");
    }

    /// Adds data.
    pub(super) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// Reads the messages that are complete.
    pub(super) fn read(&mut self) -> Result<(), RpcStatus> {
        while let Some(prefix) = self.buffer.first_chunk::<PREFIX>() {
            let [flag, length @ ..] = *prefix;
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            if length > MAX_MESSAGE {
                return Err(RpcStatus::new(
                    RpcStatus::RESOURCE_EXHAUSTED,
                    format!("grpc: received message larger than max ({length} vs. {MAX_MESSAGE})"),
                ));
            }
            if self.buffer.len() < PREFIX + length {
                break;
            }
            self.buffer.advance(PREFIX);
            let message = self.buffer.split_to(length);
            let status = self.status_in(flag, &message)?;
            if self.first.replace(status).is_some() {
                return Err(RpcStatus::internal(
                    "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message",
                ));
            }
        }
        Ok(())
    }

    /// Returns the status in the only message, once the stream has ended with this status.
    pub(super) fn finish(mut self, ended: RpcStatus) -> Result<i32, RpcStatus> {
        self.read()?;
        // A prefix that is cut is ignored.
        if self.buffer.len() >= PREFIX {
            return Err(RpcStatus::internal("unexpected EOF"));
        }
        match self.first {
            _ if ended.code != RpcStatus::OK => Err(ended),
            Some(status) => Ok(status),
            None => Err(RpcStatus::internal(
                "cardinality violation: received no response message from non-server-streaming RPC",
            )),
        }
    }

    /// Returns the status in a message (`checkRecvPayload`, `decompress`).
    fn status_in(&self, flag: u8, message: &[u8]) -> Result<i32, RpcStatus> {
        match (flag, self.encoding.as_deref()) {
            (0, _) => status_of(message),
            (1, None) => {
                Err(RpcStatus::internal("grpc: compressed flag set with identity or empty encoding"))
            }
            (1, Some(b"gzip")) => status_of(&decompressed(message)?),
            (1, Some(other)) => Err(RpcStatus::internal(format!(
                "grpc: Decompressor is not installed for grpc-encoding {}",
                crate::gofmt::quote_bytes(other)
            ))),
            (other, _) => {
                Err(RpcStatus::internal(format!("grpc: received unexpected payload format {other}")))
            }
        }
    }
}

fn decompressed(message: &[u8]) -> Result<Vec<u8>, RpcStatus> {
    const MAGIC: &[u8] = &[0x1f, 0x8b, 8];
    const HEADER: usize = 10;
    let invalid =
        |reason: &str| RpcStatus::internal(format!("grpc: failed to decompress the message: {reason}"));
    match message {
        [] => return Err(invalid("EOF")),
        short if short.len() < HEADER => return Err(invalid("unexpected EOF")),
        other if !other.starts_with(MAGIC) => return Err(invalid("gzip: invalid header")),
        _ => {}
    }
    let mut decompressed = Vec::new();
    let limit = u64::try_from(MAX_MESSAGE).unwrap_or(u64::MAX) + 1;
    if let Err(error) = MultiGzDecoder::new(message).take(limit).read_to_end(&mut decompressed) {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "unexpected EOF",
            _ if error.to_string().contains("checksum") => "gzip: invalid checksum",
            _ => "flate: corrupt input",
        };
        return Err(RpcStatus::internal(format!("grpc: failed to read decompressed data: {reason}")));
    }
    if decompressed.len() > MAX_MESSAGE {
        return Err(RpcStatus::new(
            RpcStatus::RESOURCE_EXHAUSTED,
            format!("grpc: received message after decompression larger than max {MAX_MESSAGE}"),
        ));
    }
    Ok(decompressed)
}

/// Returns the status in a `grpc.health.v1.HealthCheckResponse`.
fn status_of(message: &[u8]) -> Result<i32, RpcStatus> {
    let invalid =
        "grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data";
    let fields = fields(message).ok_or_else(|| RpcStatus::internal(invalid))?;
    let status = fields.iter().rev().find_map(|field| match field {
        (1, Value::Varint(status)) => Some(*status),
        _ => None,
    });
    #[expect(clippy::cast_possible_truncation, reason = "as protobuf decodes an enum")]
    Ok(status.unwrap_or_default() as i32)
}
