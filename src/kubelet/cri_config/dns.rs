//! DNS configuration of a sandbox (kubelet: `network/dns/dns.go`: `GetPodDNS`).

use std::collections::HashSet;

use crate::cri::v1::DnsConfig;
use crate::kubelet::node::merge_options;
use crate::manifest::pod::Dns;

/// Limits of a resolver (`pkg/apis/core/validation/validation.go`): nameservers, search domains,
/// and characters of all search domains.
const MAX_DNS_NAMESERVERS: usize = 3;
const MAX_DNS_SEARCH_PATHS: usize = 32;
const MAX_DNS_SEARCH_LIST_CHARS: usize = 2_048;

/// Maximum length of a search domain. Longer ones abort some resolvers.
const MAX_DOMAIN_LEN: usize = 253;

/// Merges the DNS settings of a pod with those of the node, if the pod includes them. Nameservers
/// and search domains beyond the limits of a resolver are left out.
pub(super) fn dns(pod: &Dns, node: &Dns) -> DnsConfig {
    let mut dns = if pod.include_node_config { node.clone() } else { Dns::default() };
    let has_config = ![&pod.servers, &pod.searches, &pod.options].into_iter().all(Vec::is_empty);
    dns.servers.extend(pod.servers.iter().cloned());
    dns.searches.extend(pod.searches.iter().cloned());
    if has_config {
        dedup(&mut dns.servers);
        dedup(&mut dns.searches);
    }
    merge_options(&mut dns.options, pod.options.iter().map(String::as_str));
    dns.servers.truncate(MAX_DNS_NAMESERVERS);
    fit_searches(&mut dns.searches);
    DnsConfig { servers: dns.servers, searches: dns.searches, options: dns.options }
}

/// Removes all but the first of equal texts.
fn dedup(texts: &mut Vec<String>) {
    let mut known = HashSet::new();
    texts.retain(|text| known.insert(text.clone()));
}

/// Leaves out search domains beyond the limits of a resolver (`formDNSSearchFitsLimits`).
fn fit_searches(searches: &mut Vec<String>) {
    searches.truncate(MAX_DNS_SEARCH_PATHS);
    searches.retain(|domain| domain.len() <= MAX_DOMAIN_LEN);
    let mut line_len = 0;
    let fitting = searches.iter().take_while(|domain| {
        line_len += domain.len() + usize::from(line_len > 0);
        line_len <= MAX_DNS_SEARCH_LIST_CHARS
    });
    let count = fitting.count();
    searches.truncate(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_settings_of_a_pod_follow_those_of_the_node_without_duplicates() {
        let node = Dns {
            include_node_config: true,
            servers: texts(&["1.1.1.1", "1.1.1.1", "2.2.2.2", "3.3.3.3"]),
            searches: texts(&["a"]),
            options: texts(&["ndots:1", "edns0"]),
        };
        let plain = Dns { include_node_config: true, ..Dns::default() };
        let merged = dns(&plain, &node);
        assert_eq!(
            merged.servers,
            ["1.1.1.1", "1.1.1.1", "2.2.2.2"],
            "a kubelet leaves the node's as they are"
        );
        let pod = Dns {
            servers: texts(&["2.2.2.2", "4.4.4.4"]),
            searches: texts(&["b", "a"]),
            options: texts(&["ndots:4", "ndots:5"]),
            ..plain
        };
        let merged = dns(&pod, &node);
        assert_eq!(merged.servers, ["1.1.1.1", "2.2.2.2", "3.3.3.3"]);
        assert_eq!((merged.searches, merged.options), (texts(&["a", "b"]), texts(&["edns0", "ndots:5"])));
        let alone = Dns { include_node_config: false, ..pod };
        assert_eq!(dns(&alone, &node).servers, ["2.2.2.2", "4.4.4.4"]);
    }

    #[test]
    fn search_domains_beyond_the_limits_of_a_resolver_are_left_out() {
        let fitting = |mut searches: Vec<String>| {
            fit_searches(&mut searches);
            searches.len()
        };
        assert_eq!(fitting(vec!["a".to_owned(); 40]), 32);
        assert_eq!(fitting(vec!["a".repeat(253), "b".repeat(254)]), 1);
        // Eight domains of 253 characters and seven blanks have 2,031 characters.
        assert_eq!(fitting(vec!["a".repeat(253); 9]), 8);
        let mut exact = vec!["a".repeat(253); 8];
        exact.push("b".repeat(16));
        assert_eq!((fitting(exact.clone()), fitting([exact, texts(&["c"])].concat())), (9, 9));
    }
}
