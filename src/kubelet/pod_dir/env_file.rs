//! Files of emptyDir volumes with environment variables.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use rustix::fs::OFlags;

use super::beneath::{Links, open, trusted};
use super::{PodDir, below};
use crate::manifest::pod::FileKeyRef;
use crate::regular_file::MAX_SMALL_FILE_BYTES;

/// Maximum length of a line in bytes (Go: `bufio.MaxScanTokenSize`).
const MAX_LINE_BYTES: usize = 64 << 10;

/// Reason why a file has no value for a variable. The messages are the kubelet's
/// (`kubelet_pods.go`: `makeEnvironmentVariables`).
#[derive(Debug, thiserror::Error)]
pub(in crate::kubelet) enum EnvFileError {
    /// The file was not read.
    #[error("couldn't parse env file")]
    Read(#[source] io::Error),
    /// The file has another format.
    #[error("couldn't parse env file")]
    Format(#[source] FormatError),
    /// The file does not have the key, or the value is empty.
    #[error("environment variable key {key:?} not found in file {path:?}")]
    NoKey { key: String, path: String },
}

/// Violation of the format of a file with variables.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid environment variable format at line {line}: {reason}")]
pub(in crate::kubelet) struct FormatError {
    line: usize,
    reason: &'static str,
}

impl PodDir {
    /// Returns the value of a variable from a file. `None` if the file does not have it and it is
    /// optional. The kubelet reads files of any size; this function reads a mebibyte.
    pub(in crate::kubelet) fn env_value(&self, file: &FileKeyRef) -> Result<Option<String>, EnvFileError> {
        let content = self.read_env_file(file).map_err(EnvFileError::Read)?;
        let value = value(&content, &file.key).map_err(EnvFileError::Format)?;
        match value.filter(|value| !value.is_empty()) {
            None if !file.is_optional => {
                let path = self.root().join(below(None)).join(&file.volume).join(&file.path);
                Err(EnvFileError::NoKey { key: file.key.clone(), path: path.display().to_string() })
            }
            value => Ok(value),
        }
    }

    /// Reads a file, whose path the containers of the pod control. FIFOs and devices do not block
    /// the read.
    fn read_env_file(&self, file: &FileKeyRef) -> io::Result<String> {
        let volume = below(None).join(&file.volume);
        let root = trusted(&self.root())?;
        let volume = open(root, &volume, OFlags::PATH | OFlags::DIRECTORY, Links::Refuse)?;
        let path = Path::new(&file.path);
        let path = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = File::from(open(volume, path, flags, Links::Follow)?);
        if !opened.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let (mut content, mut reader) = (Vec::new(), BufReader::new(opened.take(MAX_SMALL_FILE_BYTES)));
        while !reader.fill_buf()?.is_empty() {
            let begin = content.len();
            reader.read_until(b'\n', &mut content)?;
            if content.len() - begin > MAX_LINE_BYTES {
                return Err(io::Error::other("token too long"));
            }
        }
        Ok(String::from_utf8_lossy(&content).into_owned())
    }
}

/// Returns the value of a key. The lines are `KEY='value'`, and a value may span lines (kubelet:
/// `util/env/env_util.go`: `ParseEnv`). Lines after the key are not checked.
fn value(content: &str, key: &str) -> Result<Option<String>, FormatError> {
    let mut lines = content.lines().enumerate().map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        let failed = |reason| FormatError { line: number, reason };
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, text) = line.split_once('=').ok_or_else(|| failed("missing '='"))?;
        if name.is_empty() {
            return Err(failed("empty variable name"));
        }
        if name.ends_with([' ', '\t']) {
            return Err(failed("whitespace before '=' is not allowed"));
        }
        if text.starts_with([' ', '\t']) {
            // As in a shell, the value is empty.
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let mut rest =
            text.strip_prefix('\'').ok_or_else(|| failed("value must be enclosed in single quotes"))?;
        let mut value = String::new();
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                value.push_str(end);
                break after.trim_start_matches([' ', '\t']);
            }
            value.push_str(rest);
            value.push('\n');
            rest = lines.next().ok_or_else(|| failed("unclosed single quote"))?.1;
        };
        if !after.is_empty() && !after.starts_with('#') {
            return Err(failed("unexpected content after closing quote"));
        }
        if name == key {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::manifest::reader::tests::pod;

    /// The containers of the pod can create links, FIFOs and large files in the volume.
    #[test]
    fn files_of_variables_are_regular_files_in_their_volume() {
        let dir = tempfile::tempdir().unwrap();
        let pods = dir.path().canonicalize().unwrap();
        let pod_dir = PodDir::for_pod(&pod("{containers: [{name: a, image: i}]}"), &pods);
        let volume = pod_dir.root().join(below(None)).join("v");
        fs::create_dir_all(volume.join("sub")).unwrap();
        fs::write(volume.join("sub/env"), "A='x'\nB=''\n").unwrap();
        fs::write(pods.join("outside"), "A='secret'\n").unwrap();
        fs::write(volume.join("long"), format!("#{}\nA='x'\n", "a".repeat(70_000))).unwrap();
        symlink("sub/env", volume.join("inside")).unwrap();
        symlink(pods.join("outside"), volume.join("escape")).unwrap();
        mkfifoat(CWD, volume.join("fifo"), Mode::from_raw_mode(0o644)).unwrap();
        let read = |path: &str, key: &str, is_optional| {
            let [volume, path, key] = ["v", path, key].map(str::to_owned);
            pod_dir.env_value(&FileKeyRef { volume, path, key, is_optional }).map_err(|it| it.to_string())
        };
        for path in ["sub/env", "/sub/env", "inside"] {
            assert_eq!(read(path, "A", false), Ok(Some("x".to_owned())), "{path}");
        }
        for path in ["escape", "fifo", "sub", "none", "long"] {
            assert_eq!(read(path, "A", true), Err("couldn't parse env file".to_owned()), "{path}");
        }
        for key in ["B", "C"] {
            assert_eq!(read("inside", key, true), Ok(None));
            let path = volume.join("inside");
            let expected = format!(
                "environment variable key {key:?} not found in file {:?}",
                path.display().to_string()
            );
            assert_eq!(read("inside", key, false), Err(expected));
        }
    }

    #[test]
    fn values_of_files_are_in_single_quotes_and_may_span_lines() {
        let content = "# comment\n\n  A='one' # rest\nB='two\nlines'\nC= 'empty'\nD='x'\n";
        for (key, expected) in
            [("A", Some("one")), ("B", Some("two\nlines")), ("C", None), ("D", Some("x")), ("E", None)]
        {
            assert_eq!(value(content, key), Ok(expected.map(str::to_owned)), "{key}");
        }
    }

    #[test]
    fn violations_of_the_format_are_reported_with_their_line() {
        for (content, line, reason) in [
            ("A='x'\nB", 2, "missing '='"),
            ("='x'", 1, "empty variable name"),
            ("B ='x'", 1, "whitespace before '=' is not allowed"),
            ("B=x", 1, "value must be enclosed in single quotes"),
            ("\nB='x\ny", 2, "unclosed single quote"),
            ("B='x'y", 1, "unexpected content after closing quote"),
        ] {
            assert_eq!(value(content, "B"), Err(FormatError { line, reason }), "{content:?}");
        }
        assert_eq!(value("A='x'\nB", "A"), Ok(Some("x".to_owned())), "later lines are not checked");
    }
}
