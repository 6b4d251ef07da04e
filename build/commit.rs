//! The commit and the date of the sources, for `src/build_info.rs`, as far as they are known.

use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;

/// Files and directories from which the program is built. A change after the commit marks it.
const SOURCES: [&str; 6] = ["Cargo.lock", "Cargo.toml", "build", "exec-helper", "proto/generated", "src"];

/// Number of hexadecimal digits of a commit. Git's own choice depends on the repository.
const COMMIT_DIGITS: usize = 12;

/// Returns cargo's directives for the sources in a directory: two variables, and what changes them.
/// `epoch` is `SOURCE_DATE_EPOCH`, which takes precedence over the date of the commit.
pub(crate) fn directives(root: &Path, epoch: Option<&str>) -> Vec<String> {
    let git = Git::open(root);
    let commit = git.as_ref().and_then(Git::commit);
    let epoch = epoch.and_then(|seconds| seconds.parse().ok());
    let time = epoch.or_else(|| git.as_ref()?.commit_time());
    let time = time.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let date = time.map(|time| time.strftime("%F").to_string());
    let watched =
        SOURCES.map(|source| root.join(source)).into_iter().chain(git.iter().flat_map(Git::watched));
    watched
        .map(|path| format!("rerun-if-changed={}", path.display()))
        .chain(["rerun-if-env-changed=SOURCE_DATE_EPOCH".to_owned()])
        .chain(commit.map(|commit| format!("rustc-env=PROBESHIM_COMMIT={commit}")))
        .chain(date.map(|date| format!("rustc-env=PROBESHIM_DATE={date}")))
        .collect()
}

/// Git repository of the sources.
struct Git<'a> {
    root: &'a Path,
}

impl<'a> Git<'a> {
    /// Returns the repository whose root is the directory. A directory within another repository,
    /// such as an unpacked archive, has no commit of its own.
    fn open(root: &'a Path) -> Option<Self> {
        let git = Self { root };
        git.ask(&["rev-parse", "--show-prefix"]).filter(String::is_empty).map(|_| git)
    }

    /// Returns the first digits of the commit, with a mark if sources differ from it.
    fn commit(&self) -> Option<String> {
        let mut commit = self.ask(&["rev-parse", "HEAD"])?;
        commit.truncate(COMMIT_DIGITS);
        let mut status = vec!["status", "--porcelain", "--"];
        status.extend(SOURCES);
        if !self.ask(&status)?.is_empty() {
            commit.push_str("-dirty");
        }
        Some(commit)
    }

    /// Returns the time of the commit, in seconds since 1970.
    fn commit_time(&self) -> Option<i64> {
        self.ask(&["log", "-1", "--format=%ct"])?.parse().ok()
    }

    /// Returns files that change with each new commit of HEAD. Cargo compares their modification
    /// times. It would take a missing file for a change in each build.
    fn watched(&self) -> Vec<PathBuf> {
        let path = |name: &str| {
            let path = self.ask(&["rev-parse", "--git-path", name])?;
            Some(self.root.join(path)).filter(|path| path.exists())
        };
        // The log of HEAD has a line per commit. A repository may keep no logs.
        let moved = path("logs/HEAD").or_else(|| path("reftable")).or_else(|| path("refs"));
        path("HEAD").into_iter().chain(moved).collect()
    }

    /// Runs git, and returns its output. A failure is no error: the sources may be an archive.
    fn ask(&self, arguments: &[&str]) -> Option<String> {
        let mut git = Command::new("git");
        git.arg("--no-optional-locks").arg("-C").arg(self.root).args(arguments);
        // A hook of git has the variables of the repository in which it runs.
        for variable in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"] {
            git.env_remove(variable);
        }
        let output = git.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    }
}
