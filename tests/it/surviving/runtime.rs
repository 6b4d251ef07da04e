//! procrun is killed at each call of `play`, alone or with `play` in turn: pods are restarted, and
//! end properly.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixtures::wait::soon;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use probeshim::cri::v1::{ContainerState, ListContainersRequest, ListPodSandboxRequest};
use probeshim::cri::{MethodName, runtime_client};
use probeshim::relay::{self, CallIds, CapturePlan, CompletedCall, Observer, Relay};
use probeshim::socket::{BindMode, BoundPath, SocketPath, bind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{ACTS, AT_ONCE, Moment, moments};
use crate::playing::{POLITE, begin, pod};
use crate::procrun::processes_of;
use crate::program::{Place, Running};

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Play,
    Procrun,
}

/// Moments at which processes are killed, in order.
type Plan = Vec<(Moment, Who)>;

/// Observer that counts calls to procrun, and kills processes by a plan.
#[derive(Debug, Default)]
struct Killer {
    plan: Plan,
    /// Pids of the running processes.
    pids: Mutex<BTreeMap<u8, Pid>>,
    asked: AtomicUsize,
    answered: AtomicUsize,
    killed: AtomicUsize,
}

impl Killer {
    /// Starts a relay in front of procrun.
    fn between(self: Arc<Self>, place: &Place) -> (Relay, Option<BoundPath>, CancellationToken) {
        let upstream = SocketPath::new(&place.at("procrun.sock")).unwrap();
        let listening =
            bind(&SocketPath::new(&place.at("runtime.sock")).unwrap(), BindMode::OwnerOnly).unwrap();
        let settings = relay::RelayConfig { upstream, drain_timeout: Duration::ZERO };
        let (numbers, drain) = (CallIds::starting_at(1), CancellationToken::new());
        let relay = Relay::start(
            listening.listener,
            settings,
            self,
            Arc::new(relay::NoPolicy),
            relay::RelayMetrics::default(),
            numbers,
            drain.clone(),
        );
        (relay.unwrap(), listening.claim, drain)
    }

    fn knows(&self, who: Who, running: &Running) {
        self.pids.lock().unwrap().insert(who as u8, Pid::from_child(&running.process));
    }

