//! Parses the lines of a response's head. Errors are Go's texts.

use crate::gofmt::quote_bytes;

/// Maximum number of bytes of a response that an error quotes. Go quotes all.
const MAX_QUOTED: usize = 1 << 10;

/// Maximum number of values that an error quotes.
const MAX_QUOTED_TEXTS: usize = 4;

/// A status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusLine {
    /// Major and minor version.
    pub(super) version: (u8, u8),
    pub(super) code: u16,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is no body.
    Empty,
    /// The body has this number of bytes, more than 0.
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// Values of the headers that have an effect.
#[derive(Debug, Default)]
pub(super) struct KnownHeaders {
    /// The first location, if it is not empty.
    pub(super) location: Option<Vec<u8>>,
    content_length: Vec<Vec<u8>>,
    transfer_encoding: Vec<Vec<u8>>,
    connection: Vec<Vec<u8>>,
    trailer: Vec<Vec<u8>>,
    has_upgrade: bool,
}

impl StatusLine {
    /// Parses a status line (`ReadResponse`).
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let Some(blank) = line.iter().position(|byte| *byte == b' ') else {
            return Err(format!("malformed HTTP response {}", quoted(line)));
        };
        let (version, rest) = (&line[..blank], &line[blank + 1..]);
        let status = &rest[rest.iter().take_while(|byte| **byte == b' ').count()..];
        let code = status.split(|byte| *byte == b' ').next().unwrap_or_default();
        let malformed = || format!("malformed HTTP status code {}", quoted(code));
        let number = if code.len() == 3 { atoi(code) } else { None };
        let code = number.ok_or_else(malformed)?;
        let version =
            parse_version(version).ok_or_else(|| format!("malformed HTTP version {}", quoted(version)))?;
        Ok(Self { version, code })
    }

    fn is_at_least_1_1(self) -> bool {
        self.version >= (1, 1)
    }

    /// Returns whether the response is interim: another head follows. 101 is final, because another
    /// protocol follows it.
    pub(super) fn is_interim(self) -> bool {
        (100..200).contains(&self.code) && self.code != 101
    }
}

/// Parses a number that may have a sign, as Go's `strconv.Atoi` does. Returns `None` for a negative
/// one too.
fn atoi(code: &[u8]) -> Option<u16> {
    let (digits, is_negative) = match code {
        [b'+', rest @ ..] => (rest, false),
        [b'-', rest @ ..] => (rest, true),
        all => (all, false),
    };
    let digits = std::str::from_utf8(digits).ok()?;
    let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u16>().ok())??;
    (!is_negative || number == 0).then_some(number)
}

/// Parses a version (`ParseHTTPVersion`).
fn parse_version(version: &[u8]) -> Option<(u8, u8)> {
    let [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] = version else {
        return None;
    };
    Some((major - b'0', minor - b'0'))
}

