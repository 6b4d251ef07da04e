//! The methods of the CRI, by path and by name.

use std::fmt;

/// Paths of all methods, as `proto/` defines them.
const PATHS: &[&str] = &include!("../../proto/generated/method_paths.rs");

/// Maximum length in characters of the path that is kept of a call to an unknown method.
const MAX_PATH_LEN: usize = 256;

/// A method of package `runtime.v1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(&'static str);

/// Name of a called method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodName {
    /// A method of the CRI.
    Known(Method),
    /// The path of any other method, cut at 256 characters.
    Unknown(Box<str>),
}

impl Method {
    /// Returns every method, runtime service first.
    pub fn all() -> impl Iterator<Item = Self> {
        PATHS.iter().copied().map(Self)
    }

    /// Returns the method at this path, such as `/runtime.v1.RuntimeService/ExecSync`.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Self::all().find(|method| method.0 == path)
    }

    /// Returns the method with this name, such as `ExecSync`, without regard to upper and lower
    /// case. No name is in both services.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|method| method.name().eq_ignore_ascii_case(name))
    }

    /// Returns the path of the method.
    #[must_use]
    pub fn path(self) -> &'static str {
        self.0
    }

    /// Returns the name of the method, without the name of its service.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.rsplit_once('/').map_or(self.0, |(_, name)| name)
    }
}

impl MethodName {
    /// Returns the name of the method at a request's path.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        match Method::from_path(path) {
            Some(method) => Self::Known(method),
            None => Self::Unknown(path.chars().take(MAX_PATH_LEN).collect()),
        }
    }

    /// Returns the name as a label of metrics. All unknown methods share one label, because a
    /// client can invent paths.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Known(method) => method.name(),
            Self::Unknown(_) => "other",
        }
    }
}

impl fmt::Display for MethodName {
    /// Writes the bare name of a method of the CRI, or the path of any other method.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(method) => f.write_str(method.name()),
            Self::Unknown(path) => f.write_str(path),
        }
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cri_method_is_found_by_path_and_by_name() {
        assert_eq!(Method::all().count(), 41);
        for method in Method::all() {
            assert_eq!(Method::from_path(method.path()), Some(method));
            assert_eq!(Method::from_name(&method.name().to_lowercase()), Some(method));
        }
        assert_eq!(Method::from_name("execsync").unwrap().path(), "/runtime.v1.RuntimeService/ExecSync");
        assert_eq!(Method::from_path("/runtime.v2.RuntimeService/ExecSync"), None);
        assert_eq!(Method::from_name("Exec Sync"), None);
    }
}
