//! Types of values that flags and the configuration file share. Each is parsed by its `FromStr`,
//! whose error names the allowed values.

use std::fmt::{self, Display};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use crate::duration;
use crate::manifest::quantity::as_int64;
use crate::manifest::validation::is_dns_label;
use crate::prober::KillLimit;

/// Longest duration that a flag or a field accepts.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// The reason for which a text is not a valid value. It is a predicate: messages put the flag or
/// field and the text before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

/// A duration from `MIN_SECS` seconds to 24 hours, such as `30s` or `1m30s`. A number without a
/// unit is in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedDuration<const MIN_SECS: u64 = 0>(Duration);

/// A size from 1 MiB to 1 TiB, such as `64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// A loopback address and a port, such as `127.0.0.1:9754`, or only a port of 127.0.0.1, such as
/// `9754` or `:9754`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackAddress(pub SocketAddr);

/// The absolute path of a directory. A relative path is resolved against the working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirPath(pub PathBuf);

/// Name of an instance of probeshim, such as `ci-1`: a DNS label, as it is part of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceName(String);

/// A value, or `off` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrOff<T>(pub Option<T>);

/// Size limit of a log in the format of the kubelet's `containerLogMaxSize`, such as `10Mi`. A
/// negative size means that logs are not rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSizeLimit(pub Option<u64>);

impl ValueError {
    /// Returns the error of a text that is not an allowed value.
    pub(crate) fn expected(allowed: impl Display) -> Self {
        Self(format!("must be {allowed}"))
    }
}

impl<const MIN_SECS: u64> FromStr for BoundedDuration<MIN_SECS> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let duration = duration::parse(text);
        let range = Duration::from_secs(MIN_SECS)..=MAX_DURATION;
        duration.filter(|duration| range.contains(duration)).map(Self).ok_or_else(|| {
            ValueError::expected(format_args!("a duration from {MIN_SECS}s to 24h, such as 30s or 1m30s"))
        })
    }
}

impl<const MIN_SECS: u64> From<BoundedDuration<MIN_SECS>> for Duration {
    fn from(BoundedDuration(duration): BoundedDuration<MIN_SECS>) -> Self {
        duration
    }
}

impl FromStr for ByteSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let units = [("MiB", 1_u64 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
        let bytes = units.into_iter().find_map(|(name, unit)| {
            let number = text.strip_suffix(name).filter(|number| !number.starts_with('+'))?;
            number.parse::<u64>().ok()?.checked_mul(unit)
        });
        bytes
            .filter(|bytes| (1 << 20..=1 << 40).contains(bytes))
            .map(Self)
            .ok_or_else(|| ValueError::expected("a size from 1MiB to 1TiB, such as 64MiB or 1GiB"))
    }
}

impl FromStr for LoopbackAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let port = text.strip_prefix("localhost:").or(text.strip_prefix(':')).unwrap_or(text);
        let local = port.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = local.or_else(|_| text.parse()).ok();
        address.filter(|address| address.ip().is_loopback()).map(Self).ok_or_else(|| {
            ValueError::expected("a loopback address and a port, such as 127.0.0.1:9754, [::1]:9754 or 9754")
        })
    }
}

impl InstanceName {
    /// Value for which `play` chooses a free name.
    const AUTO: &str = "auto";

    /// Returns whether a free name is to be chosen.
    pub(super) fn is_auto(&self) -> bool {
        self.0 == Self::AUTO
    }

    /// Returns a name that may be chosen.
    pub(super) fn chosen(number: u32) -> Self {
        Self(format!("{}-{number}", Self::AUTO))
    }
}

impl FromStr for InstanceName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if is_dns_label(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(ValueError::expected("1 to 63 lower-case letters, digits and inner dashes, such as ci-1"))
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DirPath {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        std::path::absolute(text).map(Self).map_err(|_| ValueError::expected("the path of a directory"))
    }
}

impl FromStr for KillLimit {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let limit = text.split_once('/').and_then(|(count, within)| {
            let count = count.parse().ok().filter(|count| *count > 0)?;
            let within = within.parse::<BoundedDuration<1>>().ok()?.into();
            Some(Self { count, within })
        });
        limit
            .ok_or_else(|| ValueError::expected("a count from 1 and a duration from 1s to 24h, such as 5/1h"))
    }
}

impl FromStr for LogSizeLimit {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        as_int64(text).map(|bytes| Self(u64::try_from(bytes).ok())).ok_or_else(|| {
            ValueError::expected("a Kubernetes quantity of bytes, such as 10Mi, or -1 for no rotation")
        })
    }
}

impl<T: FromStr<Err: Display>> FromStr for OrOff<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self(None));
        }
        let parsed = text.parse().map_err(|error| ValueError(format!("{error}, or off")));
        parsed.map(|value| Self(Some(value)))
    }
}

/// Parses the name of a variant, as clap does for a flag.
pub(super) fn choice<T: ValueEnum>(text: &str) -> Result<T, ValueError> {
    T::from_str(text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        ValueError::expected(format_args!("one of {}", names.join(", ")))
    })
}

