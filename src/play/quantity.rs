//! Quantities as Kubernetes writes them: `100m`, `1.5`, `128Mi`, `1e3`.

use std::ops::Add;

/// A thousandth of this is what is counted.
const THOUSAND: i128 = 1_000;

/// A quantity, in thousandths. What is finer is rounded up, as Kubernetes does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity(i128);

impl Quantity {
    pub(super) const ONE: Self = Self(THOUSAND);

    /// Reads a quantity that is not negative.
    pub(super) fn parse(text: &str) -> Option<Self> {
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

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// In thousandths; as many as there is room for.
    pub(super) fn thousandths(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// In whole units, rounded up.
    pub(super) fn units(self) -> i64 {
        i64::try_from((self.0 + THOUSAND - 1) / THOUSAND).unwrap_or(i64::MAX)
    }

    /// In whole units, if it is not finer than that.
    pub(super) fn whole_units(self) -> Option<u64> {
        (self.0 % THOUSAND == 0).then(|| u64::try_from(self.0 / THOUSAND).ok()).flatten()
    }

    /// How often another one is in it, rounded up.
    pub(super) fn divided_by(self, other: Self) -> i128 {
        let other = if other.is_zero() { Self::ONE } else { other };
        (self.0 + other.0 - 1) / other.0
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// By what a number with a suffix is multiplied and divided.
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
        assert_eq!(Quantity::parse("64.5Mi").unwrap().divided_by(mebibyte), 65);
        assert_eq!(Quantity::parse("1500m").unwrap().units(), 2);
    }
}
