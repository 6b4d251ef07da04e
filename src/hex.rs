//! Hexadecimal text of bytes.

use std::fmt::Write as _;

/// Returns bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns an id as containerd generates it: 256 random bits in hexadecimal digits.
pub(crate) fn random_id() -> String {
    let [high, low] = [fastrand::u128(..), fastrand::u128(..)];
    format!("{high:032x}{low:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_lower_case_digits() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(hex(&[]), "");
    }
}