/// Parses a whole number from `MIN` to `MAX`.
pub fn whole_number<T: TryFrom<u64>, const MIN: u64, const MAX: u64>(text: &str) -> Result<T, ValueError> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match MAX {
        u64::MAX => ValueError::expected(format_args!("a whole number from {MIN}")),
        _ => ValueError::expected(format_args!("a whole number from {MIN} to {MAX}")),
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::config::Until;

    /// Asserts that valid texts parse to their values, and that the error of each invalid text
    /// begins with `error`.
    fn check<T>(valid: &[(&str, T)], invalid: &[&str], error: &str)
    where
        T: FromStr<Err: Debug + Display> + Debug + PartialEq,
    {
        for (text, value) in valid {
            assert_eq!(&text.parse::<T>().unwrap(), value, "{text}");
        }
        for text in invalid {
            let message = text.parse::<T>().unwrap_err().to_string();
            assert!(message.starts_with(error), "{text}: {message}");
        }
    }

    #[test]
    fn a_duration_value_must_be_within_its_bounds() {
        let valid = [("1m30s", 90_000), ("500ms", 500), ("0s", 0), ("24h", 24 * 60 * 60 * 1000)];
        let valid = valid.into_iter().chain([("30", 30_000), ("0", 0), ("0.5", 500)]);
        let valid: Vec<_> =
            valid.map(|(text, millis)| (text, BoundedDuration::<0>(Duration::from_millis(millis)))).collect();
        let invalid = ["", "-30", "86401", ".", "1e3", "soon", "-1s", "25h", "1 fortnight"];
        check(&valid, &invalid, "must be a duration from 0s to 24h, such as");
        let valid = [("3s", BoundedDuration::<3>(Duration::from_secs(3)))];
        check(&valid, &["2999ms", "0s"], "must be a duration from 3s to 24h, such as");
    }

    #[test]
    fn a_size_value_must_have_a_binary_unit() {
        let valid = [("1MiB", 1 << 20), ("64MiB", 64 << 20), ("1GiB", 1 << 30), ("1TiB", 1 << 40)];
        let valid = valid.map(|(text, bytes)| (text, ByteSize(bytes)));
        let invalid =
            ["", "64", "64MB", "MiB", "0MiB", "+1MiB", "-1MiB", "1.5GiB", "1025GiB", "99999999999TiB"];
        check(&valid, &invalid, "must be a size from 1MiB to 1TiB, such as");
    }

    #[test]
    fn an_address_value_must_be_a_loopback_address() {
        let valid = [
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:9754", "[::1]:9754"),
            ("0", "127.0.0.1:0"),
            (":9999", "127.0.0.1:9999"),
        ];
        let valid = valid.map(|(text, address)| (text, LoopbackAddress(address.parse().unwrap())));
        let invalid =
            ["", "65536", ":", "127.0.0.1", "localhost:x", "10.0.0.1:1", "[::]:1", "unix:///run/a.sock"];
        check(&valid, &invalid, "must be a loopback address and a port, such as");
    }

    #[test]
    fn an_instance_name_must_be_a_dns_label() {
        assert_eq!("ci-1".parse::<InstanceName>().unwrap().to_string(), "ci-1");
        let invalid = ["", "CI", "a/b", "..", "-a", "a-", "a b", &"a".repeat(64)];
        check::<InstanceName>(&[], &invalid, "must be 1 to 63 lower-case letters, digits and inner dashes");
    }

    #[test]
    fn a_directory_value_must_be_an_absolute_path() {
        let here = std::env::current_dir().unwrap();
        let valid = [("/a/b", DirPath("/a/b".into())), ("a", DirPath(here.join("a")))];
        check(&valid, &[""], "must be the path of a directory");
    }

    #[test]
    fn a_kill_limit_value_must_be_a_count_and_a_duration() {
        let limit = |count, secs| KillLimit { count, within: Duration::from_secs(secs) };
        let invalid = ["", "5", "0/1h", "-1/1h", "5/0s", "5/25h", "5/1h/1h", "/1h", "5/"];
        let error = "must be a count from 1 and a duration from 1s to 24h, such as 5/1h";
        check(&[("5/1h", limit(5, 3600)), ("1/1s", limit(1, 1))], &invalid, error);
    }

    #[test]
    fn a_log_size_value_is_parsed_as_by_the_kubelet() {
        let valid = [
            ("10Mi", Some(10 << 20)),
            ("1e3", Some(1_000)),
            ("0", Some(0)),
            ("+10Mi", Some(10 << 20)),
            ("-1", None),
            ("-10Mi", None),
            ("-0", Some(0)),
        ];
        let valid = valid.map(|(text, bytes)| (text, LogSizeLimit(bytes)));
        let invalid = ["", "-", "10MiB", "1.5", "1.5Ki", "1000m", "--1", "ten"];
        check(&valid, &invalid, "must be a Kubernetes quantity of bytes, such as");
    }

    #[test]
    fn an_until_value_must_be_a_pod_state_or_a_number_of_restarts() {
        let valid =
            [("ready", Until::Ready), ("succeeded", Until::Succeeded), ("restarts=2", Until::Restarts(2))];
        let invalid = ["", "Ready", "soon", "restarts", "restarts=0", "restarts=-1", "restarts="];
        check(&valid, &invalid, "must be ready, succeeded, or restarts=N with N from 1");
    }

    #[test]
    fn the_value_off_disables_an_option_and_errors_mention_it() {
        let valid = [("off", OrOff(None)), ("1MiB", OrOff(Some(ByteSize(1 << 20))))];
        check(&valid, &["Off", "", "1"], "must be a size from 1MiB to 1TiB, such as 64MiB or 1GiB, or off");
    }

    #[test]
    fn a_number_value_must_be_an_integer_within_its_bounds() {
        let number = |text: &str| whole_number::<usize, 2, 5>(text).map_err(|error| error.to_string());
        assert_eq!((number("2"), number("5")), (Ok(2), Ok(5)));
        for text in ["", "1", "6", "2.5", "-3", "many", "99999999999999999999"] {
            assert_eq!(number(text), Err("must be a whole number from 2 to 5".to_owned()), "{text}");
        }
        let message = whole_number::<u64, 0, { u64::MAX }>("-1").unwrap_err().to_string();
        assert_eq!(message, "must be a whole number from 0");
    }
}
