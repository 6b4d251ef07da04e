//! Standard input as a file of manifests.

use std::path::Path;

/// Path that names standard input, as in kubectl.
const STDIN: &str = "-";

/// Name of standard input in errors.
const STDIN_NAME: &str = "standard input";

/// Returns whether the path, as a user wrote it, names standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

/// Returns the path as it is shown in errors.
pub(crate) fn shown_path(path: &Path) -> std::path::Display<'_> {
    if is_stdin(path) { Path::new(STDIN_NAME) } else { path }.display()
}
