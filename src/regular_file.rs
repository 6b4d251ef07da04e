//! Reads files whose paths come from users or other programs: regular files, and FIFOs that a user
//! names, up to a size limit. Writes directory entries to disk.

use std::ffi::OsStr;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_setfl};

use crate::terminal::format;

/// Size limit in bytes of manifests and configuration files. The YAML parser refuses longer texts.
pub const MAX_YAML_BYTES: u64 = 64 << 20;

/// Size limit in bytes of certificates, keys, tokens and the like, and of `/etc/hosts` and
/// `/etc/resolv.conf`.
pub const MAX_SMALL_FILE_BYTES: u64 = 1 << 20;

/// Reason for which a file is not read.
#[derive(Debug, thiserror::Error)]
enum ReadRefusal {
    /// The path leads to a file type that could block a reader or has no end.
    #[error("it is {0}; only regular files are read")]
    NotRegular(&'static str),
    /// The path leads to a file type other than a regular file or a FIFO.
    #[error("it is {0}; only regular files and FIFOs are read")]
    NotReadable(&'static str),
    /// The FIFO is empty and no process can write to it.
    #[error("it is a FIFO that is empty and has no writer")]
    NoWriter,
    /// The file is longer than the limit.
    #[error("it has {size} bytes, and at most {limit} bytes ({}) are read", format::size(*limit))]
    TooLong {
        /// Number of bytes of the file, as far as they were counted.
        size: u64,
        /// Size limit in bytes.
        limit: u64,
    },
}

/// Opens a regular file for reading. Never blocks, even if the path leads to a FIFO without a
/// writer.
pub fn open(path: &Path) -> io::Result<File> {
    open_checked(path, OpenOptions::new().read(true), is_regular)
}

/// Opens a regular file for reading and writing. The file is not created.
pub fn open_for_writing(path: &Path) -> io::Result<File> {
    open_checked(path, OpenOptions::new().read(true).write(true), is_regular)
}

/// Returns whether a file was refused because of its type or its size.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<ReadRefusal>)
}

fn is_regular(kind: FileType) -> Result<(), ReadRefusal> {
    if kind.is_file() { Ok(()) } else { Err(ReadRefusal::NotRegular(name_of(kind))) }
}

fn is_regular_or_fifo(kind: FileType) -> Result<(), ReadRefusal> {
    if kind.is_file() || kind.is_fifo() { Ok(()) } else { Err(ReadRefusal::NotReadable(name_of(kind))) }
}

/// Opens a file whose type passes a check.
fn open_checked(
    path: &Path,
    options: &mut OpenOptions,
    check: fn(FileType) -> Result<(), ReadRefusal>,
) -> io::Result<File> {
    // Opening a device can have side effects, so the type is checked before the open. It may have
    // changed since, so it is checked again afterwards.
    check(fs::metadata(path)?.file_type()).map_err(io::Error::other)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    check(file.metadata()?.file_type()).map_err(io::Error::other)?;
    Ok(file)
}

/// Reads a regular file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_all(open(path)?, limit)
}

/// Reads a file that a user names: a regular file, or a FIFO such as that of `<(command)` or of
/// standard input, until its writers have closed it. Returns an error immediately if the FIFO is
/// empty and has no writer. The content is UTF-8 of at most `limit` bytes.
pub fn read_named_to_string(path: &Path, limit: u64) -> io::Result<String> {
    let file = open_checked(path, OpenOptions::new().read(true), is_regular_or_fifo)?;
    let is_fifo = file.metadata()?.file_type().is_fifo();
    if is_fifo {
        // The FIFO was opened without waiting for a writer. Reads wait for existing writers, and
        // end if there is none.
        fcntl_setfl(&file, OFlags::empty())?;
    }
    let content = read_all(file, limit)?;
    if is_fifo && content.is_empty() {
        return Err(io::Error::other(ReadRefusal::NoWriter));
    }
    text(content)
}

fn read_all(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    if size > limit {
        return Err(io::Error::other(ReadRefusal::TooLong { size, limit }));
    }
    // The file may grow in the meantime, and some files of the kernel report a size of 0.
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(limit + 1).read_to_end(&mut content)?;
    let size = content.len() as u64;
    if size > limit { Err(io::Error::other(ReadRefusal::TooLong { size, limit })) } else { Ok(content) }
}

