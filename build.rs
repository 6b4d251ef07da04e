//! Passes the commit and the date of the sources to `src/build_info.rs`, as far as they are known.

#![allow(clippy::print_stdout, reason = "cargo reads directives from stdout")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files and directories from which the program is built. A change after the commit marks it.
const SOURCES: [&str; 5] = ["build.rs", "Cargo.lock", "Cargo.toml", "proto/generated", "src"];

/// Number of hexadecimal digits of a commit. Git's own choice depends on the repository.
const COMMIT_DIGITS: usize = 12;

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let epoch = env::var("SOURCE_DATE_EPOCH").ok();
    for directive in directives(Path::new(&root), epoch.as_deref()) {
        println!("cargo::{directive}");
    }
}

/// Returns cargo's directives for the sources in a directory: two variables, and what changes them.
/// `epoch` is `SOURCE_DATE_EPOCH`, which takes precedence over the date of the commit.
pub(crate) fn directives(root: &Path, epoch: Option<&str>) -> Vec<String> {
    let git = Git::open(root);
    let commit = git.as_ref().and_then(Git::commit);
    let epoch = epoch.and_then(|seconds| seconds.parse().ok());
    let date = epoch.or_else(|| git.as_ref()?.commit_time()).map(date);
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

/// Returns the date in UTC of a time in seconds since 1970, as `2026-11-26`.
fn date(seconds: i64) -> String {
    // Days since 1 March 0000. A year that begins in March has its leap day at its end, so that
    // the months before it have fixed lengths: 153 days in five months.
    let days = seconds.div_euclid(24 * 60 * 60) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
