//! The methods of the interface, by path and by name.

use std::fmt;

/// The paths of all methods, as `proto/` defines them.
const PATHS: &[&str] = &include!("../../proto/generated/method_paths.rs");

/// The longest path that is kept of a call to a method that the interface does not know, in characters.
const MAX_PATH_LEN: usize = 256;

/// A method of package `runtime.v1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(&'static str);

/// The name of what was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodName {
    /// A method of the interface.
    Known(Method),
    /// The path of any other, cut where it is very long.
    Unknown(Box<str>),
}

impl Method {
    /// Every method, runtime service first.
    pub fn all() -> impl Iterator<Item = Self> {
        PATHS.iter().copied().map(Self)
    }

    /// The method at this path, such as `/runtime.v1.RuntimeService/ExecSync`.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Self::all().find(|method| method.0 == path)
    }

    /// The method of this name, such as `ExecSync`; upper and lower case are one. No name is in both services.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|method| method.name().eq_ignore_ascii_case(name))
    }

    /// The path of its calls.
    #[must_use]
    pub fn path(self) -> &'static str {
        self.0
    }

    /// Its name, without the service's.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.rsplit_once('/').map_or(self.0, |(_, name)| name)
    }
}

impl MethodName {
    /// The name for a request's path.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        match Method::from_path(path) {
            Some(method) => Self::Known(method),
            None => Self::Unknown(path.chars().take(MAX_PATH_LEN).collect()),
        }
    }

    /// The name as a label of metrics. There are so many and no more: a client can invent paths.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Known(method) => method.name(),
            Self::Unknown(_) => "other",
        }
    }
}

impl fmt::Display for MethodName {
    /// The bare name of a method of the interface, the path of any other.
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
    fn every_method_is_found_by_path_and_by_name() {
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
