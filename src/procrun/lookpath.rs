//! Search for the program of a command. The errors are those of Go's os/exec, which runc returns.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use super::error::CriError;
use crate::gofmt::system_error;

/// Mode bits of which at least one is set for a program.
const EXECUTABLE: u32 = 0o111;

/// Returns the program that `name` refers to, with the working directory `dir` and the value of
/// `PATH`.
pub(super) fn look_path(name: &str, dir: &Path, path: &str) -> Result<PathBuf, CriError> {
    let refused = |reason: &str| CriError::unknown(format!("exec: {name:?}: {reason}"));
    if name.contains('/') {
        let program = dir.join(name);
        return match fs::metadata(&program) {
            Err(error) => Err(refused(&format!("stat {name}: {}", system_error(&error)))),
            Ok(file) if !is_program(&file) => Err(refused("permission denied")),
            Ok(_) => Ok(program),
        };
    }
    let dirs = path.split(':').map(|part| dir.join(part));
    let found = dirs
        .map(|part| part.join(name))
        .find(|program| !name.is_empty() && fs::metadata(program).is_ok_and(|file| is_program(&file)));
    found.ok_or_else(|| refused("executable file not found in $PATH"))
}

/// Returns whether [`look_path`] finds a program.
pub(crate) fn has_program(name: &str, dir: &Path, path: &str) -> bool {
    look_path(name, dir, path).is_ok()
}

/// Returns the path of a container's working directory below the container's directory `root`,
/// which replaces `/`. No path leads out of `root`.
pub(super) fn working_dir(root: &Path, dir: &str) -> PathBuf {
    let mut inside = root.to_owned();
    let mut depth = 0_usize;
    for part in Path::new(dir).components() {
        match part {
            Component::Normal(part) => {
                inside.push(part);
                depth += 1;
            }
            Component::ParentDir if depth > 0 => {
                inside.pop();
                depth -= 1;
            }
            _ => {}
        }
    }
    inside
}

fn is_program(file: &fs::Metadata) -> bool {
    file.is_file() && file.permissions().mode() & EXECUTABLE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_path_or_on_the_path() {
        let root = Path::new("/");
        assert_eq!(look_path("sh", root, "/nowhere:/bin").unwrap(), Path::new("/bin/sh"));
        assert_eq!(look_path("/bin/sh", root, "").unwrap(), Path::new("/bin/sh"));
        assert_eq!(look_path("bin/sh", root, "").unwrap(), Path::new("/bin/sh"));
        for (name, expected) in [
            ("", r#"exec: "": executable file not found in $PATH"#),
            ("no-such", r#"exec: "no-such": executable file not found in $PATH"#),
            ("/no/such", r#"exec: "/no/such": stat /no/such: no such file or directory"#),
            ("/etc/passwd", r#"exec: "/etc/passwd": permission denied"#),
            ("/etc", r#"exec: "/etc": permission denied"#),
        ] {
            assert_eq!(look_path(name, root, "/bin").unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_working_directory_is_always_inside_the_directory_of_its_container() {
        for (dir, inside) in
            [("/", "/c"), ("", "/c"), ("/a/b", "/c/a/b"), ("/../../etc", "/c/etc"), ("/a/../..", "/c")]
        {
            assert_eq!(working_dir(Path::new("/c"), dir), Path::new(inside));
        }
    }
}
