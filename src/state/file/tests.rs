//! Changes of a state file for tests.

use super::*;

/// Changes the version of a file, or removes it with its table.
pub(in crate::state) fn set_version(path: &Path, version: Option<u64>) {
    let (_file, database) = open(path).unwrap();
    let writing = database.begin_write().unwrap();
    match version {
        Some(version) => {
            drop(writing.open_table(META_TABLE).unwrap().insert("version", version).unwrap());
        }
        None => assert!(writing.delete_table(META_TABLE).unwrap()),
    }
    writing.commit().unwrap();
}

/// Changes a file as a probeshim does that ends without closing it. Returns the bytes that it
/// leaves.
pub(in crate::state) fn bytes_after_crash(path: &Path) -> Vec<u8> {
    let (_file, database) = open(path).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(definition(StateTable::Pods)).unwrap().insert("crashed", &b"1"[..]).unwrap();
    writing.commit().unwrap();
    fs::read(path).unwrap()
}

/// Removes a table, as if a probeshim without that table had written the file.
pub(in crate::state) fn remove_table(path: &Path, table: StateTable) {
    let (_file, database) = open(path).unwrap();
    let writing = database.begin_write().unwrap();
    assert!(writing.delete_table(definition(table)).unwrap());
    writing.commit().unwrap();
}
