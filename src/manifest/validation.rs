//! Checks of names and labels by the rules of the API server, and the error texts for them.
//! The texts follow `apimachinery/pkg/api/validate/content` and `apimachinery/pkg/util/validation`.

/// Error about an integer that is negative or no 32-bit integer.
pub(crate) const NON_NEGATIVE: &str = "must be an integer between 0 and 2147483647, inclusive";

/// Error about an integer that is not positive or no 32-bit integer.
pub(crate) const POSITIVE: &str = "must be an integer between 1 and 2147483647, inclusive";

/// Error about the number of a port.
pub(crate) const PORT_NUMBER: &str = "must be an integer between 1 and 65535, inclusive";

/// Error about an IP address.
pub(crate) const IP_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Format of a DNS label, such as the name of a container.
pub(crate) const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', must start and end with an alphanumeric character, and must be no more than 63 characters";

/// Format of a DNS subdomain, such as the names of most objects.
pub(crate) const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', must start and end with an alphanumeric character, and must be no more than 253 characters";

/// Format of the key of a label or annotation.
pub(crate) const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric character, and must be no more than 63 characters, with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

/// Format of the value of a label.
pub(crate) const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric character, and must be no more than 63 characters";

/// Format of the name of a port.
pub(crate) const PORT_NAME: &str = "must be no more than 15 characters, must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-), must contain at least one letter (a-z), and must not begin or end with a hyphen or contain consecutive hyphens";

/// Format of a key of a ConfigMap or Secret.
pub(crate) const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.', must not be '.' or start with '..', and must be no more than 253 characters";

/// Format of the name of a kernel parameter.
pub(crate) const SYSCTL: &str = "must have at most 253 characters, and parts of lower case alphanumeric characters, '-' and '_', separated by '.' or '/'";

pub(crate) fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_word(name, is_small, b"-")
}

pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|part| is_word(part, is_small, b"-"))
}

/// Returns whether a text may be a key of a ConfigMap or Secret.
pub(crate) fn is_config_key(key: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let has_length = (1..=253).contains(&key.len());
    has_length && key.bytes().all(is_known) && key != "." && !key.starts_with("..")
}

pub(crate) fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns_subdomain) && is_short_word(name)
}

pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_short_word(value)
}

pub(crate) fn is_port_name(name: &str) -> bool {
    name.len() <= 15
        && is_dns_label(name)
        && !name.contains("--")
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
}

pub(crate) fn is_sysctl(name: &str) -> bool {
    name.len() <= 253 && name.split(['.', '/']).all(|part| is_word(part, is_small, b"-_"))
}

/// Returns whether a path contains `..`.
pub(crate) fn has_backstep(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn is_small(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_short_word(text: &str) -> bool {
    text.len() <= 63 && is_word(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

/// Returns whether a text consists of characters that satisfy `is_end`, with bytes of `between`
/// between them.
fn is_word(text: &str, is_end: impl Fn(u8) -> bool, between: &[u8]) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.into_iter().all(|end| end.is_some_and(&is_end))
        && text.bytes().all(|byte| is_end(byte) || between.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_as_by_the_api_server() {
        type Check = fn(&str) -> bool;
        for (is_it, good, bad) in [
            (is_dns_label as Check, &["a", "a-1", "0"][..], &["", "-a", "a-", "A", "a.b", "a_b"][..]),
            (is_dns_subdomain, &["a.b-c", "1"], &["a..b", "a.-b", ".a", "A", ""]),
            (is_qualified_name, &["a", "example.com/A_b.c"], &["", "a b", "/a", "a/", "A.com/a", "a/b/c"]),
            (is_label_value, &["", "A_b.c"], &["a b", "-a", "ü"]),
            (is_sysctl, &["net.ipv4.tcp_rmem", "net/ipv4/a-b"], &["", "a..b", "A.b", "a b"]),
            (is_port_name, &["http", "a-1"], &["80", "a--b", "Http", "abcdefghijklmnop", ""]),
        ] {
            assert!(good.iter().all(|name| is_it(name)), "{good:?}");
            assert!(!bad.iter().any(|name| is_it(name)), "{bad:?}");
        }
        assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)));
    }
}
