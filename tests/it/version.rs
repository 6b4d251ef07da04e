//! The version with its commit and date, from `build/commit.rs`, and the outputs of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::machine::program;
use fixtures::need;
use probeshim::build_info;
use serde_json::json;
use tempfile::TempDir;

use crate::program::{Answer, Place};

#[path = "../../build/commit.rs"]
mod build_script;

/// 26 November 2026 at 23:59:59 in UTC, and thus a day later in the time zone of the commits.
const COMMIT_TIME: &str = "1795737599 +0800";

/// A repository with one commit of one source and one document.
struct Repository(TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        repository.git(&["init", "--quiet"]);
        repository.write("src/main.rs", "fn main() {}");
        repository.write("README.md", "text");
        repository.commit();
        repository
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs git without the configuration of this machine, and returns its output.
    fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(self.root())
            .args(["-c", "user.name=test", "-c", "user.email=test@example.com"])
            .args(arguments)
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")])
            .envs([("GIT_AUTHOR_DATE", COMMIT_TIME), ("GIT_COMMITTER_DATE", COMMIT_TIME)])
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", "change"]);
    }

    /// Returns the first 12 digits of the commit.
    fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])[..12].to_owned()
    }

    /// Returns the watched files of the repository itself, with their contents.
    fn watched_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let watched = build_script::directives(self.root(), None);
        let watched = watched.iter().filter_map(|directive| directive.strip_prefix("rerun-if-changed="));
        let mut paths: Vec<PathBuf> = watched.map(PathBuf::from).collect();
        paths.retain(|path| path.starts_with(self.root().join(".git")));
        let mut files = Vec::new();
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                files.push((path.clone(), fs::read(path).unwrap()));
            }
        }
        files
    }
}

/// Returns the commit and the date that the build script passes to the program.
fn commit_and_date(root: &Path, epoch: Option<&str>) -> [Option<String>; 2] {
    let directives = build_script::directives(root, epoch);
    ["COMMIT", "DATE"].map(|name| {
        let start = format!("rustc-env=PROBESHIM_{name}=");
        directives.iter().find_map(|directive| directive.strip_prefix(&start)).map(str::to_owned)
    })
}

#[test]
fn a_build_has_the_commit_and_its_date_in_utc() {
    need!(program("git", "git"));
    let repository = Repository::new();
    let expected = [Some(repository.head()), Some("2026-11-26".to_owned())];
    assert_eq!(commit_and_date(repository.root(), None), expected);
}

#[test]
fn a_commit_is_marked_if_a_source_of_the_program_differs_from_it() {
    need!(program("git", "git"));
    let repository = Repository::new();
    repository.write("README.md", "other text");
    assert_eq!(commit_and_date(repository.root(), None)[0], Some(repository.head()));
    repository.write("src/new.rs", "");
    let dirty = Some(format!("{}-dirty", repository.head()));
    assert_eq!(commit_and_date(repository.root(), None)[0], dirty, "a new source");
    repository.commit();
    assert_eq!(commit_and_date(repository.root(), None)[0], Some(repository.head()));
    repository.write("src/main.rs", "fn main() { }");
    let dirty = Some(format!("{}-dirty", repository.head()));
    assert_eq!(commit_and_date(repository.root(), None)[0], dirty, "a changed source");
}

#[test]
fn source_date_epoch_takes_precedence_over_the_date_of_the_commit() {
    need!(program("git", "git"));
    let repository = Repository::new();
    for (epoch, date) in [
        ("0", "1970-01-01"),
        ("951782400", "2000-02-29"),
        ("4107542399", "2100-02-28"),
        ("4107542400", "2100-03-01"),
        ("4102444799", "2099-12-31"),
        ("-1", "1969-12-31"),
        ("today", "2026-11-26"),
    ] {
        let found = commit_and_date(repository.root(), Some(epoch));
        assert_eq!(found, [Some(repository.head()), Some(date.to_owned())], "{epoch}");
    }
}

#[test]
fn sources_without_a_repository_of_their_own_have_no_commit() {
    let archive = tempfile::tempdir().unwrap();
    assert_eq!(commit_and_date(archive.path(), None), [None, None]);
    assert_eq!(commit_and_date(archive.path(), Some("0")), [None, Some("1970-01-01".to_owned())]);
    need!(program("git", "git"));
    let outer = Repository::new();
    assert_eq!(commit_and_date(&outer.root().join("src"), None), [None, None]);
}

#[test]
fn each_commit_changes_a_watched_file_and_all_watched_files_exist() {
    need!(program("git", "git"));
    for logs in ["true", "false"] {
        let repository = Repository::new();
        repository.git(&["config", "core.logAllRefUpdates", logs]);
        if logs == "false" {
            fs::remove_dir_all(repository.root().join(".git/logs")).unwrap();
            repository.git(&["pack-refs", "--all"]);
        }
        let before = repository.watched_files();
        assert!(!before.is_empty());
        repository.git(&["status"]);
        assert_eq!(repository.watched_files(), before, "a query changes nothing");
        repository.commit();
        assert_ne!(repository.watched_files(), before, "logs: {logs}");
    }
}

#[tokio::test]
async fn the_program_shows_its_version_with_commit_and_date() {
    let place = Place::new();
    let version = build_info::full_version();
    assert!(version.starts_with(build_info::VERSION), "{version}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("--version");
    assert_eq!(Answer::to(command).await.stdout, format!("probeshim {version}\n"));

    let running = place.start(&[]).await;
    assert!(place.ask(&["version"]).await.stdout.contains(&format!("Server:   probeshim {version}, pid ")));
    let versions = place.ask(&["version", "-o", "json"]).await.json();
    assert_eq!(
        [&versions["client"], &versions["clientCommit"], &versions["server"], &versions["serverCommit"]],
        [
            &json!(build_info::VERSION),
            &json!(build_info::COMMIT),
            &json!(build_info::VERSION),
            &json!(build_info::COMMIT)
        ]
    );
    let status = place.ask(&["status", "-o", "json"]).await.json();
    assert_eq!(
        (&status["version"], &status["commit"], &status["date"]),
        (&json!(build_info::VERSION), &json!(build_info::COMMIT), &json!(build_info::DATE))
    );
    assert!(place.ask(&["status"]).await.stdout.contains(version));
    assert_eq!(running.logged("probeshim started").await["version"], version);
}
