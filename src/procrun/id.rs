//! Ids of sandboxes and containers.

/// Generates an id as containerd does: 256 random bits in hexadecimal digits.
pub(super) fn generate() -> String {
    let [high, low] = [fastrand::u128(..), fastrand::u128(..)];
    format!("{high:032x}{low:032x}")
}
