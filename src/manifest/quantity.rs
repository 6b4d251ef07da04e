//! Quantities in the notation of Kubernetes: `100m`, `1.5`, `128Mi`, `1e3`.

use std::ops::Add;

/// Number of thousandths in a unit.
const THOUSAND: i128 = 1_000;

/// A quantity in thousandths. Smaller parts are rounded up, as in Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

impl Quantity {
    pub(crate) const ONE: Self = Self(THOUSAND);

    /// A thousandth, in the notation of Kubernetes `1m`.
    pub(crate) const MILLI: Self = Self(1);

    /// Parses a quantity that is not negative.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('+').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || number.len() > 18 || fraction.contains('.') {
            return None;
        }
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        let (factor, divisor) = unit(suffix)?;
        let (above, below) = (digits.checked_mul(factor)?.checked_mul(THOUSAND)?, scale * divisor);
        Some(Self((above + below - 1) / below))
    }

    pub(crate) fn from_units(units: u64) -> Self {
        Self(i128::from(units) * THOUSAND)
    }

    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the thousandths, at most `i64::MAX`.
    pub(crate) fn thousandths(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Returns whole units, rounded up, at most `i64::MAX`.
    pub(crate) fn units(self) -> i64 {
        i64::try_from((self.0 + THOUSAND - 1) / THOUSAND).unwrap_or(i64::MAX)
    }

    /// Divides by another quantity, or by one if that is zero, and rounds up.
    pub(crate) fn div_ceil(self, other: Self) -> i128 {
        let other = if other.is_zero() { Self::ONE } else { other };
        (self.0 + other.0 - 1) / other.0
    }
}

/// Parses a quantity as `ParseQuantity` and `AsInt64` of Kubernetes do. These accept few quantities
/// as whole numbers: none with both a fraction and a binary suffix, none with a suffix for
/// fractions such as `m`, and none with too many digits. In contrast to Kubernetes, which reads 0,
/// a text without a digit is refused.
pub(crate) fn as_int64(text: &str) -> Option<i64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = split_digits(text);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let length = whole.trim_start_matches('0').len().max(1) + fraction.len();
    let number: i64 = format!("0{whole}{fraction}").parse().ok()?;
    let (factor, is_exact) = if let Some(power) = binary_power(suffix) {
        // Kubernetes estimates the number of digits of the factor in the same way.
        let digits = length + power as usize * 3 / 10;
        (1_i64.checked_shl(power)?, fraction.is_empty() && digits < 15)
    } else {
        let places = decimal_exponent(suffix)?.checked_sub(u32::try_from(fraction.len()).ok()?)?;
        (10_i64.checked_pow(places)?, length <= 18)
    };
    let value = number.checked_mul(factor).filter(|_| is_exact)?;
    Some(if is_negative { -value } else { value })
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the power of two of a binary suffix.
fn binary_power(suffix: &str) -> Option<u32> {
    let index = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix)?;
    Some(10 * (u32::try_from(index).ok()? + 1))
}

/// Returns the power of ten of a decimal suffix; `None` for suffixes of fractions.
fn decimal_exponent(suffix: &str) -> Option<u32> {
    Some(match suffix {
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?.try_into().ok()?,
    })
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Returns the factor and the divisor of a suffix.
fn unit(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| (1_i128 << (10 * power), 1);
    let decimal = |power: u32| (10_i128.pow(3 * power), 1);
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let power: i32 = exponent.parse().ok().filter(|power| (-9..=18).contains(power))?;
            let factor = 10_i128.pow(power.unsigned_abs());
            if power < 0 { (1, factor) } else { (factor, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, thousandths) in [
            ("0", 0),
            ("1", 1_000),
            ("1.5", 1_500),
            (".5", 500),
            ("100m", 100),
            ("1u", 1),
            ("128Mi", (128 << 20) * 1_000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("1E-3", 1),
            ("0.5Gi", (1 << 29) * 1_000),
        ] {
            assert_eq!(Quantity::parse(text), Some(Quantity(thousandths)), "{text}");
        }
        for text in ["", ".", "m", "1.2.3", "-1", "1x", "1 Gi", "1e99", "9999999999999999999"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        let mebibyte = Quantity::parse("1Mi").unwrap();
        assert_eq!(Quantity::parse("64.5Mi").unwrap().div_ceil(mebibyte), 65);
        assert_eq!(Quantity::parse("1500m").unwrap().units(), 2);
    }

    /// The values are those of `resource.ParseQuantity` and `AsInt64`, except for texts without a
    /// digit.
    #[test]
    fn whole_numbers_are_read_as_kubernetes_reads_them() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("007", 7),
            ("1.", 1),
            ("-1", -1),
            ("+10Mi", 10 << 20),
            ("-10Mi", -(10 << 20)),
            ("1k", 1_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e3", 1_000),
            ("1E+3", 1_000),
            ("1.5k", 1_500),
            ("1.5e3", 1_500),
            (".5M", 500_000),
            ("1.Mi", 1 << 20),
            ("99Ti", 99 << 40),
            ("999999999999999999", 999_999_999_999_999_999),
            ("12345678Mi", 12_345_678 << 20),
        ] {
            assert_eq!(as_int64(text), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "+",
            ".",
            "Mi",
            "--1",
            "+-1",
            "ten",
            "10MiB",
            "1x",
            "1 Gi",
            "1i",
            "1KMi",
            "1e",
            "1e1.5",
            "1.5",
            "1.0",
            ".5",
            "0.0",
            "1.5Ki",
            "1.0Ki",
            "1.2345k",
            "0Ei",
            "1Pi",
            "100Ti",
            "100m",
            "1000m",
            "1000000u",
            "1e-3",
            "1e99",
            "10E",
            "123456789Mi",
            "1000000000000000000",
            "9223372036854775807",
        ] {
            assert_eq!(as_int64(text), None, "{text}");
        }
    }
}
