//! The rules for identifiers in CONTRIBUTING.md: no banned words, and no type name in more than two
//! modules of `src/lib.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, TokenStream, TokenTree};

use crate::layout;

/// Modules of wire formats: their types have the names of the domain types that they encode, and
/// are imported with their module (`json::Call`).
const WIRE_MODULES: [&str; 2] = ["admin/api", "history/json"];

#[test]
fn no_identifier_contains_a_banned_word() {
    let banned = banned_words();
    assert!(banned.len() > 20, "the list in CONTRIBUTING.md was not found: {banned:?}");
    let mut violations = BTreeSet::new();
    for (file, tokens) in sources() {
        for identifier in identifiers(tokens) {
            let name = identifier.to_string();
            if let Some(word) = banned_word(&name, &banned) {
                violations.insert(format!("{}: {name} (banned word: {word})", file.display()));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn no_type_name_is_defined_in_more_than_two_modules() {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, tokens) in sources() {
        if WIRE_MODULES
            .iter()
            .any(|module| file.starts_with(module) || file == Path::new(module).with_extension("rs"))
        {
            continue;
        }
        let room = file.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        for name in defined_types(tokens) {
            rooms.entry(name).or_default().insert(room.clone());
        }
    }
    assert!(rooms.len() > 500, "types were not found");
    rooms.retain(|_, rooms| rooms.len() > 2);
    assert!(rooms.is_empty(), "{rooms:#?}");
}

#[test]
fn banned_words_are_found_in_every_spelling() {
    let banned = ["told", "let_go"].map(str::to_owned);
    for name in ["told", "is_told", "Told", "ToldAll", "IS_TOLD", "let_go", "LetGo", "tolds", "has_let_go_of"]
    {
        assert!(banned_word(name, &banned).is_some(), "{name}");
    }
    for name in ["untold", "toldest", "let_it_go", "Letgo", "HTTP2Frame"] {
        assert_eq!(banned_word(name, &banned), None, "{name}");
    }
}

#[test]
fn types_are_found_where_they_are_defined() {
    let text = "
        // struct Comment;
        /// struct Documentation;
        pub(crate) struct One<T>(T);
        enum Two { Variant }
        pub trait Three { type Associated; }
        type Four = One<u8>;
        impl Iterator for Two { type Item = u8; }
        mod tests { struct Five; }
        const TEXT: &str = \"struct Literal;\";
    ";
    let found: Vec<String> = defined_types(text.parse().unwrap()).into_iter().collect();
    assert_eq!(found, ["Five", "Four", "One", "Three", "Two"]);
}

/// Returns the first banned word that is a component of an identifier, alone or with a final `s`.
fn banned_word<'a>(identifier: &str, banned: &'a [String]) -> Option<&'a str> {
    let components = components(identifier);
    banned.iter().map(String::as_str).find(|word| {
        let word: Vec<&str> = word.split('_').collect();
        components.windows(word.len()).any(|window| {
            let (last, rest) = window.split_last().unwrap();
            let (last_word, rest_words) = word.split_last().unwrap();
            rest == rest_words && (last == last_word || last.strip_suffix('s') == Some(last_word))
        })
    })
}

/// Splits an identifier in snake case, camel case or upper case into words in lower case.
fn components(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for character in identifier.trim_start_matches("r#").chars() {
        if character == '_' || (character.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if character != '_' {
            words.last_mut().unwrap().extend(character.to_lowercase());
        }
        after_lower = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the first word of each line of the block under "Banned words".
fn banned_words() -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("CONTRIBUTING.md")).unwrap();
    let (_, section) = text.split_once("### Banned words").unwrap();
    let block = section.split("```").nth(1).unwrap().trim_start_matches("text");
    block.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Returns all identifiers, keywords included. Comments and literals contain none.
fn identifiers(tokens: TokenStream) -> Vec<Ident> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(identifier) => found.push(identifier),
            TokenTree::Group(group) => found.extend(identifiers(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// Returns the names of structs, enums and traits, and of type aliases that are not associated
/// types.
fn defined_types(tokens: TokenStream) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut associated = false;
    let mut keyword = None;
    for token in tokens {
        match token {
            TokenTree::Ident(identifier) => {
                let name = identifier.to_string();
                match (keyword.take(), name.as_str()) {
                    (Some("struct" | "enum" | "trait" | "type"), _) => {
                        found.insert(name);
                    }
                    (_, "struct") => keyword = Some("struct"),
                    (_, "enum") => keyword = Some("enum"),
                    (_, "type") => keyword = Some("type"),
                    (_, "trait") => (keyword, associated) = (Some("trait"), true),
                    (_, "impl") => associated = true,
                    (_, "mod" | "fn") => associated = false,
                    _ => {}
                }
            }
            TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace => {
                if !associated {
                    found.extend(defined_types(group.stream()));
                }
                associated = false;
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// Returns the sources with their paths below `src`, or with those of the exec helper.
fn sources() -> Vec<(PathBuf, TokenStream)> {
    let source = layout::source();
    let root = source.parent().unwrap();
    let mut files = Vec::new();
    layout::collect(&source, &mut files);
    layout::collect(&layout::helper_source(), &mut files);
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files
        .into_iter()
        .map(|file| {
            let tokens = fs::read_to_string(&file).unwrap().parse().unwrap();
            let path = file.strip_prefix(&source).or_else(|_| file.strip_prefix(root)).unwrap();
            (path.to_owned(), tokens)
        })
        .collect()
}
