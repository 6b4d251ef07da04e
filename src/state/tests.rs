//! Values are restored after a restart, or the error is reported.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

fn opened(dir: &Path) -> (StateStore, Snapshot) {
    StateStore::open(dir).unwrap()
}

fn all(kept: &Snapshot, table: StateTable) -> Vec<(String, u32)> {
    kept.entries(table).unwrap()
}

/// Opens a state store, runs `what`, and closes the store.
async fn keep(dir: &Path, what: impl FnOnce(&StateStore)) {
    let (state, _) = opened(dir);
    what(&state);
    state.close().await.unwrap();
}

#[tokio::test]
async fn state_entries_are_restored_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("a/b");
    keep(&below, |state| {
        for number in 0..100 {
            state.upsert(StateTable::Pods, &format!("{number:03}"), &number);
        }
        state.upsert(StateTable::RestartBackoff, "000", &1000);
        state.remove(StateTable::Pods, "050");
        state.remove(StateTable::Pods, "none");
        state.upsert(StateTable::Pods, "001", &7);
    })
    .await;
    let (_state, kept) = opened(&below);
    let pods = all(&kept, StateTable::Pods);
    assert_eq!((pods.len(), &pods[1]), (99, &("001".to_owned(), 7)));
    assert_eq!(all(&kept, StateTable::RestartBackoff), [("000".to_owned(), 1000)]);
    assert_eq!(all(&kept, StateTable::Containers), []);
    for (path, mode) in [(below.clone(), 0o700), (below.join("state.redb"), 0o600)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
    }
}

#[tokio::test]
async fn a_state_directory_has_one_owner_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (_state, _) = opened(dir.path());
    let refused = StateStore::open(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("another probeshim (pid"), "{refused}");
}

#[test]
fn a_file_as_state_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = StateStore::open(&file).unwrap_err().to_string();
    assert_eq!(
        refused,
        format!("{}: is not a directory; name a directory or a path that does not exist", file.display())
    );
}

/// Files of an older version, a newer version and no version, closed and not closed: their bytes
/// stay unchanged, and the new state is empty.
#[tokio::test]
async fn a_state_file_of_another_version_is_set_aside_unchanged() {
    for (version, name) in
        [(Some(0), "v0"), (Some(2), "v2"), (Some(u64::MAX), "v18446744073709551615"), (None, "no-version")]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let mut set_aside = Vec::new();
        for (count, is_closed) in [(1, true), (2, false)] {
            keep(dir.path(), |state| state.upsert(StateTable::Pods, "a", &count)).await;
            file::tests::set_version(&path, version);
            if !is_closed {
                let left = file::tests::bytes_after_crash(&path);
                fs::write(&path, left).unwrap();
            }
            let bytes = fs::read(&path).unwrap();
            let (state, kept) = opened(dir.path());
            assert_eq!(all(&kept, StateTable::Pods), [], "{name}");
            state.upsert(StateTable::Pods, "b", &1);
            state.close().await.unwrap();
            set_aside.push((dir.path().join(format!("state.redb.{name}-set-aside-{count}")), bytes));
            for (path, bytes) in &set_aside {
                assert!(fs::read(path).unwrap() == *bytes, "{} is unchanged", path.display());
            }
            let (state, kept) = opened(dir.path());
            assert_eq!(
                all(&kept, StateTable::Pods),
                [("b".to_owned(), 1)],
                "{name}: the new file has this version"
            );
            state.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_empty_state_file_is_refused_and_stays_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    fs::write(&path, "").unwrap();
    for _ in 0..2 {
        let refused = StateStore::open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("state.redb: it is empty"), "{refused}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
}

#[tokio::test]
async fn a_state_file_without_a_newer_table_is_read_and_gets_the_table() {
    for table in [StateTable::SubPathMounts, StateTable::UserNamespaces] {
        let dir = tempfile::tempdir().unwrap();
        keep(dir.path(), |state| state.upsert(StateTable::Pods, "a", &1)).await;
        file::tests::remove_table(&dir.path().join("state.redb"), table);
        keep(dir.path(), |state| state.upsert(table, "b", &2)).await;
        let (_state, kept) = opened(dir.path());
        assert_eq!(all(&kept, StateTable::Pods), [("a".to_owned(), 1)]);
        assert_eq!(all(&kept, table), [("b".to_owned(), 2)]);
    }
}

/// A truncated file is either refused or read completely.
#[tokio::test]
async fn a_truncated_state_file_is_refused_or_read_completely() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    keep(dir.path(), |state| state.upsert(StateTable::Pods, "a", &1)).await;
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 100, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        match StateStore::open(dir.path()) {
            Ok((state, kept)) => {
                assert_eq!(all(&kept, StateTable::Pods), [("a".to_owned(), 1)], "cut at {length}");
                state.close().await.unwrap();
            }
            Err(StateError::Damaged(reason)) => assert!(reason.contains("state.redb"), "{reason}"),
            Err(other) => panic!("cut at {length}: {other}"),
        }
    }
    fs::write(&path, "something else").unwrap();
    assert!(matches!(StateStore::open(dir.path()), Err(StateError::Damaged(_))));
}

