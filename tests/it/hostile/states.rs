//! Damaged state below `--state-dir`: `play` starts with the readable part, or refuses with a
//! message and creates nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use fixtures::need;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tokio::sync::OnceCell;

use crate::playing::{POLITE, is_clean, played, pod, sandboxes, start, told};
use crate::procrun::Runtime;
use crate::program::{Place, is_root};

/// Number of programs that run at the same time.
const AT_ONCE: usize = 4;

/// Returns the state file of a `play` that was killed while a pod was running.
async fn whole() -> &'static [u8] {
    static WHOLE: OnceCell<Vec<u8>> = OnceCell::const_new();
    WHOLE
        .get_or_init(|| async {
            let place = Place::new();
            let runtime = Runtime::start_at(&place.at("runtime.sock"));
            fs::write(place.at("pods.yaml"), manifest()).unwrap();
            let mut running = start(&place, place.at("pods.yaml").to_str().unwrap()).await;
            told(&place, "Started", "").await;
            running.process.kill().unwrap();
            running.process.wait().unwrap();
            runtime.end().await;
            let whole = fs::read(place.at("state/state.redb")).unwrap();
            assert!(whole.len() > 8192, "{} bytes", whole.len());
            whole
        })
        .await
}

fn manifest() -> String {
    pod("a", POLITE, "", "")
}

/// Plays a pod until it is ready, with a `state.redb` that `put` creates. Asserts that the pod ran
/// and was removed, or that no pod was created and the error names the file and the remedy. Returns
/// whether the state was refused.
async fn is_refused(what: &str, put: impl FnOnce(&Path)) -> bool {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    fs::create_dir(place.at("state")).unwrap();
    let file = place.at("state/state.redb");
    put(&file);
    let answer = played(&place, &manifest(), &["--until", "ready"]).await;
    for word in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
        assert!(!answer.stderr.contains(word), "{what}: {answer:?}");
    }
    if answer.code == Some(0) {
        is_clean(&place, runtime).await;
        return false;
    }
    assert_eq!(answer.code, Some(1), "{what}: {answer:?}");
    let is_told = |line: &str| {
        ["error: --state-dir: ", "/state/state.redb: ", "; move the file away to start with an empty state"]
            .iter()
            .all(|told| line.contains(told))
    };
    assert!(answer.stderr.lines().any(is_told), "{what}: {answer:?}");
    assert_eq!(sandboxes(&mut runtime).await, 0, "{what}");
    runtime.end().await;
    true
}

#[tokio::test]
async fn play_accepts_a_damaged_state_file_or_refuses_it_with_a_message() {
    let whole = whole().await;
    let mut random = fastrand::Rng::with_seed(23);
    let mut noise = |length: usize| -> Vec<u8> { (0..length).map(|_| random.u8(..)).collect() };
    let mut cases = vec![
        ("random bytes".to_owned(), noise(4096)),
        ("as many random bytes".to_owned(), noise(whole.len())),
    ];
    for length in [0, 1, 100, 4096, whole.len() / 2, whole.len() - 1] {
        cases.push((format!("cut off at {length} bytes"), whole[..length].to_vec()));
    }
    for seed in 0..16 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut damaged = whole.to_vec();
        for _ in 0..3 {
            // The first pages describe all others.
            let pages = if seed % 2 == 0 { damaged.len() } else { 4 * 4096 };
            let at = random.usize(..pages - 64);
            random.fill(&mut damaged[at..at + 64]);
        }
        cases.push((format!("three times 64 random bytes with seed {seed}"), damaged));
    }
    let plays = cases.iter().map(|(what, bytes)| async move {
        let put = |file: &Path| fs::write(file, bytes).unwrap();
        (what, is_refused(what, put).await)
    });
    let ends: Vec<_> = iter(plays).buffer_unordered(AT_ONCE).collect().await;
    let refused = ends.iter().filter(|(_, is_refused)| *is_refused).count();
    assert!(
        (4..ends.len()).contains(&refused),
        "some damaged files must be refused and others accepted: {ends:?}"
    );
}

/// Creates something in place of the state file.
type Put<'a> = Box<dyn Fn(&Path) + 'a>;

#[tokio::test]
async fn a_state_file_that_is_not_regular_is_refused_and_kept() {
    need!(is_root());
    // The device belongs to this test, so that a change of it has no effect on other programs.
    let folder = tempfile::tempdir().unwrap();
    let [fifo, zero] = ["fifo", "zero"].map(|name| folder.path().join(name));
    let read_write = Mode::from_raw_mode(0o640);
    mknodat(CWD, &fifo, FileType::Fifo, read_write, 0).unwrap();
    let made = mknodat(CWD, &zero, FileType::CharacterDevice, read_write, makedev(1, 5));
    need!(made.map_err(|error| format!("cannot make a device: {error}")));
    let cases: [(&str, Put<'_>); 5] = [
        ("a FIFO", Box::new(|file| mknodat(CWD, file, FileType::Fifo, read_write, 0).unwrap())),
        ("a link to a FIFO", Box::new(|file| symlink(&fifo, file).unwrap())),
        ("a link to a device", Box::new(|file| symlink(&zero, file).unwrap())),
        ("a folder", Box::new(|file| fs::create_dir(file).unwrap())),
        ("a link to a folder", Box::new(|file| symlink(folder.path(), file).unwrap())),
    ];
    for (what, put) in cases {
        assert!(is_refused(what, put).await, "{what} was accepted");
    }
    for kept in [&fifo, &zero] {
        assert_eq!(
            fs::metadata(kept).unwrap().mode() & 0o777,
            0o640,
            "the mode of {} was changed",
            kept.display()
        );
    }
}
