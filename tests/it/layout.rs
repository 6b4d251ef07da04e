//! The rule that data flows one way: a module uses only modules that stand above it in `src/lib.rs`.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn a_module_uses_only_modules_above_it() {
    let modules = modules();
    let mut violations = Vec::new();
    for (place, module) in modules.iter().enumerate() {
        for file in files_of(module) {
            let text = fs::read_to_string(&file).unwrap();
            for used in modules[place + 1..].iter().filter(|later| mentions(&text, later)) {
                violations.push(format!("{} uses {used}, which stands below {module}", file.display()));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(modules.len() >= 7, "the modules of lib.rs were not found: {modules:?}");
}

/// The modules of `lib.rs`, from above.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    lib.lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

/// Whether a file names another top-level module: `crate::relay::…`, or in a list, `crate::{relay, …}`.
fn mentions(text: &str, module: &str) -> bool {
    let is_word = |at: usize, text: &str| {
        let behind = text[at..].strip_prefix(module).and_then(|rest| rest.chars().next());
        behind.is_none_or(|next| !(next.is_alphanumeric() || next == '_'))
    };
    text.match_indices("crate::").any(|(at, found)| {
        let rest = &text[at + found.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = &list[..list.find(';').unwrap_or(list.len())];
                list.split([',', '{', '}'])
                    .any(|item| item.trim().starts_with(module) && is_word(0, item.trim()))
            }
            None => rest.starts_with(module) && is_word(0, rest),
        }
    })
}

fn files_of(module: &str) -> Vec<PathBuf> {
    let file = source().join(format!("{module}.rs"));
    let mut files = Vec::new();
    if file.exists() {
        files.push(file);
    }
    collect(&source().join(module), &mut files);
    assert!(!files.is_empty(), "{module} has no files");
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}