#[tokio::test]
async fn an_unreadable_state_entry_is_reported_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    keep(dir.path(), |state| state.upsert(StateTable::Pods, "a", &"text")).await;
    let (_state, kept) = opened(dir.path());
    let refused = kept.entries::<u32>(StateTable::Pods).unwrap_err().to_string();
    assert!(refused.contains("pods of a"), "{refused}");
}

/// Damages a real file in many ways. Each file is refused with a message, or read completely: the
/// pages have checksums, and damage to unused pages has no effect. Nothing is printed to standard
/// error, and nothing panics.
#[tokio::test]
async fn a_damaged_state_file_is_read_completely_or_refused_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    for round in 0..20 {
        keep(dir.path(), |state| {
            for number in 0..50 {
                state.upsert(StateTable::Pods, &format!("{round}-{number}"), &"x".repeat(1 + 37 * number));
                state.upsert(StateTable::RestartBackoff, &format!("{}-{number}", round % 3), &number);
            }
        })
        .await;
    }
    let whole = fs::read(&path).unwrap();
    let content = |kept: &Snapshot| {
        let of = |table| kept.entries::<serde_json::Value>(table).unwrap();
        [of(StateTable::Pods), of(StateTable::RestartBackoff)]
    };
    let (state, kept) = opened(dir.path());
    let kept = content(&kept);
    state.close().await.unwrap();
    let mut random = fastrand::Rng::with_seed(23);
    let (mut refused, mut read) = (0, 0);
    for round in 0..300 {
        let mut damaged = whole.clone();
        // Damage to the whole file or to one page. The first page describes all others.
        let page = 4096 * random.usize(..damaged.len() / 4096);
        let range = match round % 4 {
            0 => 0..damaged.len(),
            1 => 0..4096,
            2 => page..page + 4096,
            _ => page..page + 64,
        };
        match random.u8(..4) {
            0 => random.fill(&mut damaged[range]),
            1 => damaged[range].fill(0),
            2 => (0..3).for_each(|_| {
                let at = random.usize(range.clone());
                let end = (at + 64).min(damaged.len());
                random.fill(&mut damaged[at..end]);
            }),
            _ => {
                let at = random.usize(range);
                damaged[at] ^= 1 << random.u8(..8);
            }
        }
        fs::write(&path, &damaged).unwrap();
        match StateStore::open(dir.path()) {
            Ok((state, found)) => {
                read += 1;
                assert_eq!(content(&found), kept, "round {round}: the damage is in unused pages");
                state.upsert(StateTable::Pods, "new", &1);
                state.flush().await;
                assert_eq!(
                    *state.write_error().borrow(),
                    None,
                    "round {round}: what was taken can be written"
                );
                state.close().await.unwrap();
            }
            Err(StateError::Damaged(reason)) => {
                refused += 1;
                assert!(reason.contains("state.redb"), "{reason}");
            }
            Err(other) => panic!("round {round}: {other}"),
        }
    }
    assert!(refused > 30 && read > 30, "{refused} were refused and {read} read: the damage is of both kinds");
}
