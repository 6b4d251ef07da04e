//! Expansion of `$(VAR)` in commands and variables, as in the kubelet
//! (`third_party/forked/golang/expansion`).

use std::collections::HashMap;

/// Expands each word: `$(NAME)` of a known variable becomes its value, `$$` becomes `$`, and all
/// other text is unchanged.
pub(crate) fn expand(args: &[String], env: &HashMap<String, String>) -> Vec<String> {
    args.iter().map(|arg| expand_word(arg, env)).collect()
}

/// Expands one word.
fn expand_word(word: &str, env: &HashMap<String, String>) -> String {
    let expanded = expand_with(word, |name| env.get(name).map(String::as_bytes));
    String::from_utf8_lossy(&expanded).into_owned()
}

/// Expands one word. `value` returns the value of a variable, if it has one. Values may have any
/// bytes.
pub(crate) fn expand_with<'a>(word: &str, mut value: impl FnMut(&str) -> Option<&'a [u8]>) -> Vec<u8> {
    let (mut expanded, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.extend_from_slice(before.as_bytes());
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            expanded.push(b'$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match value(name) {
                Some(value) => expanded.extend_from_slice(value),
                None => expanded.extend_from_slice(format!("$({name})").as_bytes()),
            }
            rest = after;
        } else {
            expanded.push(b'$');
        }
    }
    expanded.extend_from_slice(rest.as_bytes());
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_references_are_expanded_as_by_the_kubelet() {
        let env =
            [("A", "1"), ("B", "$(A)"), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (word, expanded) in [
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(A)"),
            ("<$(EMPTY)>", "<>"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(A", "$(A"),
            ("$A $", "$A $"),
            ("$()", "$()"),
            ("", ""),
        ] {
            assert_eq!(expand_word(word, &env), expanded, "{word}");
        }
    }
}
