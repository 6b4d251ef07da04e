use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Mutex;

use flate2::read::GzDecoder;
use tempfile::TempDir;

use super::*;

/// A container log in a temporary directory.
struct Log {
    dir: TempDir,
    /// Number of lines written so far.
    lines: Mutex<usize>,
}

impl Log {
    fn new() -> Self {
        let log = Self { dir: tempfile::tempdir().unwrap(), lines: Mutex::new(0) };
        log.write(10);
        log
    }

    fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("0.log")
    }

    /// Appends numbered lines to the log, as a runtime that has just opened it.
    fn write(&self, count: usize) {
        let mut lines = self.lines.lock().unwrap();
        let mut text = fs::read_to_string(self.path()).unwrap_or_default();
        for _ in 0..count {
            writeln!(text, "{lines}").unwrap();
            *lines += 1;
        }
        fs::write(self.path(), text).unwrap();
    }

    /// Rotates the log at this second. The runtime continues in a new file.
    async fn rotate(&self, second: i64, max_files: usize) -> Result<bool, RotateError> {
        let now = Timestamp::from_second(second).unwrap();
        rotate_if_large(&self.path(), 1, max_files, now, || async {
            self.write(10);
            Ok(())
        })
        .await
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn text(&self, name: &str) -> String {
        let file = fs::File::open(self.dir.path().join(name)).unwrap();
        let mut text = String::new();
        if name.strip_suffix(".gz").is_some() {
            GzDecoder::new(file).read_to_string(&mut text).unwrap();
        } else {
            (&file).read_to_string(&mut text).unwrap();
        }
        text
    }

    /// Returns the numbers of all lines, from the oldest file to the newest.
    fn numbers(&self) -> Vec<usize> {
        let mut names = self.names();
        // The log itself is the newest.
        names.rotate_left(1);
        names
            .iter()
            .flat_map(|name| self.text(name).lines().map(|it| it.parse().unwrap()).collect::<Vec<_>>())
            .collect()
    }
}

