//! Reads the DNS configuration and the host aliases of a pod.

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{Dns, HostAlias};
use crate::manifest::reader::fields::{FieldSet, check_address, list, required, text};
use crate::manifest::validation::{DNS_SUBDOMAIN, IP_ADDRESS, is_dns_subdomain};

const DNS_CONFIG: FieldSet = FieldSet::only(&["nameservers", "searches", "options"]);

const OPTION: FieldSet = FieldSet::only(&["name", "value"]);

const HOST_ALIAS: FieldSet = FieldSet::only(&["ip", "hostnames"]);

/// Limits of the API server for `dnsConfig` (`core/validation/validation.go`: `MaxDNSNameservers`,
/// `MaxDNSSearchPaths`).
const MAX_DNS_NAMESERVERS: MaxItems = MaxItems { count: 3, reason: "must not have more than 3 nameservers" };
const MAX_DNS_SEARCH_PATHS: MaxItems =
    MaxItems { count: 32, reason: "must not have more than 32 search paths" };

/// Maximum length of a list, and the error for a longer list.
#[derive(Clone, Copy)]
struct MaxItems {
    count: usize,
    reason: &'static str,
}

/// Reads the host aliases of a pod.
pub(super) fn host_aliases(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<HostAlias> {
    let mut aliases = Vec::new();
    for node in list(spec, "hostAliases", problems) {
        HOST_ALIAS.check(&node, problems);
        let ip = required(&node, "ip", IP_ADDRESS, problems);
        let names = list(&node, "hostnames", problems);
        for at in &names {
            if at.text(problems).is_some_and(|name| !is_dns_subdomain(&name)) {
                at.error(DNS_SUBDOMAIN, problems);
            }
        }
        let names = names.iter().filter_map(|name| name.value().as_str()).map(str::to_owned).collect();
        let Some(ip) = ip else { continue };
        node.field("ip").inspect(|at| check_address(at, problems));
        aliases.push(HostAlias { ip, names });
    }
    aliases
}

/// Reads the DNS policy and configuration of a pod.
pub(super) fn dns(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Dns {
    // `ClusterFirst` uses the DNS servers of the node, because a node alone has no DNS of a
    // cluster.
    let policies =
        [("ClusterFirst", true), ("ClusterFirstWithHostNet", true), ("Default", true), ("None", false)];
    let policy = spec.field("dnsPolicy").filter(|policy| policy.value() != "");
    let include_node_config = policy.and_then(|policy| policy.one_of(&policies, problems)).unwrap_or(true);
    let mut dns = Dns { include_node_config, ..Dns::default() };
    if let Some(node) = spec.field("dnsConfig") {
        DNS_CONFIG.check(&node, problems);
        dns.servers = texts_of(&node, "nameservers", MAX_DNS_NAMESERVERS, check_address, problems);
        dns.searches = texts_of(&node, "searches", MAX_DNS_SEARCH_PATHS, check_domain, problems);
        for option in list(&node, "options", problems) {
            OPTION.check(&option, problems);
            let Some(name) = required(&option, "name", "", problems) else {
                continue;
            };
            let value = text(&option, "value", problems);
            dns.options.push(value.map_or(name.clone(), |value| format!("{name}:{value}")));
        }
    }
    if !include_node_config && dns.servers.is_empty() {
        let reason = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        spec.missing("dnsConfig.nameservers", reason, problems);
    }
    dns
}

/// Reads a list of strings of limited length, and checks each string.
fn texts_of(
    node: &Cursor<'_>,
    field: &str,
    MaxItems { count, reason }: MaxItems,
    check: fn(&Cursor<'_>, &mut Vec<Violation>),
    problems: &mut Vec<Violation>,
) -> Vec<String> {
    let Some(list) = node.field(field) else { return Vec::new() };
    let all = list.list(problems);
    if all.len() > count {
        list.error(reason, problems);
    }
    let mut texts = Vec::new();
    for at in all {
        if let Some(text) = at.text(problems) {
            check(&at, problems);
            texts.push(text);
        }
    }
    texts
}

/// Reports a string that is not a domain. The root domain and underscores are valid.
fn check_domain(at: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let Some(domain) = at.value().as_str().filter(|domain| *domain != ".") else { return };
    if !is_dns_subdomain(&domain.strip_suffix('.').unwrap_or(domain).replace('_', "0")) {
        at.error(
            "a DNS search path must consist of lower case alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'example.com')",
            problems,
        );
    }
}