impl KnownHeaders {
    /// Parses a line of headers without the blanks at its ends (`readMIMEHeader`), and keeps the
    /// value of a known header.
    pub(super) fn add_line(&mut self, line: &[u8]) -> Result<(), String> {
        let malformed = || format!("malformed MIME header line: {}", quoted(line));
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(malformed)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is_valid_name = !name.is_empty() && name.iter().all(|byte| is_token(*byte) || *byte == b' ');
        let is_valid_value = value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control());
        if !is_valid_name || !is_valid_value {
            return Err(malformed());
        }
        let value = value[value.iter().take_while(|byte| is_blank(**byte)).count()..].to_vec();
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("content-length") {
            self.content_length.push(value);
        } else if is("transfer-encoding") {
            self.transfer_encoding.push(value);
        } else if is("connection") {
            self.connection.push(value);
        } else if is("trailer") {
            self.trailer.push(value);
        } else if is("upgrade") {
            self.has_upgrade |= !value.is_empty();
        } else if is("location") && self.location.is_none() {
            self.location = Some(value);
        }
        Ok(())
    }

    /// Returns how the end of the body is found (`readTransfer`).
    pub(super) fn framing(&self, status: StatusLine) -> Result<Framing, String> {
        let is_chunked = self.is_chunked(status)?;
        let length = self.length()?;
        if is_chunked {
            self.check_trailer()?;
        }
        let is_switch = status.code == 101 && self.has_upgrade && self.has_connection_token("upgrade");
        Ok(match (status.code, length) {
            _ if is_switch => Framing::UntilClose,
            (100..200 | 204 | 304, _) => Framing::Empty,
            _ if is_chunked => Framing::Chunked,
            (_, Some(0)) => Framing::Empty,
            (_, Some(length)) => Framing::Length(length),
            (_, None) => Framing::UntilClose,
        })
    }

    /// Returns whether the body is chunked (`parseTransferEncoding`).
    fn is_chunked(&self, status: StatusLine) -> Result<bool, String> {
        // Go takes the version 0.0 for 1.1.
        let is_ignored = !status.is_at_least_1_1() && status.version != (0, 0);
        match &self.transfer_encoding[..] {
            [] => Ok(false),
            _ if is_ignored => Ok(false),
            [one] if one.eq_ignore_ascii_case(b"chunked") => Ok(true),
            [one] => Err(format!("unsupported transfer encoding: {}", quoted(one))),
            several => Err(format!("too many transfer encodings: {}", quote_all(several))),
        }
    }

    /// Returns the length in the headers (`fixLength`, `parseContentLength`).
    fn length(&self) -> Result<Option<u64>, String> {
        let Some(first) = self.content_length.first().map(|length| length.trim_ascii()) else {
            return Ok(None);
        };
        if self.content_length.iter().any(|other| other.trim_ascii() != first) {
            return Err(format!(
                "http: message cannot contain multiple Content-Length headers; got {}",
                quote_all(&self.content_length)
            ));
        }
        if first.is_empty() {
            return Err("invalid empty Content-Length \"\"".to_owned());
        }
        let digits =
            std::str::from_utf8(first).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let length = digits.and_then(|digits| digits.parse::<u64>().ok()).filter(|length| *length < 1 << 63);
        length.map(Some).ok_or_else(|| format!("bad Content-Length {}", quoted(first)))
    }

    /// Refuses a trailer that would change how the body is read (`fixTrailer`).
    fn check_trailer(&self) -> Result<(), String> {
        for key in self.trailer.iter().flat_map(|value| elements(value)) {
            for forbidden in ["Transfer-Encoding", "Trailer", "Content-Length"] {
                if key.eq_ignore_ascii_case(forbidden.as_bytes()) {
                    return Err(format!("bad trailer key \"{forbidden}\""));
                }
            }
        }
        Ok(())
    }

    fn has_connection_token(&self, token: &str) -> bool {
        let mut tokens = self.connection.iter().flat_map(|value| elements(value));
        tokens.any(|one| one.eq_ignore_ascii_case(token.as_bytes()))
    }
}

/// Returns the elements of a list that are separated by commas, without blanks at their ends.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Returns whether a byte may be in the name of a header (`validHeaderFieldByte`).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns a line without the blanks at its ends.
pub(super) fn without_blanks(line: &[u8]) -> &[u8] {
    let start = line.iter().take_while(|byte| is_blank(**byte)).count();
    let end = line.iter().rev().take_while(|byte| is_blank(**byte)).count();
    line.get(start..line.len() - end).unwrap_or_default()
}

/// Formats texts as Go's `%q` formats a slice of strings.
fn quote_all(texts: &[Vec<u8>]) -> String {
    let texts: Vec<String> = texts.iter().take(MAX_QUOTED_TEXTS).map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(" "))
}

/// Quotes the beginning of a part of a response.
pub(super) fn quoted(part: &[u8]) -> String {
    quote_bytes(&part[..part.len().min(MAX_QUOTED)])
}
