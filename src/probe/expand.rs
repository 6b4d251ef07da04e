//! Expansion of `$(VAR)` in commands and variables, as in the kubelet
//! (`third_party/forked/golang/expansion`).

use std::collections::HashMap;

/// Expands each word: `$(NAME)` of a known variable becomes its value, `$$` becomes `$`, and all
/// other text is unchanged.
pub(crate) fn expand(args: &[String], env: &HashMap<String, String>) -> Vec<String> {
    args.iter().map(|arg| expand_word(arg, env)).collect()
}

/// Expands one word.
pub(crate) fn expand_word(word: &str, env: &HashMap<String, String>) -> String {
    expand_with(word, |name| env.get(name).map(String::as_str))
}

/// Expands one word. `value` returns the value of a variable, if it has one.
pub(crate) fn expand_with<'a>(word: &str, mut value: impl FnMut(&str) -> Option<&'a str>) -> String {
    let (mut expanded, mut rest) = (String::with_capacity(word.len()), word);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match value(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded + rest
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
