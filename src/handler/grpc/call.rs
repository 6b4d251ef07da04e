//! A call of the health service over a connection, judged as by grpc-go
//! (`internal/transport/http2_client.go`).

use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tokio::io::{AsyncRead, AsyncWrite};

use super::messages::Messages;
use super::status::RpcStatus;
use crate::gofmt::{quote, quote_bytes};
use crate::handler::USER_AGENT;
use crate::handler::http2::{
    ConnectionSettings, Field, FieldBlock, Frame, Http2Connection, Http2Error, code_name,
};
use crate::manifest::GrpcHealth;

/// Settings of grpc-go's client.
pub(super) const SETTINGS: ConnectionSettings = ConnectionSettings {
    window: WINDOW,
    max_header_list: 16 << 20,
    sends_header_list: false,
    keeps: |name| name.ends_with(b"-bin") || KNOWN.contains(&name),
};

/// Window of a stream and of a connection.
const WINDOW: u32 = 0xffff;

/// Names of the fields that have an effect, beside pseudo fields and binary metadata.
const KNOWN: [&[u8]; 4] = [b"content-type", b"grpc-encoding", b"grpc-status", b"grpc-message"];

/// Path of the health service's method.
const CHECK: &[u8] = b"/grpc.health.v1.Health/Check";

/// Version of grpc-go that kubelet 1.36 has in its user agent.
const GRPC_GO: &str = "grpc-go/1.79.3";

/// Number of the stream of the request.
const STREAM: u32 = 1;

/// Decodes binary metadata with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Reason for which a call has no response.
#[derive(Debug)]
pub(super) enum CallError {
    /// The server has not processed the request. grpc-go sends it once again.
    Unprocessed(RpcStatus),
    Failed(RpcStatus),
}

/// A call in flight.
struct Call<'a, S> {
    connection: &'a mut Http2Connection<S>,
    messages: Messages,
    has_head: bool,
    /// Number of bytes of data that have arrived since the window grew.
    arrived: u32,
    /// Text about a GOAWAY frame.
    go_away: Option<String>,
    /// Last stream of the last GOAWAY frame.
    last_stream: Option<u32>,
}

/// Effect of a head or trailers.
enum HeadResult {
    Interim,
    Head { encoding: Option<Vec<u8>> },
    End(RpcStatus),
}

/// Calls the health service, and returns the status in its response. `limit` is the time that is
/// left.
pub(super) async fn check<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Http2Connection<S>,
    authority: &str,
    health: &GrpcHealth,
    limit: Duration,
) -> Result<i32, CallError> {
    let fields = request_fields(authority, health.is_tls, limit);
    let sent = connection.send(&fields, Some(&request_body(&health.service))).await;
    if let Err(error) = sent {
        let text = format!("error reading from server: {error}");
        return Err(CallError::Failed(RpcStatus::new(RpcStatus::UNAVAILABLE, text)));
    }
    let messages = Messages::default();
    Call { connection, messages, has_head: false, arrived: 0, go_away: None, last_stream: None }.run().await
}

