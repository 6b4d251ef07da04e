//! The rule that data flows in one direction: a module uses only modules above it in `src/lib.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

#[test]
fn a_module_uses_only_modules_above_it() {
    let modules = modules();
    let mut violations = Vec::new();
    for (place, module) in modules.iter().enumerate() {
        for file in files_of(module) {
            let text = fs::read_to_string(&file).unwrap();
            let below = modules[place + 1..].iter().map(String::as_str);
            let is_used =
                |name: &&str| uses(&text, name, !is_root(&file, module) && has_submodule(module, name));
            violations.extend(
                below
                    .chain(UNCLEAR)
                    .filter(is_used)
                    .map(|name| format!("{} uses {name}, but {module} stands above it", file.display())),
            );
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn every_file_and_directory_of_the_sources_is_a_module_of_the_library() {
    let mut found: Vec<String> = fs::read_dir(source())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "lib" && name != "main")
        .collect();
    found.sort();
    found.dedup();
    let mut listed = modules();
    listed.sort();
    assert_eq!(found, listed);
}

/// Siblings in a directory of sources must not import each other in a cycle. Imports of a parent
/// module and of tests are ignored.
#[test]
fn sibling_modules_have_no_import_cycle() {
    let mut directories = vec![source(), helper_source()];
    let mut cycles = Vec::new();
    while let Some(directory) = directories.pop() {
        let siblings = submodules(&directory);
        let imports: BTreeMap<&str, Vec<&str>> = siblings
            .iter()
            .map(|name| (name.as_str(), imports_of_siblings(&directory, name, &siblings)))
            .collect();
        let reaches_itself = |name: &&String| {
            let (mut seen, mut open) = (BTreeSet::new(), imports[name.as_str()].clone());
            while let Some(next) = open.pop() {
                if seen.insert(next) {
                    open.extend(&imports[next]);
                }
            }
            seen.contains(name.as_str())
        };
        let cycle: Vec<&String> = siblings.iter().filter(reaches_itself).collect();
        if !cycle.is_empty() {
            cycles.push(format!("{}: {cycle:?}", directory.display()));
        }
        directories.extend(siblings.iter().map(|name| directory.join(name)).filter(|path| path.is_dir()));
    }
    assert!(cycles.is_empty(), "{cycles:#?}");
}

#[test]
fn no_module_holds_more_than_its_share_of_the_code() {
    let lines = |module: &String| -> usize {
        let files = files_of(module).into_iter().filter(|file| !is_test(file));
        files.map(|file| code_of(&file).lines().count()).sum()
    };
    let modules = modules();
    let all: usize = modules.iter().map(lines).sum();
    for module in &modules {
        // The built-in kubelet contains pod workers, client pods and the files of pods, so its
        // limit is higher.
        let limit = if module == "kubelet" { 20 } else { 15 };
        let share = 100 * lines(module) / all;
        assert!(share < limit, "{module} holds {share} % of the code, more than {limit} %");
    }
}

#[test]
fn imports_are_found_in_every_syntax() {
    for text in [
        "use crate::app;",
        "use crate::app::run;",
        "let x = crate::app::run();",
        "use crate::{relay, app};",
        "use crate::{\n    relay::{self, Relay},\n    app::run,\n};",
        "use super::app;",
        "use super::super::app::run;",
    ] {
        assert!(uses(text, "app", false), "{text}");
    }
    for text in ["use crate::application;", "// as crate::app does", "//! [`crate::app`]", "use other::app;"]
    {
        assert!(!uses(text, "app", false), "{text}");
    }
    assert!(!uses("use super::app;", "app", true), "super::app is a submodule here");
    assert!(uses("use crate::app;", "app", true));
    assert!(uses("use crate::*;", UNCLEAR[0], false) && uses("use crate as here;", UNCLEAR[1], false));
}

/// Returns the names of the modules in a directory of sources, without tests.
fn submodules(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let names = entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    names.filter(|name| !["mod", "lib", "main", "tests"].contains(&name.as_str())).collect()
}

/// Returns the siblings of a module that its files import.
fn imports_of_siblings<'a>(directory: &Path, module: &str, siblings: &'a BTreeSet<String>) -> Vec<&'a str> {
    let mut files = Vec::new();
    collect(&directory.join(module), &mut files);
    files.push(directory.join(module).with_extension("rs"));
    let path: Vec<&str> = below_source(directory).iter().map(|part| part.to_str().unwrap()).collect();
    let parent = path.iter().fold(String::new(), |parent, part| format!("{parent}::{part}"));
    let mut imported = BTreeSet::new();
    for file in files.iter().filter(|file| file.exists() && !is_test(file)) {
        let code = code_of(file);
        let below = file.strip_prefix(directory).unwrap().components().count();
        let supers = if file.ends_with("mod.rs") { below - 1 } else { below };
        let found = |name: &&String| {
            let pattern = format!(
                r"(?:\bcrate{parent}|(?:^|[^:\w])super(?:::super){{{}}})::(?:\{{[^;]*\b)?{name}\b",
                supers - 1
            );
            *name != module && code.contains(name.as_str()) && Regex::new(&pattern).unwrap().is_match(&code)
        };
        imported.extend(siblings.iter().filter(found).map(String::as_str));
    }
    imported.into_iter().collect()
}

/// Returns whether a file holds only tests.
fn is_test(file: &Path) -> bool {
    below_source(file).iter().any(|part| part == "tests" || part.to_str().unwrap().ends_with("tests.rs"))
}

/// Returns the code of a file, without comments and without the tests at its end.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    code.map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// Imports that hide the names of the modules used.
const UNCLEAR: [&str; 2] = ["*", "as"];

/// Returns whether a file is the module itself, in which `super` is the crate.
fn is_root(file: &Path, module: &str) -> bool {
    file == source().join(module).join("mod.rs") || file == source().join(module).with_extension("rs")
}

/// Returns whether a module has a submodule of this name, which `super::name` refers to in its
/// files.
fn has_submodule(module: &str, name: &str) -> bool {
    let path = source().join(module).join(name);
    path.is_dir() || path.with_extension("rs").is_file()
}

/// Returns whether a file names a top-level module outside comments. If `is_submodule`,
/// `super::module` is not the top-level module.
fn uses(text: &str, module: &str, is_submodule: bool) -> bool {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let pattern = match module {
        "*" => r"\bcrate::\*".to_owned(),
        "as" => r"\bcrate\s+as\b".to_owned(),
        name if is_submodule => format!(r"\bcrate::(?:\{{[^;]*\b)?{name}\b"),
        name => format!(r"\b(?:crate|super)::(?:\{{[^;]*\b)?{name}\b"),
    };
    Regex::new(&pattern).unwrap().is_match(&code)
}

/// Returns the modules of `lib.rs` from top to bottom.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    lib.lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
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

/// Adds all Rust files below a directory, at any depth, to `files`. Other files, such as snapshots,
/// are ignored.
pub(super) fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the directory of the sources.
pub(super) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns the directory of the exec helper's sources.
pub(super) fn helper_source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("exec-helper/src")
}

/// Returns the path of a file or directory below the directory of the sources that contains it.
fn below_source(path: &Path) -> &Path {
    let below = [source(), helper_source()].iter().find_map(|source| path.strip_prefix(source).ok());
    below.unwrap_or_else(|| panic!("{} is no source", path.display()))
}
