//! Ids.

/// A new id, as containerd makes them: 256 random bits in hexadecimal digits.
pub(super) fn new() -> String {
    let [high, low] = [fastrand::u128(..), fastrand::u128(..)];
    format!("{high:032x}{low:032x}")
}