impl<S: AsyncRead + AsyncWrite + Unpin> Call<'_, S> {
    async fn run(mut self) -> Result<i32, CallError> {
        loop {
            let frame = match self.connection.read().await {
                Ok(frame) => frame,
                Err(error) => return Err(CallError::Failed(self.ended(error))),
            };
            match frame {
                Frame::Head { stream: STREAM, block, is_end } => {
                    if let Some(ended) = self.add_head(&block, is_end)? {
                        return self.messages.finish(ended).map_err(CallError::Failed);
                    }
                }
                Frame::Data { stream: STREAM, bytes, is_end } => {
                    self.messages.push(&bytes);
                    if self.has_head {
                        self.messages.read().map_err(CallError::Failed)?;
                    }
                    if is_end {
                        let ended = RpcStatus::internal("server closed the stream without sending trailers");
                        return self.messages.finish(ended).map_err(CallError::Failed);
                    }
                    self.grow_window(bytes.len()).await;
                }
                Frame::Reset { stream: STREAM, code } => {
                    let status = RpcStatus::of_reset(code);
                    let is_unprocessed = code == crate::handler::http2::REFUSED_STREAM;
                    return Err(if is_unprocessed {
                        CallError::Unprocessed(status)
                    } else {
                        CallError::Failed(status)
                    });
                }
                Frame::GoAway { last, code, debug } => self.add_go_away(last, code, &debug)?,
                Frame::Settings { is_ack: false } => {
                    let _ = self.connection.acknowledge_settings().await;
                }
                Frame::Ping { is_ack: false, data } => {
                    let _ = self.connection.answer_ping(data).await;
                }
                _ => {}
            }
        }
    }

    /// Adds a head or trailers. Returns the status with which the stream ends.
    fn add_head(&mut self, block: &FieldBlock, is_end: bool) -> Result<Option<RpcStatus>, CallError> {
        match judge_head(block, is_end, self.has_head).map_err(CallError::Failed)? {
            HeadResult::Interim => Ok(None),
            HeadResult::Head { encoding } => {
                self.has_head = true;
                self.messages.set_encoding(encoding);
                self.messages.read().map_err(CallError::Failed)?;
                Ok(None)
            }
            HeadResult::End(status) => Ok(Some(status)),
        }
    }

    /// Lets the server send more, once half of the window has arrived. An error shows when the next
    /// frame is read.
    async fn grow_window(&mut self, count: usize) {
        self.arrived = self.arrived.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.arrived > WINDOW / 2 {
            let _ = self.connection.grow_window(std::mem::take(&mut self.arrived)).await;
        }
    }

    /// Notes a GOAWAY frame (`handleGoAway`). One with an impossible stream has no effect.
    fn add_go_away(&mut self, last: u32, code: u32, debug: &[u8]) -> Result<(), CallError> {
        let is_even = last > 0 && last.is_multiple_of(2);
        if is_even || self.last_stream.is_some_and(|known| last > known) {
            return Ok(());
        }
        if self.last_stream.replace(last).is_none() {
            let code = code_name(code);
            self.go_away = Some(if debug.is_empty() {
                format!("code: {code}")
            } else {
                format!("code: {code}, debug data: {}", quote_bytes(debug))
            });
        }
        if last < STREAM {
            let status = RpcStatus::new(RpcStatus::UNAVAILABLE, "the connection is draining");
            return Err(CallError::Unprocessed(status));
        }
        Ok(())
    }

    /// Returns the status of a call whose connection or stream has ended.
    fn ended(&self, error: Http2Error) -> RpcStatus {
        match (error, &self.go_away) {
            (Http2Error::Stream(code, cause), _) => {
                RpcStatus::of_http2_code(code, cause.unwrap_or_else(|| "received invalid frame".to_owned()))
            }
            (error, None) => {
                RpcStatus::new(RpcStatus::UNAVAILABLE, format!("error reading from server: {error}"))
            }
            (error, Some(go_away)) => {
                let reason = quote(&format!("error reading from server: {error}"));
                RpcStatus::new(
                    RpcStatus::UNAVAILABLE,
                    format!(
                        "closing transport due to: connection error: desc = {reason}, received prior goaway: {go_away}"
                    ),
                )
            }
        }
    }
}

/// Judges a head or trailers (`operateHeaders`).
fn judge_head(block: &FieldBlock, is_end: bool, has_head: bool) -> Result<HeadResult, RpcStatus> {
    if has_head && !is_end {
        return Err(RpcStatus::internal("a HEADERS frame cannot appear in the middle of a stream"));
    }
    if block.is_truncated {
        return Err(RpcStatus::internal("peer header list size exceeded limit"));
    }
    let mut is_grpc = has_head;
    let mut content_type_error = Some("malformed header: missing HTTP content-type".to_owned());
    let (mut encoding, mut http_status, mut metadata_error) = (None, None, None);
    let (mut status, mut details) = (RpcStatus::new(RpcStatus::UNKNOWN, ""), Vec::new());
    for (name, value) in &block.fields {
        match &name[..] {
            b"content-type" if is_grpc_content(value) => (content_type_error, is_grpc) = (None, true),
            b"content-type" => {
                content_type_error =
                    Some(format!("transport: received unexpected content-type {}", quote_bytes(value)));
            }
            b"grpc-encoding" => encoding = Some(value.clone()),
            b"grpc-status" => status.code = parse_code(value)?,
            b"grpc-message" => status.message = decoded_message(value),
            b":status" => http_status = Some(value),
            name if name.ends_with(b"-bin") => match decoded_binary(value) {
                Ok(value) if name == b"grpc-status-details-bin" => details.push(value),
                Ok(_) => {}
                Err(reason) => {
                    let name = String::from_utf8_lossy(name);
                    metadata_error = Some(format!("transport: malformed {name}: {reason}"));
                }
            },
            _ => {}
        }
    }
    if !is_grpc {
        return judge_http_status(http_status.map(Vec::as_slice), content_type_error, is_end);
    }
    if let Some(error) = metadata_error {
        return Err(RpcStatus::internal(error));
    }
    Ok(if is_end { HeadResult::End(status.with_details(&details)) } else { HeadResult::Head { encoding } })
}

/// Judges a head that is not gRPC's, by its HTTP status.
fn judge_http_status(
    status: Option<&[u8]>,
    content_type_error: Option<String>,
    is_end: bool,
) -> Result<HeadResult, RpcStatus> {
    let (code, error) = match status.filter(|status| !status.is_empty()) {
        None => (RpcStatus::INTERNAL, "malformed header: missing HTTP status".to_owned()),
        Some(status) => {
            let number = std::str::from_utf8(status).ok().and_then(|status| status.parse::<i64>().ok());
            let Some(number) = number else {
                return Err(RpcStatus::internal(format!(
                    "transport: malformed http-status: strconv.Atoi: parsing {}: invalid syntax",
                    quote_bytes(status)
                )));
            };
            if (100..200).contains(&number) {
                return if is_end {
                    Err(RpcStatus::internal(format!(
                        "protocol error: informational header with status code {number} must not have END_STREAM set"
                    )))
                } else {
                    Ok(HeadResult::Interim)
                };
            }
            let text = status_text(number);
            let error = format!("unexpected HTTP status code received from server: {number} ({text})");
            (RpcStatus::code_of_http_status(number), error)
        }
    };
    let errors: Vec<String> = [Some(error), content_type_error].into_iter().flatten().collect();
    Err(RpcStatus::new(code, errors.join("; ")))
}

