//! State directories that are damaged, in use, full or read-only.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use fixtures::need;
use probeshim::cri::v1::StopContainerRequest;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::process::Signal;

use crate::client_pods::{self, Owner};
use crate::playing::{POLITE, Watched, is_clean, played, pod, sandboxes, start, told};
use crate::procrun::Runtime;
use crate::program::{Answer, Place, is_root};

#[tokio::test]
async fn a_damaged_state_is_refused_and_no_pod_is_created() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    fs::create_dir(place.at("state")).unwrap();
    fs::write(place.at("state/state.redb"), "something else").unwrap();
    let answer = played(&place, &pod("a", POLITE, "", ""), &["--until", "ready"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let told = format!("--state-dir: the state is damaged ({}", place.at("state/state.redb").display());
    assert!(answer.stderr.contains(&told) && answer.stderr.contains("move the file away"), "{answer:?}");
    assert_eq!(fs::read(place.at("state/state.redb")).unwrap(), b"something else");
    assert_eq!(sandboxes(&mut runtime).await, 0);
    runtime.end().await;
}

#[tokio::test]
async fn a_state_directory_is_used_by_one_probeshim_at_a_time() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    let mut running = start(&place, folder.path()).await;
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
    let mut other = place.watching_command_of(program, "other.sock");
    other.args(["--enforce", "restart", "--http", "off"]);
    let answer = Answer::to(other).await;
    let told = format!("--state-dir: another probeshim (pid {})", running.process.id());
    assert!(answer.code == Some(1) && answer.stderr.contains(&told), "{answer:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

/// A small tmpfs, which is unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn at(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        let options = std::ffi::CString::new("size=4m").unwrap();
        mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
        Self(folder)
    }

    /// Makes the directory read-only, or writable again.
    fn is_read_only(&self, is_so: bool) {
        let flags = if is_so { MountFlags::RDONLY } else { MountFlags::empty() };
        mount_remount(&self.0, flags, "").unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// On a full disk pods keep running, the failure is reported, and the state is written once there
/// is space.
#[tokio::test]
async fn a_full_disk_loses_no_state() {
    need!(is_root());
    let place = Place::new();
    let _small = Small::at(place.at("state"));
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    folder.write("a.yaml", &pod("a", POLITE, "", ""));
    let mut running = start(&place, folder.path()).await;
    told(&place, "Started", "").await;
    let filler = place.at("state/filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    drop(file);
    folder.write("b.yaml", &pod("b", "sleep 0.2; exit 3", "", ""));
    told(&place, "StateWriteFailed", "--state-dir: the state cannot be written, and probeshim retries").await;
    // The pod cannot start, unless the database has left a page for its hosts file.
    fs::remove_file(&filler).unwrap();
    told(&place, "StateWriteRecovered", "").await;
    told(&place, "BackOff", "main").await;
    running.signal(Signal::KILL);
    running.ended().await;
    running = start(&place, folder.path()).await;
    told(&place, "BackOff", "main").await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

/// A read-only state directory is refused for restarts, but accepted for observation.
#[tokio::test]
async fn a_read_only_state_directory_is_refused_and_no_client_pod_is_forgotten() {
    need!(is_root());
    let place = Place::new();
    let small = Small::at(place.at("state"));
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut running = client_pods::start(&place).await;
    let mut owner = Owner::of(place);
    owner.pod("a", POLITE, &[]).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0));
    small.is_read_only(true);
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
    let mut refused = owner.place.watching_command_of(program, "other.sock");
    refused.args(["--enforce", "restart", "--http", "off"]);
    let answer = Answer::to(refused).await;
    let is_told = ["--state-dir: ", "Read-only file system"].iter().all(|told| answer.stderr.contains(told));
    assert!(answer.code == Some(1) && is_told, "{answer:?}");
    let mut watching = owner.place.start_watching(&["--record-limit", "off"]).await;
    watching.logged("stops by clients are not recorded for --enforce restart").await;
    watching.signal(Signal::TERM);
    assert_eq!(watching.ended().await, Some(0));
    small.is_read_only(false);
    owner.client = runtime.client.clone();
    let container_id = owner.runs("a", 0).await.id;
    owner.client.stop_container(StopContainerRequest { container_id, timeout: 2 }).await.unwrap();
    running = client_pods::start(&owner.place).await;
    owner.runs("a", 1).await;
    client_pods::end(running, owner, runtime).await;
}
