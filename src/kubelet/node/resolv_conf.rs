//! Resolver configuration of the node.

use crate::manifest::pod::Dns;

/// Parses a resolver configuration. The last list of search domains counts, without the root domain
/// and without final dots. Options accumulate, and the last of several with one name counts
/// (kubelet: `network/dns/dns.go`: `parseResolvConf`, `appendOptions`).
pub(super) fn parse(text: &str) -> Dns {
    let mut dns = Dns { include_node_config: true, ..Dns::default() };
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let keyword = fields.next().unwrap_or_default();
        match keyword {
            "nameserver" => dns.servers.extend(fields.take(1).map(str::to_owned)),
            "search" => dns.searches = fields.filter(|domain| *domain != ".").map(without_dot).collect(),
            "options" => fields.for_each(|option| add_option(&mut dns.options, option)),
            _ => {}
        }
    }
    dns
}

fn without_dot(domain: &str) -> String {
    domain.strip_suffix('.').unwrap_or(domain).to_owned()
}

fn add_option(options: &mut Vec<String>, option: &str) {
    let name = |option: &str| option.split(':').next().map(str::to_owned);
    options.retain(|known| name(known) != name(option));
    options.push(option.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_parsed_as_by_the_kubelet() {
        let text = "# x\nnameserver 1.1.1.1\nsearch a.b c\n  options ndots:2 edns0\nnameserver 2.2.2.2 9.9.9.9\n\
                    search d. . e.f.\noptions timeout:1 ndots:5\nnameserver ::1\nnameserver\n";
        let dns = parse(text);
        assert_eq!(dns.servers, ["1.1.1.1", "2.2.2.2", "::1"]);
        assert_eq!(dns.searches, ["d", "e.f"]);
        assert_eq!(dns.options, ["edns0", "timeout:1", "ndots:5"]);
    }

    /// systemd-resolved writes this if the node has no domain.
    #[test]
    fn a_search_of_the_root_domain_gives_no_search_domains() {
        assert_eq!(parse("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n").searches, [""; 0]);
    }
}
