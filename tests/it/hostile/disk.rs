//! Full disks, and directories that are removed while probeshim runs.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fixtures::need;
use fixtures::wait::soon;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use serde_json::Value;

use crate::admin::{SERVICE, call, until_shown};
use crate::playing::{POLITE, Watched, is_clean, pod, start};
use crate::procrun::Runtime;
use crate::program::{Place, Running, is_root};

/// A small file system, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        mount("tmpfs", &at, "tmpfs", MountFlags::empty(), c"size=256k,mode=700").unwrap();
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Makes calls through probeshim until `so` holds for the record section of its status.
async fn until_recorded(place: &Place, shim: &Running, so: impl Fn(&Value) -> bool) {
    let recorded = async {
        loop {
            call(shim, &[(&format!("{SERVICE}/Version"), Vec::new())]).await;
            let status = place.ask(&["status", "-o", "json"]).await.json();
            if so(&status["record"]) {
                return;
            }
        }
    };
    soon(recorded).await;
}

fn reasons(events: &Value) -> Vec<String> {
    let events = events.as_array().unwrap().iter();
    events
        .map(|event| event["reason"].as_str().unwrap().to_owned())
        .filter(|it| it.starts_with("Record"))
        .collect()
}

/// Returns the number of bytes of the call records in a directory.
fn recorded(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter(|file| file.path().extension().is_some_and(|it| it == "jsonl"))
        .map(|it| it.metadata().unwrap().len())
        .sum()
}

#[tokio::test]
async fn recording_resumes_when_the_disk_has_space_again() {
    need!(is_root());
    let place = Place::new();
    let disk = SmallDisk::mount(place.at("state/calls"));
    let filler = disk.0.join("filler");
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut shim = place.start(&[]).await;
    until_recorded(&place, &shim, |_| recorded(&disk.0) > 0).await;
    // The filler takes all free space.
    fs::write(&filler, vec![0; 1 << 20]).unwrap_err();
    until_recorded(&place, &shim, |record| {
        record["failure"].as_str().is_some_and(|why| why.contains("No space left on device"))
    })
    .await;
    let table = place.ask(&["status"]).await.stdout;
    assert!(table.contains("recorded     no: No space left on device"), "{table}");
    fs::remove_file(&filler).unwrap();
    until_recorded(&place, &shim, |record| record["failure"].is_null()).await;
    let events = place.ask(&["events", "-o", "json"]).await.json();
    assert_eq!(reasons(&events), ["RecordWriteFailed", "RecordWriteRecovered"]);
    shim.signal(Signal::TERM);
    shim.ended().await;
    drop(disk);
    runtime.end().await;
}

#[tokio::test]
async fn removed_call_records_are_reported_and_recording_continues() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let shim = place.start(&[]).await;
    let folder = place.at("state/calls");
    until_recorded(&place, &shim, |_| recorded(&folder) > 0).await;
    fs::remove_dir_all(place.at("state")).unwrap();
    until_recorded(&place, &shim, |_| recorded(&folder) > 0).await;
    let events = place.ask(&["events", "-o", "json"]).await.json();
    assert_eq!(reasons(&events), ["RecordRemoved"]);
    drop(shim);
    runtime.end().await;
}

#[tokio::test]
async fn directories_of_play_are_private_and_removed_state_is_written_again() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let watched = Watched::new(&place);
    watched.write("a.yaml", &pod("a", POLITE, "", ""));
    let mut running = start(&place, watched.path()).await;
    let ready = |name: &'static str| {
        until_shown(&place, &["status"], move |status| {
            let pods = status["pods"].as_array()?.iter();
            pods.into_iter().any(|pod| pod["name"] == name && pod["ready"] == true).then(|| status.clone())
        })
    };
    let status = ready("a").await;
    let state = place.at("state");
    assert_eq!(status["state"]["dir"], state.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(status["state"]["failure"], Value::Null);
    for folder in [state.clone(), state.join("pods")] {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "{folder:?}");
    }
    let file = state.join("state.redb");
    let before = fs::metadata(&file).unwrap().ino();
    fs::remove_file(&file).unwrap();
    watched.write("b.yaml", &pod("b", POLITE, "", ""));
    assert_eq!(ready("b").await["state"]["failure"], Value::Null);
    assert_ne!(fs::metadata(&file).unwrap().ino(), before);
    // After a kill both pods are known.
    running.process.kill().unwrap();
    running.process.wait().unwrap();
    let mut running = start(&place, watched.path()).await;
    let status = ready("b").await;
    assert_eq!(status["pods"].as_array().unwrap().len(), 2, "{status}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}
