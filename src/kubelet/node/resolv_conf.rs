//! Resolver configuration of the node.

use std::io;
use std::path::{Path, PathBuf};

use crate::gofmt::system_error;
use crate::manifest::pod::Dns;
use crate::regular_file::{self, MAX_SMALL_FILE_BYTES};

/// Error of the node's resolver configuration. The messages are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(in crate::kubelet) enum ResolvConfError {
    /// The file was not read.
    #[error("open {}: {}", path.display(), system_error(source))]
    Open { path: PathBuf, source: io::Error },
    /// A line `nameserver` has no address.
    #[error("Encountered error while parsing resolv conf file. Error: nameserver list is empty ")]
    NoNameserver,
}

/// Reads a resolver configuration (kubelet: `network/dns/dns.go`: `getDNSConfig`).
pub(super) fn read(path: &Path) -> Result<Dns, ResolvConfError> {
    let content = regular_file::read(path, MAX_SMALL_FILE_BYTES)
        .map_err(|source| ResolvConfError::Open { path: path.to_owned(), source })?;
    parse(&String::from_utf8_lossy(&content))
}

/// Parses a resolver configuration. The last list of search domains counts, without the root domain
/// and without final dots. Options accumulate (kubelet: `network/dns/dns.go`: `parseResolvConf`).
fn parse(text: &str) -> Result<Dns, ResolvConfError> {
    let mut dns = Dns { include_node_config: true, ..Dns::default() };
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let keyword = fields.next().unwrap_or_default();
        match keyword {
            "nameserver" => {
                dns.servers.push(fields.next().ok_or(ResolvConfError::NoNameserver)?.to_owned());
            }
            "search" => dns.searches = fields.filter(|domain| *domain != ".").map(without_dot).collect(),
            "options" => merge_options(&mut dns.options, fields),
            _ => {}
        }
    }
    Ok(dns)
}

fn without_dot(domain: &str) -> String {
    domain.strip_suffix('.').unwrap_or(domain).to_owned()
}

/// Adds options of a resolver to others. The last of several with one name counts (kubelet:
/// `network/dns/dns.go`: `appendOptions`, `mergeDNSOptions`).
pub(in crate::kubelet) fn merge_options<'a>(
    options: &mut Vec<String>,
    added: impl IntoIterator<Item = &'a str>,
) {
    fn name(option: &str) -> &str {
        option.split_once(':').map_or(option, |(name, _)| name)
    }
    for option in added {
        options.retain(|known| name(known) != name(option));
        options.push(option.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_parsed_as_by_the_kubelet() {
        let text = "# x\nnameserver 1.1.1.1\nsearch a.b c\n  options ndots:2 edns0\nnameserver 2.2.2.2 9.9.9.9\n\
                    search d. . e.f.\noptions timeout:1 ndots:5\nnameserver ::1\n";
        let dns = parse(text).unwrap();
        assert_eq!(dns.servers, ["1.1.1.1", "2.2.2.2", "::1"]);
        assert_eq!(dns.searches, ["d", "e.f"]);
        assert_eq!(dns.options, ["edns0", "timeout:1", "ndots:5"]);
        let error = parse("nameserver 1.1.1.1\nnameserver\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "Encountered error while parsing resolv conf file. Error: nameserver list is empty "
        );
    }

    /// systemd-resolved writes this if the node has no domain.
    #[test]
    fn a_search_of_the_root_domain_gives_no_search_domains() {
        let dns = parse("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n").unwrap();
        assert_eq!(dns.searches, [""; 0]);
    }
}
