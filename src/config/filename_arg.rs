//! The flag `-f` of commands that take paths of manifests.

use std::path::PathBuf;

use clap::Args;

/// The flag of kubectl for paths of manifests.
#[derive(Clone, Debug, Default, Args)]
pub struct FilenameArg {
    /// File or directory of manifests, as in kubectl; the same as PATH. May be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
}

impl FilenameArg {
    /// Returns the paths of the arguments and those of the flag.
    #[must_use]
    pub fn with(self, mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
        paths.extend(self.filenames);
        paths
    }
}
