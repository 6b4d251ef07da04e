//! probeshim is killed at each of its calls to the runtime, and started again: the pods that it
//! plays end in the same way.

mod runtime;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use fixtures::need;
use fixtures::wait::soon;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use probeshim::cri::MethodName;
use probeshim::cri::v1::{ContainerState, ListContainersRequest, StopContainerRequest};
use probeshim::relay::{self, CallIds, CapturePlan, CompletedCall, Observer, Relay};
use probeshim::socket::{BindMode, BoundPath, SocketPath, bind};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use crate::admin::until_shown;
use crate::keeping::{self, Owner};
use crate::playing::{POLITE, Watched, begin, is_clean, played, pod, sandboxes, start, told};
use crate::procrun::Runtime;
use crate::program::{Answer, Place, Running, is_root};

/// Calls that change the state of a runtime or of a container.
const ACTS: [&str; 8] = [
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ExecSync",
];

/// Number of walks that run at the same time.
const AT_ONCE: usize = 6;

/// Observer that counts calls to a runtime, and kills the caller at one of them.
#[derive(Debug, Default)]
struct Killer {
    victim: AtomicI32,
    asked: AtomicUsize,
    answered: AtomicUsize,
    /// The call at which the caller is killed.
    at: Option<Moment>,
    has_killed: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Before the call with this number reaches the runtime.
    Asked(usize),
    /// When the runtime has answered the call with this number.
    Answered(usize),
}

impl Killer {
    /// Starts a relay in front of procrun.
    fn between(self: Arc<Self>, place: &Place) -> (Relay, Option<BoundPath>, CancellationToken) {
        let upstream = SocketPath::new(&place.at("procrun.sock")).unwrap();
        let listen = SocketPath::new(&place.at("runtime.sock")).unwrap();
        let listening = bind(&listen, BindMode::InheritFrom(&upstream)).unwrap();
        let settings = relay::RelayConfig { upstream, drain_timeout: Duration::ZERO };
        let (numbers, drain) = (CallIds::starting_at(1), CancellationToken::new());
        let metrics = relay::RelayMetrics::default();
        let relay = Relay::start(listening.listener, settings, self, metrics, numbers, drain.clone());
        (relay.unwrap(), listening.claim, drain)
    }

    /// Sets the process to be killed, and starts to count calls.
    fn is_after(&self, running: &Running) {
        self.victim.store(Pid::from_child(&running.process).as_raw_nonzero().get(), Ordering::SeqCst);
    }

    fn walk(&self, calls: usize) -> Walk {
        Walk { calls, has_killed: self.has_killed.load(Ordering::SeqCst) }
    }

    fn now(&self, moment: Moment) {
        if self.at == Some(moment)
            && let Some(victim) = Pid::from_raw(self.victim.load(Ordering::SeqCst))
        {
            kill_process(victim, Signal::KILL).unwrap();
            self.has_killed.store(true, Ordering::SeqCst);
        }
    }
}

impl Observer for Killer {
    fn capture_plan(&self, method: &MethodName) -> CapturePlan {
        if ACTS.contains(&method.label()) && self.victim.load(Ordering::SeqCst) != 0 {
            self.now(Moment::Asked(self.asked.fetch_add(1, Ordering::SeqCst) + 1));
        }
        CapturePlan::default()
    }

    fn on_end(&self, call: CompletedCall) {
        if ACTS.contains(&call.info.method.label()) && self.victim.load(Ordering::SeqCst) != 0 {
            self.now(Moment::Answered(self.answered.fetch_add(1, Ordering::SeqCst) + 1));
        }
    }
}

/// Result of a walk.
struct Walk {
    /// Number of calls.
    calls: usize,
    /// Whether the process was killed.
    has_killed: bool,
}

