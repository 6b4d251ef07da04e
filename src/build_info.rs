//! Version of this program, and the commit and date of its sources, from the build script.

use std::sync::LazyLock;

/// Version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// First 12 digits of the commit, with `-dirty` if sources differ from it; `None` without a Git
/// repository.
pub const COMMIT: Option<&str> = option_env!("PROBESHIM_COMMIT");

/// Date in UTC of `SOURCE_DATE_EPOCH` or of the commit; `None` without both.
pub const DATE: Option<&str> = option_env!("PROBESHIM_DATE");

/// Returns the version of this program as users see it, for example
/// `0.1.0 (988f1eb4c1f2 2026-11-26)`.
#[must_use]
pub fn full_version() -> &'static str {
    static FULL_VERSION: LazyLock<String> = LazyLock::new(|| with_source(VERSION, COMMIT, DATE));
    &FULL_VERSION
}

/// Returns a version with the commit and the date of its sources in parentheses, as far as they are
/// known.
#[must_use]
pub fn with_source(version: &str, commit: Option<&str>, date: Option<&str>) -> String {
    let known: Vec<&str> = commit.into_iter().chain(date).collect();
    if known.is_empty() { version.to_owned() } else { format!("{version} ({})", known.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_the_commit_and_the_date_that_are_known() {
        let (commit, date) = (Some("988f1eb4c1f2"), Some("2026-11-26"));
        assert_eq!(with_source("0.1.0", commit, date), "0.1.0 (988f1eb4c1f2 2026-11-26)");
        assert_eq!(with_source("0.1.0", None, date), "0.1.0 (2026-11-26)");
        assert_eq!(with_source("0.1.0", None, None), "0.1.0");
    }
}
