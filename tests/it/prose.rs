//! The rules for prose in CONTRIBUTING.md: first words of comments, banned phrases, width of lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use regex::{Regex, RegexBuilder};

use crate::layout;

/// Openings that make a clause the subject, or that depend on another comment.
const BANNED_OPENINGS: &str = r"^(What|Who|Whose|Whom|Those|The same)\b";

/// Maximum width of a line of prose, in characters.
const WIDTH: usize = 100;

#[test]
fn no_comment_begins_with_a_banned_word() {
    let opening = Regex::new(BANNED_OPENINGS).unwrap();
    let mut violations = Vec::new();
    for (file, text) in rust_sources() {
        for (number, comment) in comments(&text) {
            if opening.is_match(&comment) {
                violations.push(format!("{}:{number}: {comment}", file.display()));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn no_comment_message_or_document_contains_a_banned_phrase() {
    let banned = banned_phrases();
    let mut violations = BTreeSet::new();
    let mut check = |place: String, text: &str| {
        if let Some(phrase) = banned.find(text) {
            violations.insert(format!("{place}: {:?} in {text:?}", phrase.as_str()));
        }
    };
    for (file, text) in rust_sources() {
        for (number, comment) in comments(&text) {
            check(format!("{}:{number}", file.display()), &comment);
        }
        // Literals of tests are mostly data.
        let is_test = file.components().any(|part| part.as_os_str().to_str().unwrap().starts_with("tests"));
        if (file.starts_with("src") || file.starts_with("exec-helper")) && !is_test {
            let tokens: TokenStream = text.parse().unwrap();
            for literal in literals(tokens) {
                check(file.display().to_string(), &literal);
            }
        }
    }
    for (file, text) in documents() {
        for (number, line) in (1..).zip(text.lines()) {
            check(format!("{}:{number}", file.display()), line);
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn lines_of_comments_and_documents_are_at_most_100_characters_wide() {
    let mut violations = Vec::new();
    let mut check = |file: &Path, number: usize, line: &str| {
        if line.chars().count() > WIDTH && line.split_whitespace().count() > 2 {
            violations.push(format!("{}:{number}", file.display()));
        }
    };
    for (file, text) in rust_sources() {
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim_start().starts_with("//") {
                check(&file, number, line);
            }
        }
    }
    for (file, text) in documents() {
        let mut in_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            in_code ^= line.trim_start().starts_with("```");
            if !in_code && !line.starts_with('|') && !line.starts_with("    ") {
                check(&file, number, line);
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn the_readme_has_at_most_150_lines() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 150, "README.md has {lines} lines; move what not every reader needs to docs/");
}

#[test]
fn links_between_documents_lead_to_files_and_headings() {
    let link = Regex::new(r"\]\(([^)#:\s]*)(#[^)\s]+)?\)").unwrap();
    let mut violations = Vec::new();
    for (file, text) in documents() {
        let directory = file.parent().unwrap();
        for found in link.captures_iter(&text) {
            let target = match &found[1] {
                "" => file.clone(),
                path => root().join(directory).join(path).canonicalize().unwrap_or_default(),
            };
            let anchor = found.get(2).map(|anchor| anchor.as_str()[1..].to_owned());
            let leads = match anchor {
                None => target.exists(),
                Some(anchor) => headings(&root().join(target)).contains(&anchor),
            };
            if !leads {
                violations.push(format!("{}: {}", file.display(), &found[0]));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn comments_and_literals_are_found() {
    let text = "
        //! Module.
        //!
        //! Second paragraph,
        //! second line.
        /// Item.
        fn item() {
            // Code.
            let text = \"literal \\\"quoted\\\"\";
        }
    ";
    let found: Vec<String> = comments(text).into_iter().map(|(_, comment)| comment).collect();
    assert_eq!(found, ["Module.", "Second paragraph, second line.", "Item.", "Code."]);
    assert_eq!(literals(text.parse().unwrap()).last().unwrap(), "\"literal \\\"quoted\\\"\"");
}

/// Returns the paragraphs of all line comments, each with the number of its first line.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut open = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let marker = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker));
        let content = marker.map(|marker| line[marker.len()..].trim());
        match (marker, content) {
            (Some(_), Some(content)) if !content.is_empty() => {
                if open == marker {
                    let (_, comment) = comments.last_mut().unwrap();
                    comment.push(' ');
                    comment.push_str(content);
                } else {
                    comments.push((number, content.to_owned()));
                }
                open = marker;
            }
            _ => open = None,
        }
    }
    comments
}

/// Returns the texts of all literals as they are written.
fn literals(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Literal(literal) => found.push(literal.to_string()),
            TokenTree::Group(group) => found.extend(literals(group.stream())),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    found
}

/// Returns a pattern that matches each phrase of the block under "Banned phrases".
fn banned_phrases() -> Regex {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, section) = text.split_once("### Banned phrases").unwrap();
    let block = section.split("```").nth(1).unwrap().trim_start_matches("text");
    let phrases: Vec<_> = block
        .lines()
        .filter_map(|line| line.split("  ").next().map(str::trim))
        .filter(|phrase| !phrase.is_empty())
        .map(regex::escape)
        .collect();
    assert!(phrases.len() > 20, "the list in CONTRIBUTING.md was not found: {phrases:?}");
    RegexBuilder::new(&format!(r"\b({})\b", phrases.join("|"))).case_insensitive(true).build().unwrap()
}

/// Returns the anchors of the headings of a document.
fn headings(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut in_code = false;
    let is_heading = |line: &&str| {
        in_code ^= line.starts_with("```");
        !in_code && line.starts_with('#')
    };
    text.lines().filter(is_heading).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Returns the anchor of a heading.
pub(crate) fn anchor(title: &str) -> String {
    let title = title.trim().to_lowercase();
    let kept = title.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.collect::<String>().replace(' ', "-")
}

/// Returns the Rust files of this repository except for generated code, with paths below its root.
fn rust_sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for directory in ["build", "exec-helper/src", "src", "tests", "benches"] {
        layout::collect(&root().join(directory), &mut files);
    }
    read(files, "rs")
}

/// Returns the documents of this repository, without the blocks that list banned words and
/// phrases.
fn documents() -> Vec<(PathBuf, String)> {
    let mut files: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md"]
        .map(|file| root().join(file))
        .into();
    collect_documents(&root().join("docs"), &mut files);
    assert!(files.len() > 15, "{files:?}");
    let block = Regex::new("(?s)```text\nanew .*?```").unwrap();
    let documents = read(files, "md").into_iter();
    let without_lists = |text: &str| {
        let lines = |found: &regex::Captures<'_>| "\n".repeat(found[0].lines().count() - 1);
        block.replace_all(text, lines).into_owned()
    };
    documents.map(|(file, text)| (file, without_lists(&text))).collect()
}

fn collect_documents(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_documents(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn read(files: Vec<PathBuf>, extension: &str) -> Vec<(PathBuf, String)> {
    let files = files.into_iter().filter(|file| file.extension().is_some_and(|it| it == extension));
    files
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            (file.strip_prefix(root()).unwrap().to_owned(), text)
        })
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
