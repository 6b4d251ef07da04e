//! Exchange of one request over HTTP/2, judged as by Go's client (`golang.org/x/net/http2/
//! transport.go`).

use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT};
use tokio::io::{AsyncRead, AsyncWrite};

use super::conn_addrs::ConnAddrs;
use super::headers::GetRequest;
use crate::gofmt::quote_bytes;
use crate::handler::http2::{
    ConnectionSettings, Field, FieldBlock, Frame, Http2Connection, Http2Error, PROTOCOL_ERROR,
    REFUSED_STREAM, code_name,
};

/// Maximum number of bytes of the fields of one head, and of all interim heads of a response
/// together, as in Go.
const MAX_HEADER_LIST_BYTES: u32 = 10 << 20;

/// Settings of Go's client.
const SETTINGS: ConnectionSettings = ConnectionSettings {
    window: 4 << 20,
    max_header_list: MAX_HEADER_LIST_BYTES,
    sends_header_list: true,
    keeps: |name| matches!(name, b"location" | b"content-length"),
};

/// Number of the stream of the request.
const STREAM: u32 = 1;

/// Code of an error by which a server ends no stream.
const NO_ERROR: u32 = 0;

/// Cause of the error of a stream that the server has reset.
const FROM_PEER: &str = "received from peer";

/// Text of Go for a body that is longer than its length says.
const TOO_LONG: &str = "net/http: server replied with more than declared Content-Length; truncated";

/// Reason for which there is no response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoResponse {
    /// The server has not processed the request. Go sends it again, over another connection.
    Unprocessed,
    Failed(String),
}

/// A response whose body has not been read.
pub(super) struct Http2Response<S> {
    /// The status, which may be any number.
    pub(super) status: i64,
    pub(super) location: Option<Vec<u8>>,
    pub(super) body: Http2Body<S>,
}

/// The body of a response, with its connection.
pub(super) struct Http2Body<S> {
    connection: Connection<S>,
    /// Number of bytes that the body must still have, if its length is known.
    left: Option<u64>,
    is_at_end: bool,
}

/// A connection, as far as its stream has been read.
struct Connection<S> {
    http2: Http2Connection<S>,
    ends: ConnAddrs,
    has_settings: bool,
    /// Whether an acknowledgement of the own settings is expected.
    wants_ack: bool,
    /// The last stream, the code and the text of a GOAWAY frame.
    go_away: Option<(u32, u32, Vec<u8>)>,
}

/// Head, trailers or data of the stream.
enum StreamEvent {
    Head { block: FieldBlock, is_end: bool },
    Data { bytes: Bytes, is_end: bool },
}

/// Sends a request, and returns the response once its head has arrived.
pub(super) async fn exchange<S>(
    stream: S,
    request: &GetRequest,
    ends: ConnAddrs,
) -> Result<Http2Response<S>, NoResponse>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: std::io::Error| NoResponse::Failed(ends.go_io_error(&error));
    let mut http2 = Http2Connection::begin(stream, SETTINGS).await.map_err(failed)?;
    http2.send(&fields_of(request), None).await.map_err(failed)?;
    let mut connection = Connection { http2, ends, has_settings: false, wants_ack: true, go_away: None };
    let mut interim_size = 0;
    loop {
        let (block, is_end) = match connection.next().await? {
            StreamEvent::Head { block, is_end } => (block, is_end),
            // DATA before a HEADERS frame.
            StreamEvent::Data { .. } => return Err(stream_error(None)),
        };
        if block.is_truncated {
            return Err(stream_error(Some("http2: response header list larger than advertised limit")));
        }
        let status = status_of(&block).map_err(|cause| stream_error(Some(cause)))?;
        if !(100..200).contains(&status) {
            return Ok(response(connection, status, &block, is_end));
        }
        if is_end {
            return Err(stream_error(Some("1xx informational response with END_STREAM flag")));
        }
        interim_size += block.size;
        if interim_size > usize::try_from(MAX_HEADER_LIST_BYTES).unwrap_or(usize::MAX) {
            return Err(stream_error(Some("header list too large")));
        }
    }
}

fn stream_error(cause: Option<&str>) -> NoResponse {
    NoResponse::Failed(Http2Error::Stream(PROTOCOL_ERROR, cause.map(str::to_owned)).to_string())
}

/// Returns the status in a head (`handleResponse`).
fn status_of(block: &FieldBlock) -> Result<i64, &'static str> {
    let status = value_of(block, b":status").filter(|status| !status.is_empty());
    let status = status.ok_or("malformed response from server: missing status pseudo header")?;
    let status = std::str::from_utf8(status).ok().and_then(|status| status.parse().ok());
    status.ok_or("malformed response from server: malformed non-numeric status pseudo header")
}