/// Plays a pod whose container is restarted because its probe fails at first, and which ends when
/// its manifest is removed. The `play` process is killed at the moment `at`, and started again.
async fn walk(at: Option<Moment>) -> Walk {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("procrun.sock"));
    let killer = Arc::new(Killer { at, ..Killer::default() });
    let (relay, _claim, drain) = killer.clone().between(&place);
    let starts = place.at("starts");
    let starts = starts.display();
    let folder = Watched::new(&place);
    folder.write(
        "a.yaml",
        &format!(
            "{{kind: Pod, metadata: {{name: a, namespace: test}}, spec: {{terminationGracePeriodSeconds: 2, \
             initContainers: [{{name: init, image: i, command: ['true']}}], \
             containers: [{{name: main, image: i, command: [sh, -c, \"echo >> {starts}; {POLITE}\"], \
             lifecycle: {{preStop: {{exec: {{command: ['true']}}}}}}, \
             livenessProbe: {{exec: {{command: [sh, -c, \"[ $(wc -l < {starts}) -ne 1 ]\"]}}, periodSeconds: 1, failureThreshold: 1}}}}]}}}}"
        ),
    );
    let mut running = begin(&place, &[folder.path()]);
    killer.is_after(&running);
    let mut attempts = BTreeMap::<String, BTreeSet<(u32, String)>>::new();
    let mut is_wanted = true;
    loop {
        if running.process.try_wait().unwrap().is_some() {
            running = begin(&place, &[folder.path()]);
        }
        let answer = runtime.client.list_containers(ListContainersRequest::default()).await.unwrap();
        let containers = answer.into_inner().containers;
        for name in ["init", "main"] {
            let own = containers.iter().filter(|it| it.metadata.as_ref().unwrap().name == name);
            let is_running =
                |it: &&_| ContainerState::ContainerRunning == probeshim::cri::v1::Container::state(it);
            assert!(
                own.clone().filter(is_running).count() <= 1,
                "{at:?}: {name} runs twice: {containers:#?}"
            );
            let own = own.map(|it| (it.metadata.as_ref().unwrap().attempt, it.id.clone()));
            attempts.entry(name.to_owned()).or_default().extend(own);
        }
        let is_restarted = containers.iter().any(|it| {
            it.state() == ContainerState::ContainerRunning
                && it.metadata.as_ref().is_some_and(|it| it.name == "main" && it.attempt > 0)
        });
        if is_wanted && is_restarted && fs::read_to_string(place.at("starts")).unwrap().lines().count() > 1 {
            folder.remove("a.yaml");
            is_wanted = false;
        }
        if !is_wanted && sandboxes(&mut runtime).await == 0 && no_files(&place) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (name, attempts) in attempts {
        let numbers: BTreeSet<u32> = attempts.iter().map(|(attempt, _)| *attempt).collect();
        assert_eq!(numbers.len(), attempts.len(), "{at:?}: two of {name} have one attempt: {attempts:?}");
    }
    // The process may have been killed at its last call.
    if running.process.try_wait().unwrap().is_none() {
        running.signal(Signal::TERM);
        running.ended().await;
    }
    is_clean(&place, runtime).await;
    drain.cancel();
    soon(relay.ended()).await.unwrap();
    let count = fs::read_to_string(place.at("starts")).unwrap().lines().count();
    assert!((2..=3).contains(&count), "{at:?}: the container was started {count} times");
    killer.walk(killer.asked.load(Ordering::SeqCst))
}

fn no_files(place: &Place) -> bool {
    fs::read_dir(place.at("state/pods")).is_ok_and(|mut left| left.next().is_none())
}

/// Runs walks, several at the same time. The number of calls in a walk depends on the number of
/// probe attempts, and so on the machine: a moment that a walk does not reach kills no process.
/// Every walk has at least `sure` calls.
async fn all(walks: impl Iterator<Item = impl Future<Output = Walk>>, sure: usize) {
    let walked: Vec<Walk> = iter(walks).buffer_unordered(AT_ONCE).collect().await;
    let killed = walked.iter().filter(|walk| walk.has_killed).count();
    // The process is killed before and after each of these calls.
    assert!(killed >= 2 * sure, "{killed} of {}", walked.len());
}

/// Returns both moments of each of `calls` calls.
fn moments(calls: usize) -> impl Iterator<Item = Moment> {
    (1..=calls).flat_map(|call| [Moment::Asked(call), Moment::Answered(call)])
}

#[tokio::test]
async fn a_played_pod_ends_properly_whenever_probeshim_is_killed() {
    let Walk { calls, .. } = walk(None).await;
    assert!(calls > 10, "{calls}");
    all(moments(calls).map(|moment| soon(walk(Some(moment)))), 10).await;
}

