//! Checks of names and labels by the rules of the API server, and the error texts for them.

/// Format of a DNS label, such as the name of a container.
pub(crate) const DNS_LABEL: &str =
    "must be a name of up to 63 lower-case letters, digits and -, with a letter or digit at each end";

/// Format of a DNS subdomain, such as the names of most objects.
pub(crate) const DNS_SUBDOMAIN: &str = "must be a name of Kubernetes: up to 253 lower-case letters, digits, - and ., with a letter or digit at each end";

/// Format of the key of a label or annotation.
pub(crate) const QUALIFIED_NAME: &str = "must have a key of up to 63 letters, digits, -, _ and ., with a letter or digit at each end, after a prefix such as example.com/ if there is one";

/// Format of the value of a label.
pub(crate) const LABEL_VALUE: &str =
    "must be empty, or up to 63 letters, digits, -, _ and ., with a letter or digit at each end";

/// Format of the name of a port.
pub(crate) const PORT_NAME: &str = "must be a name of up to 15 lower-case letters, digits and -, with a letter in it, a letter or digit at each end and no -- between";

/// Format of the name of a kernel parameter.
pub(crate) const SYSCTL: &str = "must be the name of a kernel parameter: words of lower-case letters, digits, - and _, with . or / between them";

pub(crate) fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_word(name, is_small, b"-")
}

pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|part| is_word(part, is_small, b"-"))
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
    fn names_are_taken_as_the_api_server_takes_them() {
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