fn value_of<'a>(block: &'a FieldBlock, name: &[u8]) -> Option<&'a [u8]> {
    block.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
}

fn response<S>(connection: Connection<S>, status: i64, block: &FieldBlock, is_end: bool) -> Http2Response<S> {
    let lengths: Vec<&Field> = block.fields.iter().filter(|(name, _)| name == b"content-length").collect();
    let left = match lengths[..] {
        // A length that is no number, and several ones, have no effect.
        [(_, length)] => content_length(length),
        _ => None,
    };
    let location = value_of(block, b"location").map(<[u8]>::to_vec);
    let left = if is_end { left.filter(|left| *left > 0) } else { left };
    Http2Response { status, location, body: Http2Body { connection, left, is_at_end: is_end } }
}

/// Parses a length of at most 63 bits.
fn content_length(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits?.parse::<u64>().ok().filter(|length| *length < 1 << 63)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2Body<S> {
    /// Returns the next part of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if self.is_at_end {
                return match self.left {
                    Some(left) if left > 0 => Err(Http2Error::UnexpectedEof.to_string()),
                    _ => Ok(None),
                };
            }
            let event = self.connection.next().await.map_err(|error| match error {
                NoResponse::Failed(reason) => reason,
                NoResponse::Unprocessed => {
                    "http2: Transport received Server's graceful shutdown GOAWAY".to_owned()
                }
            })?;
            match event {
                StreamEvent::Data { bytes, is_end } => {
                    self.is_at_end = is_end;
                    if let Some(left) = &mut self.left {
                        *left = left.checked_sub(bytes.len() as u64).ok_or(TOO_LONG)?;
                    }
                    if !bytes.is_empty() {
                        return Ok(Some(bytes));
                    }
                }
                StreamEvent::Head { block, is_end } => {
                    // Trailers (`processTrailers`).
                    let has_pseudo = block.fields.iter().any(|(name, _)| name.starts_with(b":"));
                    if !is_end || has_pseudo {
                        return Err(Http2Error::Connection(PROTOCOL_ERROR).to_string());
                    }
                    self.is_at_end = true;
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads frames until something arrives on the stream (`clientConnReadLoop.run`).
    async fn next(&mut self) -> Result<StreamEvent, NoResponse> {
        loop {
            let frame = match self.http2.read().await {
                Ok(frame) => frame,
                Err(error) => return Err(self.ended(error)),
            };
            if !self.has_settings {
                if !matches!(frame, Frame::Settings { .. }) {
                    return Err(self.ended(Http2Error::Connection(PROTOCOL_ERROR)));
                }
                self.has_settings = true;
            }
            match frame {
                Frame::Head { stream: STREAM, block, is_end } => {
                    return Ok(StreamEvent::Head { block, is_end });
                }
                Frame::Data { stream: STREAM, bytes, is_end } => {
                    return Ok(StreamEvent::Data { bytes, is_end });
                }
                Frame::Reset { stream: STREAM, code } => return Err(reset(code)),
                // Data of a stream that was never requested.
                Frame::Data { .. } | Frame::PushPromise => {
                    return Err(self.ended(Http2Error::Connection(PROTOCOL_ERROR)));
                }
                Frame::GoAway { last, code, debug } => self.go_away(last, code, debug)?,
                Frame::Settings { is_ack: true } if !self.wants_ack => {
                    return Err(self.ended(Http2Error::Connection(PROTOCOL_ERROR)));
                }
                Frame::Settings { is_ack: true } => self.wants_ack = false,
                Frame::Settings { is_ack: false } => self.answered(None).await?,
                Frame::Ping { is_ack: false, data } => self.answered(Some(data)).await?,
                Frame::WindowUpdate { stream: 0, increment } if increment > MAX_INCREMENT => {
                    return Err(self.ended(Http2Error::Connection(FLOW_CONTROL_ERROR)));
                }
                Frame::Head { .. }
                | Frame::Reset { .. }
                | Frame::Ping { .. }
                | Frame::WindowUpdate { .. }
                | Frame::Other => {}
            }
        }
    }

    /// Acknowledges settings, or a ping with this data. A server that has ended needs no answer.
    async fn answered(&mut self, ping: Option<[u8; 8]>) -> Result<(), NoResponse> {
        let _ = match ping {
            Some(data) => self.http2.answer_ping(data).await,
            None => self.http2.acknowledge_settings().await,
        };
        Ok(())
    }

    /// Notes that the server takes no more streams (`setGoAway`).
    fn go_away(&mut self, last: u32, code: u32, debug: Vec<u8>) -> Result<(), NoResponse> {
        let (code, debug) = match self.go_away.take() {
            Some((_, known, text)) if known != NO_ERROR => (known, text),
            Some((_, _, text)) if !text.is_empty() => (code, text),
            _ => (code, debug),
        };
        self.go_away = Some((last, code, debug));
        match code {
            _ if last >= STREAM => Ok(()),
            NO_ERROR => Err(NoResponse::Unprocessed),
            code => Err(NoResponse::Failed(format!(
                "http2: Transport received GOAWAY from server ErrCode:{}",
                code_name(code)
            ))),
        }
    }

    /// Returns the reason for which a connection has ended (`cleanup`).
    fn ended(&self, error: Http2Error) -> NoResponse {
        let is_end = matches!(error, Http2Error::Eof | Http2Error::UnexpectedEof | Http2Error::Io(_));
        NoResponse::Failed(match (error, &self.go_away) {
            (_, Some((last, code, debug))) if is_end => format!(
                "http2: server sent GOAWAY and closed the connection; LastStreamID={last}, ErrCode={}, debug={}",
                code_name(*code),
                quote_bytes(debug)
            ),
            (Http2Error::Eof, _) => Http2Error::UnexpectedEof.to_string(),
            (Http2Error::Io(error), _) => self.ends.go_io_error(&error),
            (other, _) => other.to_string(),
        })
    }
}

/// Largest increment of the window of the connection, which has 65,535 bytes.
const MAX_INCREMENT: u32 = 0x7fff_ffff - 0xffff;

const FLOW_CONTROL_ERROR: u32 = 3;

/// Returns the reason of a stream that the server has reset.
fn reset(code: u32) -> NoResponse {
    match code {
        PROTOCOL_ERROR | REFUSED_STREAM => NoResponse::Unprocessed,
        code => NoResponse::Failed(Http2Error::Stream(code, Some(FROM_PEER.to_owned())).to_string()),
    }
}

/// Returns the fields of a request: its headers without those that HTTP/2 does not allow. The host
/// is the authority.
fn fields_of(request: &GetRequest) -> Vec<Field> {
    let field = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let headers = request.headers();
    let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let mut fields = vec![
        field(":authority", host),
        field(":method", b"GET"),
        field(":path", request.target()),
        field(":scheme", b"https"),
    ];
    for (name, value) in headers {
        let is_left_out = [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(name)
            || matches!(name.as_str(), "keep-alive" | "proxy-connection")
            || (*name == TE && value != "trailers")
            || (*name == USER_AGENT && value.is_empty());
        if !is_left_out {
            fields.push(field(name.as_str(), value.as_bytes()));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};
    use tokio::io::duplex;

    use super::super::headers::Headers;
    use super::super::target_url::TargetUrl;
    use super::*;

    /// Sends a request to a server that sends `interim` interim heads before its response, each
    /// with a header of `length` bytes.
    async fn status(interim: usize, length: usize) -> Result<i64, NoResponse> {
        let (ours, theirs) = duplex(64 << 10);
        let server = tokio::spawn(async move {
            let mut connection = h2::server::handshake(theirs).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            for _ in 0..interim {
                let hints = Response::builder().status(103).header("link", "x".repeat(length));
                respond.send_informational(hints.body(()).unwrap()).unwrap();
            }
            respond.send_response(Response::new(()), true).unwrap();
            // The server ends with the connection.
            let _ = connection.accept().await;
        });
        let place = TargetUrl::new(true, "localhost", 1, "/", false).unwrap();
        let request = Headers::new(&[], "a").unwrap().request(&place, None, None).unwrap();
        let answered = exchange(ours, &request, ConnAddrs("a->b".to_owned())).await;
        let status = answered.map(|response| response.status);
        server.await.unwrap();
        status
    }

    #[tokio::test]
    async fn interim_heads_over_http_2_are_limited_as_by_go() {
        const LENGTH: usize = 4 << 10;
        const OVERHEAD: usize = 32;
        let size = ":status103".len() + "link".len() + LENGTH + 2 * OVERHEAD;
        let most = usize::try_from(MAX_HEADER_LIST_BYTES).unwrap() / size;
        let ok = i64::from(StatusCode::OK.as_u16());
        assert_eq!(status(1_000, 0).await, Ok(ok));
        assert_eq!(status(most, LENGTH).await, Ok(ok));
        let too_large = "stream error: stream ID 1; PROTOCOL_ERROR; header list too large";
        assert_eq!(status(most + 1, LENGTH).await, Err(NoResponse::Failed(too_large.to_owned())));
    }
}
