//! The deadline that a client sends with a call.

use std::time::Duration;

use http::HeaderMap;

/// Maximum number of digits of the header, as in gRPC's specification.
const MAX_DIGITS: usize = 8;

/// Longest time that the header can express: eight digits of hours.
pub(super) const MAX_GRPC_TIMEOUT: Duration = Duration::from_secs(99_999_999 * 3600);

/// Returns the time that a client gives a call, as in the header `grpc-timeout`. Returns `None`
/// without the header, or if it is malformed.
#[must_use]
pub fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_timeout_of_a_call_is_read_in_every_unit() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_static(value));
            grpc_timeout(&headers)
        };
        for (text, nanos) in [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("1500m", 1_500_000_000),
        ] {
            assert_eq!(read(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(read("7u"), Some(Duration::from_micros(7)));
        assert_eq!(read("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for wrong in ["", "S", "1", "1s", "-1S", "+1S", "123456789m", "1.5S"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(grpc_timeout(&HeaderMap::new()), None);
    }
}