    fn now(&self, moment: Moment) {
        for (_, who) in self.plan.iter().filter(|(at, _)| *at == moment) {
            // The pid of a killed process is forgotten, because the kernel may reuse it.
            if let Some(pid) = self.pids.lock().unwrap().remove(&(*who as u8)) {
                kill_process(pid, Signal::KILL).unwrap();
                self.killed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

impl Observer for Killer {
    fn capture_plan(&self, method: &MethodName) -> CapturePlan {
        if ACTS.contains(&method.label()) {
            self.now(Moment::Asked(self.asked.fetch_add(1, Ordering::SeqCst) + 1));
        }
        CapturePlan::default()
    }

    fn on_end(&self, call: CompletedCall) {
        if ACTS.contains(&call.info.method.label()) {
            self.now(Moment::Answered(self.answered.fetch_add(1, Ordering::SeqCst) + 1));
        }
    }
}

async fn start_procrun(place: &Place) -> Running {
    let log = place.at("procrun.log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("runtime").arg("--listen").arg(place.at("procrun.sock")).arg("--root").arg(place.at("root"));
    let process = command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let running = Running { process, socket: place.at("procrun.sock"), log };
    running.logged("procrun started").await;
    running
}

/// Result of a walk.
struct Walk {
    /// Number of calls.
    calls: usize,
    killed: usize,
}

/// Returns the containers of procrun, or none if procrun does not run.
async fn containers(place: &Place) -> Vec<probeshim::cri::v1::Container> {
    let mut client = runtime_client(&SocketPath::new(&place.at("procrun.sock")).unwrap());
    let listed = client.list_containers(ListContainersRequest::default()).await;
    listed.map(|listed| listed.into_inner().containers).unwrap_or_default()
}

/// Returns the pod's restart count in `play` once `play` reports that this container runs.
async fn restarts(place: &Place, container: &str) -> Option<u64> {
    let answer = place.ask(&["status", "-o", "json"]).await;
    let status: Value = serde_json::from_str(&answer.stdout).ok()?;
    let pod = &status["pods"][0];
    let runs = |it: &Value| it["id"] == container && it["state"] == "running";
    pod["containers"].as_array()?.iter().any(runs).then(|| pod["restarts"].as_u64())?
}

/// Plays a pod until its main container runs after all kills of the plan, and then ends `play`.
/// Killed processes are started again.
async fn walk(plan: Plan) -> Walk {
    let place = Place::new();
    let mut procrun = start_procrun(&place).await;
    let killer = Arc::new(Killer { plan: plan.clone(), ..Killer::default() });
    let (relay, _claim, drain) = killer.clone().between(&place);
    let [starts, twice] = ["starts", "twice"].map(|name| place.at(name).display().to_string());
    // Each container records the earlier ones that still run.
    let script = format!(
        "for it in $(cat {starts}); do grep -qs 'State:.[RSDT]' /proc/$it/status && echo $it >> {twice}; done; \
         echo $$ >> {starts}; {POLITE}"
    );
    fs::write(&starts, "").unwrap();
    let init = ", initContainers: [{name: init, image: i, command: ['true']}]";
    fs::write(place.at("pods.yaml"), pod("a", &script, init, "")).unwrap();
    let manifests = place.at("pods.yaml");
    let mut player = begin(&place, &[manifests.to_str().unwrap()]);
    killer.knows(Who::Procrun, &procrun);
    killer.knows(Who::Play, &player);
    let mut attempts = BTreeSet::<(u32, String)>::new();
    let mut is_ending = false;
    loop {
        if procrun.process.try_wait().unwrap().is_some() {
            procrun = start_procrun(&place).await;
            killer.knows(Who::Procrun, &procrun);
        }
        if let Some(status) = player.process.try_wait().unwrap() {
            if is_ending && status.code().is_some() {
                assert_eq!(status.code(), Some(143), "{plan:?}");
                break;
            }
            player = begin(&place, &[manifests.to_str().unwrap()]);
            killer.knows(Who::Play, &player);
            is_ending = false;
        }
        let running: Vec<_> = containers(&place)
            .await
            .into_iter()
            .filter(|it| it.state() == ContainerState::ContainerRunning)
            .filter(|it| it.metadata.as_ref().unwrap().name == "main")
            .collect();
        assert!(running.len() <= 1, "{plan:?}: main runs twice: {running:#?}");
        attempts.extend(running.iter().map(|it| (it.metadata.as_ref().unwrap().attempt, it.id.clone())));
        let count = fs::read_to_string(&starts).unwrap().lines().count();
        if !is_ending
            && let [container] = &running[..]
            && let Some(restarts) = restarts(&place, &container.id).await
            && count > 0
        {
            let attempt = u64::from(container.metadata.as_ref().unwrap().attempt);
            assert_eq!(restarts, attempt, "{plan:?}: {attempts:?}");
            // A container that was killed when it started may not have recorded its start.
            assert!(count as u64 <= restarts + 1, "{plan:?}: {count} starts, {restarts} restarts");
            player.signal(Signal::TERM);
            is_ending = true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let numbers: BTreeSet<u32> = attempts.iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(numbers.len(), attempts.len(), "{plan:?}: two containers have the same attempt: {attempts:?}");
    assert!(!place.at("twice").exists(), "{plan:?}: a container started while the previous one ran");
    let mut client = runtime_client(&SocketPath::new(&place.at("procrun.sock")).unwrap());
    let left = client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    assert!(left.is_empty(), "{plan:?}: {left:#?}");
    assert_eq!(fs::read_dir(place.at("state/pods")).unwrap().count(), 0, "{plan:?}");
    procrun.signal(Signal::TERM);
    assert_eq!(procrun.ended().await, Some(0), "{plan:?}");
    assert_eq!(processes_of(&place.at("")), Vec::<String>::new(), "{plan:?}");
    drain.cancel();
    soon(relay.ended()).await.unwrap();
    Walk { calls: killer.asked.load(Ordering::SeqCst), killed: killer.killed.load(Ordering::SeqCst) }
}

/// Runs walks, several at the same time.
async fn all(plans: impl Iterator<Item = Plan>) -> Vec<Walk> {
    iter(plans.map(|plan| soon(walk(plan)))).buffer_unordered(AT_ONCE).collect().await
}

#[tokio::test]
async fn a_played_pod_is_restarted_and_ends_whenever_procrun_is_killed() {
    let Walk { calls, .. } = walk(Vec::new()).await;
    assert!(calls >= 10, "{calls}");
    let walks = all(moments(calls).map(|moment| vec![(moment, Who::Procrun)])).await;
    assert!(walks.iter().all(|walk| walk.killed == 1));
}

#[tokio::test]
async fn a_played_pod_is_restarted_and_ends_whenever_play_and_procrun_are_killed_in_turn() {
    let Walk { calls, .. } = walk(Vec::new()).await;
    let in_turn = |first, second| {
        (1..=calls).map(move |call| vec![(Moment::Asked(call), first), (Moment::Asked(call + 1), second)])
    };
    let walks = all(in_turn(Who::Play, Who::Procrun)).await;
    assert!(walks.iter().all(|walk| walk.killed == 2));
    // If procrun is killed while the pod ends, the pod ends with procrun: `play` makes no more
    // calls, and is not killed.
    let walks = all(in_turn(Who::Procrun, Who::Play)).await;
    assert!(walks.iter().filter(|walk| walk.killed == 2).count() >= 4);
}
