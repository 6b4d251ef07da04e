//! Go's texts for errors of TLS (Go 1.26: `crypto/tls/alert.go`).

use std::io;

use tokio_rustls::rustls::{AlertDescription, Error, InvalidMessage};

/// Text of Go for a server that responds to HTTPS with plain HTTP.
pub(in crate::handler) const NOT_HTTPS: &str = "http: server gave HTTP response to HTTPS client";

/// Texts of the alerts, by number.
const ALERTS: [(u8, &str); 33] = [
    (0, "close notify"),
    (10, "unexpected message"),
    (20, "bad record MAC"),
    (21, "decryption failed"),
    (22, "record overflow"),
    (30, "decompression failure"),
    (40, "handshake failure"),
    (42, "bad certificate"),
    (43, "unsupported certificate"),
    (44, "revoked certificate"),
    (45, "expired certificate"),
    (46, "unknown certificate"),
    (47, "illegal parameter"),
    (48, "unknown certificate authority"),
    (49, "access denied"),
    (50, "error decoding message"),
    (51, "error decrypting message"),
    (60, "export restriction"),
    (70, "protocol version not supported"),
    (71, "insufficient security level"),
    (80, "internal error"),
    (86, "inappropriate fallback"),
    (90, "user canceled"),
    (100, "no renegotiation"),
    (109, "missing extension"),
    (110, "unsupported extension"),
    (111, "certificate unobtainable"),
    (112, "unrecognized name"),
    (113, "bad certificate status response"),
    (114, "bad certificate hash value"),
    (115, "unknown PSK identity"),
    (116, "certificate required"),
    (120, "no application protocol"),
];

/// Returns the text for an error of TLS; `None` for another error.
pub(super) fn tls_error(error: &io::Error) -> Option<String> {
    Some(match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => NOT_HTTPS.to_owned(),
        Error::AlertReceived(alert) => format!("remote error: {}", alert_text(*alert)),
        Error::General(reason) => format!("tls: {reason}"),
        other => format!("tls: {other}"),
    })
}

fn alert_text(alert: AlertDescription) -> String {
    let number = u8::from(alert);
    let known = ALERTS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("tls: alert({number})"), |(_, text)| format!("tls: {text}"))
}