/// Returns the text of an HTTP status in Go (`net/http.StatusText`); nothing if it has none.
fn status_text(number: i64) -> &'static str {
    match number {
        203 => "Non-Authoritative Information",
        413 => "Request Entity Too Large",
        414 => "Request URI Too Long",
        416 => "Requested Range Not Satisfiable",
        _ => {
            let code = u16::try_from(number).ok().and_then(|code| http::StatusCode::from_u16(code).ok());
            code.and_then(|code| code.canonical_reason()).unwrap_or_default()
        }
    }
}

/// Returns whether a content type is that of gRPC (`grpcutil.ContentSubtype`).
fn is_grpc_content(value: &[u8]) -> bool {
    match value.strip_prefix(b"application/grpc") {
        Some([]) => true,
        Some([next, ..]) => matches!(next, b'+' | b';'),
        None => false,
    }
}

/// Parses a status of 32 bits.
fn parse_code(value: &[u8]) -> Result<u32, RpcStatus> {
    let text = String::from_utf8_lossy(value);
    let code: Result<i32, _> = text.parse();
    // A negative number becomes a large one.
    code.map(i32::cast_unsigned).map_err(|error| {
        let reason = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        RpcStatus::new(
            RpcStatus::UNKNOWN,
            format!("transport: malformed grpc-status: strconv.ParseInt: parsing {}: {reason}", quote(&text)),
        )
    })
}

/// Decodes the percent-encoded message of a status. What is no escape stays as it is
/// (`decodeGrpcMessage`).
fn decoded_message(value: &[u8]) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value);
    while let [first, after @ ..] = rest {
        let digit = |place: usize| char::from(*after.get(place)?).to_digit(16);
        let escaped = digit(0).zip(digit(1)).filter(|_| *first == b'%');
        let escaped = escaped.and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Decodes binary metadata (`decodeBinHeader`).
fn decoded_binary(value: &[u8]) -> Result<Vec<u8>, String> {
    BASE64.decode(value).map_err(|error| {
        let place = match error {
            base64::DecodeError::InvalidByte(place, _) | base64::DecodeError::InvalidLastSymbol(place, _) => {
                place
            }
            base64::DecodeError::InvalidLength(length) => length / 4 * 4,
            base64::DecodeError::InvalidPadding => value.len(),
        };
        format!("illegal base64 data at input byte {place}")
    })
}

/// Returns the fields of the request (`createHeaderFields`).
fn request_fields(authority: &str, is_tls: bool, limit: Duration) -> Vec<Field> {
    let field = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    vec![
        field(":method", b"POST"),
        field(":scheme", if is_tls { b"https" } else { b"http" }),
        field(":path", CHECK),
        field(":authority", authority.as_bytes()),
        field("content-type", b"application/grpc"),
        field("user-agent", format!("{USER_AGENT} {GRPC_GO}").as_bytes()),
        field("te", b"trailers"),
        field("grpc-accept-encoding", b"gzip"),
        field("grpc-timeout", encoded_timeout(limit).as_bytes()),
    ]
}

/// Returns a timeout with at most eight digits, rounded up (`encodeDuration`).
fn encoded_timeout(limit: Duration) -> String {
    const MOST: u128 = 99_999_999;
    let units = [("n", 1), ("u", 1_000), ("m", 1_000_000), ("S", 1_000_000_000), ("M", 60_000_000_000)];
    let (name, count) = units
        .into_iter()
        .map(|(name, nanoseconds)| (name, limit.as_nanos().div_ceil(nanoseconds)))
        .find(|(_, count)| *count <= MOST)
        .unwrap_or(("H", MOST));
    format!("{count}{name}")
}

/// Returns the message of the request: `grpc.health.v1.HealthCheckRequest`.
fn request_body(service: &str) -> Vec<u8> {
    #[derive(prost::Message)]
    struct HealthCheckRequest {
        #[prost(string, tag = "1")]
        service: String,
    }
    let message = prost::Message::encode_to_vec(&HealthCheckRequest { service: service.to_owned() });
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &message].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_at_most_eight_digits() {
        let encoded = |seconds: f64| encoded_timeout(Duration::from_secs_f64(seconds));
        assert_eq!(encoded(0.05), "50000000n");
        assert_eq!(encoded(1.0), "1000000u");
        assert_eq!(encoded(99.999_999_1), "100000m");
        assert_eq!(encoded(200_000.0), "200000S");
    }

    #[test]
    fn messages_of_statuses_are_decoded_as_far_as_they_are_escaped() {
        for (written, expected) in [("a%20b", "a b"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%C3%A9", "é")]
        {
            assert_eq!(decoded_message(written.as_bytes()), expected);
        }
    }
}
