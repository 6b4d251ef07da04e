//! Resolution of ports, and text of addresses, as in the kubelet (`pkg/probe/util.go`).

use std::borrow::Cow;

use crate::manifest::{ContainerPort, Port};

/// Reason for which a port is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The text is neither the name of one of the container's ports nor a number.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    Unknown(String),
    /// The number is outside 1 to 65535.
    #[error("invalid port number: {0}")]
    OutOfRange(i64),
}

/// Returns the number of a port (`pkg/probe/util.go`: `ResolveContainerPort`). A name is searched
/// only among the ports of the container that is probed. A text that is no such name must be a
/// number.
pub(super) fn port(port: &Port, ports: &[ContainerPort]) -> Result<u16, PortError> {
    let name = match port {
        Port::Number(number) => return Ok(*number),
        Port::Name(name) => name,
    };
    if let Some(port) = ports.iter().find(|port| port.name.as_ref() == Some(name)) {
        return Ok(port.number);
    }
    let number: i64 = name.parse().map_err(|_| PortError::Unknown(name.clone()))?;
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or(PortError::OutOfRange(number))
}

/// Returns a host and a port as one text. A host that contains a colon is put in brackets.
pub(super) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns a host name with its labels beyond ASCII in Punycode. Other labels stay as they are.
pub(super) fn to_ascii(host: Cow<'_, str>) -> Cow<'_, str> {
    if host.is_ascii() {
        return host;
    }
    let label = |label: &str| match idna::punycode::encode_str(&label.to_lowercase()) {
        Some(encoded) if !label.is_ascii() => format!("xn--{encoded}"),
        _ => label.to_owned(),
    };
    Cow::Owned(host.split('.').map(label).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats `TestGetURLParts` and `TestGetTCPAddrParts` (`prober_test.go`), and
    /// `TestFindPortByName` and `TestResolveContainerPort` (`pkg/probe/util_test.go`). The rows
    /// with integers are omitted, because integers are checked before they become a `Port`.
    #[test]
    fn upstream_test_resolve_container_port() {
        let ports = [ContainerPort { name: Some("found".to_owned()), number: 93 }];
        let name = |name: &str| Port::Name(name.to_owned());
        let unknown = |name: &str| Err(PortError::Unknown(name.to_owned()));
        for (row, written, expected) in [
            ("\"\"", name(""), unknown("")),
            ("\"-1\"", name("-1"), Err(PortError::OutOfRange(-1))),
            ("\"not-found\"", name("not-found"), unknown("not-found")),
            ("\"found\"", name("found"), Ok(93)),
            ("76", Port::Number(76), Ok(76)),
            ("\"118\"", name("118"), Ok(118)),
            ("\"66666\"", name("66666"), Err(PortError::OutOfRange(66_666))),
        ] {
            assert_eq!(port(&written, &ports), expected, "{row}");
        }
    }

    #[test]
    fn addresses_with_colons_are_bracketed() {
        assert_eq!(join_host_port("10.0.0.1", 80), "10.0.0.1:80");
        assert_eq!(join_host_port("fd00::1", 80), "[fd00::1]:80");
        assert_eq!(join_host_port("", 32), ":32");
    }

    #[test]
    fn labels_beyond_ascii_are_in_punycode() {
        assert_eq!(to_ascii("Web.test".into()), "Web.test");
        assert_eq!(to_ascii("Größe.Test".into()), "xn--gre-6ka8i.Test");
    }
}
