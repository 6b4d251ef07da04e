//! The part of a message that equal events have in common.

use std::borrow::Cow;

/// Lengths of a run of hexadecimal digits that is an id. Runtimes' ids of containers and execs have
/// 64, uids without dashes 32.
const ID_LENS: [usize; 2] = [32, 64];

/// Lengths of the parts of a UUID.
const UUID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// Texts before a pid.
const BEFORE_PID: [&str; 3] = ["pid ", "pid=", "pid: "];

/// Returns the message with a placeholder for each id of a container, exec or pod, for each pid,
/// and for each local port. Events whose messages differ only in these are counted together: each
/// attempt of a probe has an exec id or a port of its own.
pub(crate) fn message_key(message: &str) -> Cow<'_, str> {
    let mut key = String::new();
    // Start of the text that was not copied yet, and of the text that was not read yet.
    let (mut copied, mut at) = (0, 0);
    while let Some(start) = message[at..].find(|c: char| c.is_ascii_alphanumeric()).map(|start| at + start) {
        let rest = &message[start..];
        let word = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())];
        let is_variable =
            is_variable(&message[..start], word) || is_local_port(&message[..start], rest, word);
        let length = uuid_len(rest).or_else(|| is_variable.then_some(word.len()));
        if let Some(length) = length {
            key.push_str(&message[copied..start]);
            key.push('*');
            copied = start + length;
        }
        at = start + length.unwrap_or(word.len());
    }
    if copied == 0 {
        return Cow::Borrowed(message);
    }
    key.push_str(&message[copied..]);
    Cow::Owned(key)
}

/// Returns whether a word is an id or a pid.
fn is_variable(before: &str, word: &str) -> bool {
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let ends_in_pid = |text: &str| {
        before.strip_suffix(text).is_some_and(|text| !text.ends_with(|c: char| c.is_alphanumeric()))
    };
    (is_hex && ID_LENS.contains(&word.len()))
        || (is_number && BEFORE_PID.iter().any(|text| ends_in_pid(text)))
}

/// Returns whether a word is the port of the own end of a connection, as Go shows it:
/// `127.0.0.1:52162->127.0.0.1:80`.
fn is_local_port(before: &str, rest: &str, word: &str) -> bool {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    is_number && before.ends_with(':') && rest[word.len()..].starts_with("->")
}

/// Returns the length of the UUID at the beginning of a text, if there is one.
fn uuid_len(text: &str) -> Option<usize> {
    let length = UUID_PARTS.iter().sum::<usize>() + UUID_PARTS.len() - 1;
    let uuid = text.get(..length)?;
    let ends = !text[length..].starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = uuid.split('-');
    let is_uuid = UUID_PARTS
        .iter()
        .all(|length| parts.next().is_some_and(|part| part.len() == *length && is_hex(part)));
    (ends && is_uuid && parts.next().is_none()).then_some(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_and_pids_of_a_message_are_replaced_and_other_numbers_stay() {
        let id = "e8d27d97".repeat(8);
        let uid = "0f4c9a52-6d1e-4b53-9a51-0123456789ab";
        for (message, key) in [
            (format!("failed to start exec \"{id}\": no"), "failed to start exec \"*\": no"),
            (format!("cri-containerd-{id}.scope of {uid}"), "cri-containerd-*.scope of *"),
            ("process sleep (pid 4711), pid=12, pid: 13".to_owned(), "process sleep (pid *), pid=*, pid: *"),
            (
                "read tcp 127.0.0.1:52162->127.0.0.1:80: read: reset; at [::1]:5->[::1]:6".to_owned(),
                "read tcp 127.0.0.1:*->127.0.0.1:80: read: reset; at [::1]:*->[::1]:6",
            ),
            ("Back-off 10s restarting container main, exit code 137".to_owned(), ""),
            ("after 1234567 attempts; 0f4c9a52-6d1e; rapid 5".to_owned(), ""),
            (format!("{uid}0 is no uid, ö"), ""),
            (String::new(), ""),
        ] {
            let expected = if key.is_empty() { &message } else { key };
            assert_eq!(message_key(&message), expected);
        }
    }

    proptest! {
        #[test]
        fn any_message_has_a_key(message in "\\PC*") {
            prop_assert!(message_key(&message).len() <= message.len());
        }
    }
}