#[tokio::test]
async fn rotated_logs_are_compressed_with_the_next_rotation_and_lose_nothing() {
    let log = Log::new();
    fs::set_permissions(log.path(), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(log.rotate(0, 5).await.unwrap());
    assert_eq!(log.names(), ["0.log", "0.log.19700101-000000"]);
    assert!(log.rotate(10, 5).await.unwrap());
    assert_eq!(log.names(), ["0.log", "0.log.19700101-000000.gz", "0.log.19700101-000010"]);
    let compressed = fs::metadata(log.dir.path().join("0.log.19700101-000000.gz")).unwrap();
    assert_eq!(compressed.permissions().mode() & 0o777, 0o600);
    assert_eq!(log.numbers(), (0..30).collect::<Vec<_>>());
    for second in 20..30 {
        assert!(log.rotate(second, 5).await.unwrap());
        assert!(log.names().len() <= 5, "{:?}", log.names());
    }
    assert_eq!(log.names().len(), 5);
    assert_eq!(log.numbers(), (80..130).collect::<Vec<_>>(), "the newest lines stay, and each once");
    remove_log(log.path()).await;
    assert_eq!(log.names(), [""; 0]);
}

#[tokio::test]
async fn a_log_below_the_size_limit_is_not_rotated() {
    let log = Log::new();
    let size = fs::metadata(log.path()).unwrap().len();
    let never = || async { panic!("the log must not be reopened") };
    let now = Timestamp::UNIX_EPOCH;
    assert!(!rotate_if_large(&log.path(), size + 1, 5, now, never).await.unwrap());
    assert_eq!(log.names(), ["0.log"]);
    let reopen = || async { Ok(()) };
    assert!(rotate_if_large(&log.path(), size, 5, now, reopen).await.unwrap());
}

#[tokio::test]
async fn a_log_that_is_not_reopened_gets_its_name_back() {
    let log = Log::new();
    let refuse = || async { Err(Status::unknown("container is not running")) };
    let refused = rotate_if_large(&log.path(), 1, 5, Timestamp::UNIX_EPOCH, refuse).await;
    assert_eq!(refused.unwrap_err().to_string(), "ReopenContainerLog: container is not running");
    assert_eq!((log.names(), log.numbers()), (vec!["0.log".to_owned()], (0..10).collect()));
    // The response was lost: the runtime has opened a new log, which must not be replaced.
    let fail_late = || async {
        log.write(10);
        Err(Status::deadline_exceeded("context deadline exceeded"))
    };
    let failed = rotate_if_large(&log.path(), 1, 5, Timestamp::UNIX_EPOCH, fail_late).await;
    assert!(matches!(failed, Err(RotateError::NotRestored { .. })), "{failed:?}");
    assert_eq!(log.names(), ["0.log", "0.log.19700101-000000"]);
    assert_eq!(log.numbers(), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_missing_log_is_reopened_first() {
    let log = Log::new();
    fs::rename(log.path(), log.dir.path().join("0.log.19700101-000000")).unwrap();
    assert!(log.rotate(10, 5).await.unwrap());
    assert_eq!(log.names(), ["0.log", "0.log.19700101-000000.gz", "0.log.19700101-000010"]);
    assert_eq!(log.numbers(), (0..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn leftovers_of_interrupted_rotations_are_removed() {
    let log = Log::new();
    let put = |name: &str| fs::write(log.dir.path().join(name), "left").unwrap();
    put("0.log.19691231-000000.tmp");
    put("0.log.19691231-000001");
    put("0.log.19691231-000001.gz");
    // Logs of other attempts.
    put("10.log");
    put("1.log.19691231-000000.tmp");
    assert!(log.rotate(0, 5).await.unwrap());
    let names =
        ["0.log", "0.log.19691231-000001.gz", "0.log.19700101-000000", "1.log.19691231-000000.tmp", "10.log"];
    assert_eq!(log.names(), names);
    remove_log(log.path()).await;
    assert_eq!(log.names(), ["1.log.19691231-000000.tmp", "10.log"]);
}

/// A compressed log of the same name would make the uncompressed one a leftover.
#[tokio::test]
async fn a_rotated_log_is_neither_overwritten_nor_taken_for_a_leftover() {
    let log = Log::new();
    assert!(log.rotate(0, 5).await.unwrap());
    // The clock was set back.
    let failed = log.rotate(0, 5).await.unwrap_err();
    assert_eq!(failed.to_string(), "cannot rename the log: entity already exists");
    assert_eq!(log.names(), ["0.log", "0.log.19700101-000000.gz"]);
    assert_eq!(log.numbers(), (0..20).collect::<Vec<_>>());
    assert!(log.rotate(10, 5).await.unwrap());
    assert_eq!(log.numbers(), (0..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn links_in_the_directory_of_a_log_are_not_followed() {
    let log = Log::new();
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, log.dir.path().join("0.log.19691231-000000")).unwrap();
    // A link at the temporary path of the next compressed log.
    assert!(log.rotate(0, 5).await.unwrap());
    symlink(&victim, log.dir.path().join("0.log.19700101-000000.tmp")).unwrap();
    assert!(log.rotate(10, 5).await.unwrap());
    assert_eq!(log.text("0.log.19700101-000000.gz").lines().count(), 10);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    // A link at the path of the log itself.
    fs::remove_file(log.path()).unwrap();
    symlink(&victim, log.path()).unwrap();
    assert!(log.rotate(20, 5).await.unwrap_err().to_string().ends_with("not a regular file"));
    // A link at a parent directory.
    symlink(log.dir.path(), outside.path().join("link")).unwrap();
    let through = outside.path().join("link/0.log");
    assert!(LogDirectory::open(&through).is_err());
    remove_log(through).await;
    assert!(log.names().contains(&"0.log.19700101-000010".to_owned()));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
}