/// Reads standard input to its end: UTF-8 of at most `limit` bytes. Waits for a terminal's end of
/// input (Ctrl-D) too.
pub fn read_stdin_to_string(limit: u64) -> io::Result<String> {
    let mut content = Vec::new();
    io::stdin().lock().take(limit + 1).read_to_end(&mut content)?;
    let size = content.len() as u64;
    if size > limit {
        return Err(io::Error::other(ReadRefusal::TooLong { size, limit }));
    }
    text(content)
}

/// Reads a regular file of at most `limit` bytes of UTF-8.
pub fn read_to_string(path: &Path, limit: u64) -> io::Result<String> {
    text(read(path, limit)?)
}

fn text(content: Vec<u8>) -> io::Result<String> {
    String::from_utf8(content).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("it is not UTF-8 at byte {place}"))
    })
}

/// Returns the name of a file type other than a regular file.
fn name_of(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "of an unknown type",
    }
}

/// Returns the path of a file that was deleted or replaced, from the link to it in `/proc`; `None`
/// if the file still exists at the path of the link.
#[must_use]
pub fn path_of_deleted(link: &Path) -> Option<PathBuf> {
    let path = link.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Writes the directory entry of a file to disk, after the file was created or renamed.
pub fn sync_parent_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use rustix::io::ioctl_fionread;

    use super::*;

    #[test]
    fn regular_files_are_read_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "größer").unwrap();
        assert_eq!(read_to_string(&path, 8).unwrap(), "größer");
        let refused = read_to_string(&path, 7).unwrap_err().to_string();
        assert_eq!(refused, "it has 8 bytes, and at most 7 bytes (7 B) are read");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&link, 8).unwrap().len(), 8);
        fs::write(&path, b"ab\xffc").unwrap();
        assert_eq!(read_to_string(&path, 8).unwrap_err().to_string(), "it is not UTF-8 at byte 2");
        assert_eq!(read(&dir.path().join("none"), 8).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_sparse_file_is_refused_by_its_size_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        File::create(&path).unwrap().set_len(5 << 30).unwrap();
        let refused = read(&path, MAX_YAML_BYTES).unwrap_err().to_string();
        assert_eq!(refused, "it has 5368709120 bytes, and at most 67108864 bytes (64.0 MiB) are read");
    }

    #[test]
    fn a_file_without_a_size_is_read_up_to_the_limit() {
        let path = Path::new("/proc/self/maps");
        assert_eq!(fs::metadata(path).unwrap().len(), 0);
        assert_eq!(
            read(path, 10).unwrap_err().to_string(),
            "it has 11 bytes, and at most 10 bytes (10 B) are read"
        );
        assert!(!read(path, MAX_YAML_BYTES).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_is_not_regular_is_refused_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let [fifo, socket] = ["fifo", "socket"].map(|name| dir.path().join(name));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (fifo.as_path(), "a FIFO"),
            (socket.as_path(), "a socket"),
            (dir.path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            for refused in [read(path, 8).unwrap_err(), open_for_writing(path).unwrap_err()] {
                assert!(is_refusal(&refused));
                assert_eq!(refused.to_string(), format!("it is {kind}; only regular files are read"));
            }
            let refused = read_named_to_string(path, 8).unwrap_err().to_string();
            let expected = match kind {
                "a FIFO" => "it is a FIFO that is empty and has no writer".to_owned(),
                _ => format!("it is {kind}; only regular files and FIFOs are read"),
            };
            assert_eq!(refused, expected);
        }
    }

    #[test]
    fn a_named_fifo_is_read_until_its_writers_close_it() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Both ends are open, so that the following opens do not block.
        let reads = File::options().read(true).write(true).open(&fifo).unwrap();
        let mut writes = File::options().write(true).open(&fifo).unwrap();
        writes.write_all("größer".as_bytes()).unwrap();
        let reader = {
            let fifo = fifo.clone();
            thread::spawn(move || read_named_to_string(&fifo, 20))
        };
        while ioctl_fionread(&reads).unwrap() > 0 {
            thread::yield_now();
        }
        writes.write_all(b" and greater").unwrap();
        drop((reads, writes));
        assert_eq!(reader.join().unwrap().unwrap(), "größer and greater");
    }

    #[test]
    fn a_fifo_is_read_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // The writer stays open: the reader does not wait for the end.
        let mut endless = File::options().read(true).write(true).open(&fifo).unwrap();
        endless.write_all(b"123456789").unwrap();
        let refused = read_named_to_string(&fifo, 8).unwrap_err().to_string();
        assert_eq!(refused, "it has 9 bytes, and at most 8 bytes (8 B) are read");
    }
}