/// Lets a client create a pod whose container is restarted because its probe fails at first.
/// probeshim is killed at the moment `at`, and started again; then the client stops the container.
/// Only calls before that stop are counted.
async fn walk_of_client(at: Option<Moment>) -> Walk {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("procrun.sock"));
    let killer = Arc::new(Killer { at, ..Killer::default() });
    let (relay, _claim, drain) = killer.clone().between(&place);
    let mut running = keeping::start(&place).await;
    let mut owner = Owner::of(place);
    let starts = owner.place.at("starts");
    let script = format!("echo >> {}; {POLITE}", starts.display());
    let probe = keeping::liveness(&format!("[ $(wc -l < {}) -ne 1 ]", starts.display()));
    owner.pod("a", &script, &[("liveness.main", &probe)]).await;
    killer.is_after(&running);
    let restarted = loop {
        if running.process.try_wait().unwrap().is_some() {
            running = keeping::start(&owner.place).await;
            owner = Owner::of(owner.place);
        }
        // The runtime is queried directly, because the relay may be gone.
        let mut direct = Owner { client: runtime.client.clone(), place: owner.place };
        let containers = direct.containers("a").await;
        owner = Owner { client: owner.client, place: direct.place };
        let running: Vec<_> = containers.iter().filter(|it| keeping::is_running(it)).collect();
        assert!(running.len() <= 1, "{at:?}: the container runs twice: {containers:#?}");
        let numbers: BTreeSet<u32> = containers.iter().map(keeping::attempt).collect();
        assert_eq!(
            numbers.len(),
            containers.len(),
            "{at:?}: two containers have the same attempt: {containers:#?}"
        );
        let again = running.iter().find(|it| keeping::attempt(it) > 0).map(|it| it.id.clone());
        let count = fs::read_to_string(&starts).unwrap_or_default().lines().count();
        if let Some(id) = again.filter(|_| count > 1) {
            break id;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let calls = killer.asked.load(Ordering::SeqCst);
    killer.victim.store(0, Ordering::SeqCst);
    let request = StopContainerRequest { container_id: restarted, timeout: 2 };
    while let Err(status) = owner.client.stop_container(request.clone()).await {
        // Only a kill of probeshim explains a failed call.
        assert_eq!(running.ended().await, None, "{at:?}: {status}");
        running = keeping::start(&owner.place).await;
        owner = Owner::of(owner.place);
    }
    owner.is_let_go("a").await;
    owner.another_is_restarted("last").await;
    assert!(
        !owner.containers("a").await.iter().any(keeping::is_running),
        "{at:?}: a container runs after its client stopped it"
    );
    keeping::end(running, owner, runtime).await;
    drain.cancel();
    soon(relay.ended()).await.unwrap();
    killer.walk(calls)
}

#[tokio::test]
async fn a_client_container_is_restarted_whenever_probeshim_is_killed() {
    let Walk { calls, .. } = walk_of_client(None).await;
    assert!(calls >= 4, "{calls}");
    all(moments(calls).map(|moment| soon(walk_of_client(Some(moment)))), 3).await;
}

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
    let mut running = keeping::start(&place).await;
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
    running = keeping::start(&owner.place).await;
    owner.runs("a", 1).await;
    keeping::end(running, owner, runtime).await;
}

/// Running pods are adopted with the same containers. A pod that is not in the manifests of the
/// next run is reported and left alone until `--prune` removes it.
#[tokio::test]
async fn running_pods_are_adopted_and_unmatched_pods_are_removed_with_prune() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    folder.write("a.yaml", &pod("a", POLITE, "", ""));
    let mut owner = Owner { client: runtime.client.clone(), place: Place::new() };
    let mut running = start(&place, folder.path()).await;
    let first = owner.runs("a", 0).await;
    for _ in 0..2 {
        running.signal(Signal::KILL);
        running.ended().await;
        running = start(&place, folder.path()).await;
        // The running container is the one that ran before.
        let shown = until_shown(&place, &["status"], |status| {
            let container =
                &status["pods"].as_array()?.iter().find(|pod| pod["name"] == "a")?["containers"][0];
            (container["state"] == "running").then(|| container["id"].as_str().unwrap().to_owned())
        });
        assert_eq!(shown.await, first.id);
        assert_eq!(owner.runs("a", 0).await.id, first.id);
    }
    running.signal(Signal::KILL);
    running.ended().await;
    let other = place.at("b.yaml");
    fs::write(&other, pod("b", POLITE, "", "")).unwrap();
    running = start(&place, other.to_str().unwrap()).await;
    let told = "pod test/a (uid ";
    until_shown(&place, &["events"], |events| {
        let is_it = |event: &serde_json::Value| {
            let message = event["message"].as_str().unwrap_or_default();
            message.starts_with(told) && message.ends_with("is left alone; --prune removes it")
        };
        events.as_array()?.iter().any(is_it).then_some(())
    })
    .await;
    owner.runs("b", 0).await;
    assert_eq!(owner.runs("a", 0).await.id, first.id);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    assert_eq!(owner.runs("a", 0).await.id, first.id, "the unmatched pod must stay when play ends");
    running = begin(&place, &[other.to_str().unwrap(), "--prune"]);
    soon(async {
        while !owner.containers("a").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    owner.runs("b", 0).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    assert_eq!(sandboxes(&mut runtime).await, 0);
    is_clean(&place, runtime).await;
}
