//! The files and functions of Kubernetes, of modules that it uses, and of Go's standard library
//! that docs/parity.md names.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fixtures::machine::repository;
use fixtures::need;
use fixtures::parity_page::{PARITY_PAGE, parity_topics};
use regex::Regex;

/// Modules that Kubernetes uses. Paths of their files begin with the name of the module.
const OTHER_MODULES: [&str; 2] = ["golang.org/x/net", "google.golang.org/grpc"];

/// Begin of the paths of files of Go's standard library.
const STANDARD_LIBRARY: &str = "net/";

/// Sources of Go modules, which are downloaded if they are not on this machine.
struct Sources {
    /// Texts of the go.mod files that pin the versions.
    pins: String,
    directories: BTreeMap<String, PathBuf>,
}

impl Sources {
    /// Returns the path of a file of Kubernetes. The first component of the path of a staging
    /// repository's file is the name of that repository.
    fn locate(&mut self, path: &str) -> Result<PathBuf, String> {
        for module in OTHER_MODULES {
            if let Some(below) = path.strip_prefix(module).and_then(|below| below.strip_prefix('/')) {
                return Ok(self.directory(module)?.join(below));
            }
        }
        if path.starts_with(STANDARD_LIBRARY) {
            return Ok(standard_library()?.join(path));
        }
        let file = self.directory("k8s.io/kubernetes")?.join(path);
        match path.split_once('/') {
            Some((repository, below)) if !file.exists() => {
                let directory = self.directory(&format!("k8s.io/{repository}"));
                Ok(directory.map_err(|error| format!("there is no {path} ({error})"))?.join(below))
            }
            _ => Ok(file),
        }
    }

    fn directory(&mut self, module: &str) -> Result<PathBuf, String> {
        if let Some(directory) = self.directories.get(module) {
            return Ok(directory.clone());
        }
        let version =
            Regex::new(&format!(r"(?m)^(?:require |.*=> |\t){module} (\S+)(?: // indirect)?$")).unwrap();
        let version = version.captures(&self.pins).ok_or_else(|| format!("no version of {module}"))?;
        let mut command = Command::new("go");
        command.args(["mod", "download", "-json", &format!("{module}@{}", &version[1])]).current_dir("/");
        let output = command.output().map_err(|error| format!("Go is not installed: {error}"))?;
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        let directory = Regex::new(r#""Dir": "(.*)""#).unwrap();
        let directory = directory.captures(&answer).ok_or_else(|| format!("{module}: {answer}"))?;
        let directory = PathBuf::from(&directory[1]);
        self.directories.insert(module.to_owned(), directory.clone());
        Ok(directory)
    }
}

/// Returns the directory of Go's standard library.
fn standard_library() -> Result<PathBuf, String> {
    let output = Command::new("go").args(["env", "GOROOT"]).current_dir("/").output();
    let output = output.map_err(|error| format!("Go is not installed: {error}"))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("src"))
}

/// Each function, method, type, constant or variable in the column `Upstream` is defined in its
/// file.
#[test]
fn every_upstream_function_that_the_parity_page_names_exists() {
    let pins = ["kubelet-1.36", "probes-1.36"]
        .map(|tool| fs::read_to_string(repository().join(format!("tests/tools/{tool}/go.mod"))).unwrap());
    let pins = pins.concat();
    let mut sources = Sources { pins, directories: BTreeMap::new() };
    need!(sources.directory("k8s.io/kubernetes"));
    let mut violations = Vec::new();
    let mut count = 0;
    for row in parity_topics().iter().flat_map(|topic| &topic.rows) {
        for (path, names) in row.upstream().unwrap() {
            let file = sources.locate(path).and_then(|file| {
                fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
            });
            let text = match file {
                Ok(text) => text,
                Err(error) => {
                    violations.push(format!("{PARITY_PAGE}:{}: {error}", row.line));
                    continue;
                }
            };
            count += names.len();
            let missing = names.into_iter().filter(|name| !is_defined(&text, name));
            violations.extend(missing.map(|name| format!("{PARITY_PAGE}:{}: no {name} in {path}", row.line)));
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(count > 200, "{count}");
}

/// Returns whether a Go file defines a name at its top level.
fn is_defined(text: &str, name: &str) -> bool {
    let function = format!(r"func (?:\([^)]*\) )?{name}[(\[]");
    let definition = format!(r"(?m)^(?:{function}|type {name}\b|(?:const |var |\t){name}\b[^(:]* = )");
    Regex::new(&definition).unwrap().is_match(text)
}

#[test]
fn definitions_of_go_are_found() {
    let text = "func plain() {\nfunc (m *manager) Method(a int) {\nfunc generic[T any](t T) {\ntype kind struct {\n\
                const one = 1\n\ttwo = 2\n\tThree featuregate.Feature = \"Three\"\n\tfive := six()\n";
    for name in ["plain", "Method", "generic", "kind", "one", "two", "Three"] {
        assert!(is_defined(text, name), "{name}");
    }
    for name in ["manager", "Meth", "five", "six", "tw", "a"] {
        assert!(!is_defined(text, name), "{name}");
    }
}
