//! A stand-in for the kubelet: pods are given, on a bare runtime, the life that a kubelet would give them.
//!
//! ```text
//! files ──► read ──► spec ──► configs ┐
//!                      │              ▼
//!                      └──────► pod (a worker each) ──► runtime, through the relay
//!                                 ▲   ▲        └──► standing ──► admin
//!                    runtime, PLEG┘   └ prober
//! ```

mod adoption;
mod backoff;
mod cast;
mod condemned;
mod configs;
mod documents;
mod host;
mod kept;
mod kubelet;
mod logs;
mod means;
mod mounting;
mod node;
mod notice;
mod pleg;
mod pod;
mod quantity;
mod read;
mod seen;
mod spec;
mod standing;
mod subpath_mounts;
mod summary;
mod v1;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info};

use crate::cri::{MeteredChannel, RawClient, image_service, runtime_service};
use crate::probe::GRACE_PERIOD;
use crate::prober::{Executor, ProbeManager};
use crate::socket::SocketPath;
use crate::state::{Snapshot, StateError, StateStore, StateTable};
use crate::tap::{self, InternalCalls};
use adoption::{Memories, Strays, strays};
use backoff::Backoff;
use cast::{Cast, Player};
use condemned::Condemned;
use kubelet::Kubelet;
use logs::ContainerLogManager;
use means::{Means, Records};
use node::Node;
use pod::{Signals, Worker};
use spec::{Origin, Pod};
use subpath_mounts::SubPathMounts;

pub use documents::Documents;
pub use kept::{Act, Captured, Keeper, KeptPods, Key};
pub use logs::LogRotatePolicy;
pub use notice::{Notice, Witness};
pub use seen::is_after;
pub use standing::Standing;
pub use summary::Summary;
pub use v1::{Condition, ContainerState, ContainerStatus, PodStatus};

/// From one look at the documents to the next.
const LOOK: Duration = Duration::from_secs(2);

/// What it takes to play.
#[derive(Debug)]
pub struct Parts {
    /// Where containers are made and started: the relay.
    pub acts: SocketPath,
    /// The runtime, for what is only asked.
    pub asks: MeteredChannel,
    /// Has commands executed and containers stopped.
    pub executor: Executor,
    /// Knows what clients have done.
    pub watched: InternalCalls,
    /// Who makes probes, if anybody does.
    pub prober: Option<ProbeManager>,
    /// Where the logs of pods are.
    pub logs: PathBuf,
    /// Whether they stay there.
    pub keeps_logs: bool,
    /// Limits of the logs of containers, where pods of manifests are played.
    pub log_rotation: LogRotatePolicy,
    /// Where the files of pods are.
    pub pods: PathBuf,
    /// Knows what clients have made.
    pub keeper: Keeper,
    /// What outlives us, and what was there of it.
    pub state: (StateStore, Snapshot),
    /// What is played: files and folders.
    pub paths: BTreeSet<PathBuf>,
    /// Whether pods of before that nobody wants any more are removed.
    pub prunes: bool,
    /// Who is told what happens.
    pub witness: Arc<dyn Witness>,
}

/// Plays pods. Copies share it.
#[derive(Clone, Debug)]
pub struct Play {
    means: Arc<Means>,
    cast: Arc<Cast>,
    prunes: bool,
    log_rotation: LogRotatePolicy,
}

/// Which pod's worker has ended, and whether nothing of it is left.
type Ended = (String, bool);

impl Play {
    /// Something to play with. Nothing is played yet.
    pub fn new(parts: Parts) -> Result<Self, StateError> {
        let Parts {
            acts,
            asks,
            executor,
            watched,
            prober,
            logs,
            keeps_logs,
            log_rotation,
            pods,
            keeper,
            state: (state, kept),
            paths,
            prunes,
            witness,
        } = parts;
        let means = Means {
            acts: runtime_service(&acts),
            images: image_service(&acts),
            sender: RawClient::new(&acts),
            asks: asks.client(),
            upstream: asks.socket().clone(),
            executor,
            prober,
            node: Node::here(logs, keeps_logs, pods, state.folder().display().to_string()),
            crashes: Backoff::kept(&kept, (&state, StateTable::RestartBackoff))?,
            pulls: Backoff::kept(&kept, (&state, StateTable::ImageBackoff))?,
            condemned: Condemned::new(&kept, state.clone())?,
            subpath_mounts: SubPathMounts::new(&kept, state.clone())?,
            memories: Memories::new(&kept, state.clone(), paths)?,
            kubelet: Kubelet::new(&kept, state.clone())?,
            keeper,
            state,
            witness,
            watched,
            runtime_name: OnceCell::new(),
            records: Records::default(),
        };
        if means.kubelet.is_there() {
            means.witness.held();
        }
        Ok(Self { means: Arc::new(means), cast: Arc::new(Cast::new()), prunes, log_rotation })
    }

    /// Plays what documents say, and what they say from then on, until it is told to end; then ends all pods, and removes them. Tells whether
    /// all of them are gone.
    pub async fn run(&self, mut documents: Documents, end: CancellationToken) -> bool {
        let (mut workers, mut is_clean) = (JoinSet::new(), true);
        let looking = tokio::spawn(pleg::run(self.means.clone(), self.cast.clone()));
        let logs = ContainerLogManager::new(self.means.clone(), self.cast.clone(), self.log_rotation);
        let _rotating = AbortOnDropHandle::new(tokio::spawn(logs.run()));
        let mut trouble = self.means.state.write_error();
        self.means.unmount_stale().await;
        let telling = tokio::spawn(mounting::tell(self.means.clone()));
        let wanted = documents.pods();
        self.end_all(self.means.memories.to_be_ended(&wanted), &mut workers);
        let mut finding = JoinSet::new();
        finding.spawn(strays(self.means.clone(), wanted.clone()));
        self.want(wanted, &mut workers);
        let mut looks = Instant::now() + LOOK;
        while !end.is_cancelled() {
            tokio::select! {
                () = end.cancelled() => {}
                Some(ended) = workers.join_next() => is_clean &= self.ended(ended, &mut workers),
                Some(Ok(found)) = finding.join_next() => self.found(found, &mut workers),
                Ok(()) = trouble.changed() => self.troubled(trouble.borrow_and_update().as_deref()),
                () = sleep_until(looks) => {
                    let (now, has_changed) = documents.look().await;
                    documents = now;
                    if has_changed {
                        let pods = documents.pods();
                        // Those that are about to end are probed until then.
                        let told = documents.specs_beside(&self.cast.all_but(&pods));
                        if let Some(prober) = &self.means.prober {
                            // Before there is anything to probe by them.
                            prober.set_specs(told.clone());
                        }
                        self.means.witness.specified(told);
                        self.want(pods, &mut workers);
                    }
                    let [problems, solved] = documents.news();
                    for problem in problems {
                        self.means.witness.problem(problem);
                    }
                    for problem in solved {
                        self.means.witness.solved(problem);
                    }
                    looks = Instant::now() + LOOK;
                }
            }
        }
        self.want(Vec::new(), &mut workers);
        while let Some(ended) = workers.join_next().await {
            is_clean &= self.ended(ended, &mut workers);
        }
        looking.abort();
        telling.abort();
        is_clean
    }

    /// Keeps alive what clients have made, as that changes, until it is told to end. Nothing is ended then.
    pub async fn keep(&self, mut kept: watch::Receiver<Arc<KeptPods>>, end: CancellationToken) {
        let mut workers = JoinSet::new();
        let looking = AbortOnDropHandle::new(tokio::spawn(pleg::run(self.means.clone(), self.cast.clone())));
        let mut trouble = self.means.state.write_error();
        loop {
            let pods = kept.borrow_and_update().all();
            self.want(pods, &mut workers);
            tokio::select! {
                () = end.cancelled() => break,
                Ok(()) = kept.changed() => {}
                Ok(()) = trouble.changed() => self.troubled(trouble.borrow_and_update().as_deref()),
                Some(ended) = workers.join_next() => drop(self.ended(ended, &mut workers)),
            }
        }
        drop(looking);
    }

    /// Tells that the state cannot be written, or can be written again.
    fn troubled(&self, reason: Option<&str>) {
        let what = "--state-dir: the state cannot be written, and probeshim retries";
        match reason {
            Some(reason) => self.means.witness.troubled(Some(format!("{what}: {reason}"))),
            None => self.means.witness.troubled(None),
        }
    }

    /// Pods of before have been found that nobody wants any more.
    fn found(&self, Strays { mut there, gone }: Strays, workers: &mut JoinSet<Ended>) {
        // They may have come to be wanted since.
        there.retain(|pod| !self.cast.lock().values().any(|player| player.pods.borrow().uid == pod.uid));
        if self.prunes {
            self.end_all(there, workers);
        } else {
            for pod in there {
                let (name, uid) = (pod.full_name(), &pod.uid);
                self.means.witness.problem(format!(
                    "pod {name} (uid {uid}) was played before, and no manifest has it any more: it is left as it is; --prune removes it"
                ));
            }
        }
        // Files may be left of them.
        self.end_all(gone, workers);
    }

    /// Ends pods of before.
    fn end_all(&self, pods: Vec<Arc<Pod>>, workers: &mut JoinSet<Ended>) {
        for pod in pods {
            let name = pod.key();
            if self.cast.lock().contains_key(&name) {
                continue;
            }
            let player = self.begin(pod, workers);
            player.signals.end.cancel();
            self.cast.lock().insert(name, player);
        }
    }

    /// These pods are to be, and no others.
    fn want(&self, pods: Vec<Arc<Pod>>, workers: &mut JoinSet<Ended>) {
        let mut wanted: BTreeMap<String, Arc<Pod>> = pods.into_iter().map(|pod| (pod.key(), pod)).collect();
        let mut players = self.cast.lock();
        for (name, player) in &mut *players {
            let pod = wanted.remove(name);
            let known = player.pods.borrow().clone();
            match pod {
                Some(pod) if pod.uid == known.uid && !player.signals.end.is_cancelled() => {
                    player.next.clear();
                    if pod != known {
                        if !pod.is_kept() {
                            info!(pod = name, "the manifest of a pod has changed");
                        }
                        player.pods.send_replace(pod);
                    }
                }
                // A static pod that is written otherwise is another pod: the one goes, then the other comes.
                next => {
                    player.next = Vec::from_iter(next);
                    player.signals.end.cancel();
                }
            }
        }
        for (name, pod) in wanted {
            // Everything of a pod is known by its uid, so that two of one cannot be there together.
            let is_it = |player: &&mut Player| {
                let known = player.pods.borrow();
                let is_named = known.origin == Origin::Before && known.full_name() == pod.full_name();
                !pod.is_kept() && (known.uid == pod.uid || is_named)
            };
            let other = players.values_mut().find(is_it);
            if let Some(player) = other {
                player.next.push(pod);
            } else {
                let player = self.begin(pod, workers);
                players.insert(name, player);
            }
        }
        drop(players);
        self.cast.changed.send_replace(());
    }

    /// Begins to play a pod.
    fn begin(&self, pod: Arc<Pod>, workers: &mut JoinSet<Ended>) -> Player {
        let (name, signals) = (pod.key(), Arc::new(Signals::default()));
        let started = match pod.origin {
            Origin::Manifest => self.means.memories.begin(&pod),
            Origin::Before | Origin::Relay { .. } => SystemTime::now(),
        };
        let (standings, standing) = watch::channel(Standing::new(pod.clone(), started));
        let (pods, wanted) = watch::channel(pod);
        let worker = Worker::new(self.means.clone(), wanted, signals.clone(), standings);
        let (mut changes, cast) = (standing.clone(), self.cast.clone());
        workers.spawn(async move {
            let mut run = std::pin::pin!(AssertUnwindSafe(worker.run()).catch_unwind());
            loop {
                tokio::select! {
                    ended = &mut run => return (name, ended.unwrap_or(false)),
                    Ok(()) = changes.changed() => cast.changed.send_replace(()),
                }
            }
        });
        Player { pods, signals, standing, next: Vec::new() }
    }

    /// A worker has ended. Tells whether its pod is gone.
    fn ended(&self, ended: Result<Ended, JoinError>, workers: &mut JoinSet<Ended>) -> bool {
        let Ok((name, is_gone)) = ended else { return false };
        if !is_gone {
            error!(pod = name, "a pod is not played any more, and containers or files of it are left");
        }
        let mut players = self.cast.lock();
        for next in players.remove(&name).map(|player| player.next).unwrap_or_default() {
            let name = next.key();
            let player = self.begin(next, workers);
            players.insert(name, player);
        }
        drop(players);
        self.cast.changed.send_replace(());
        is_gone
    }

    /// The longest that any of the pods may take for its end.
    #[must_use]
    pub fn longest_grace_period(&self) -> Duration {
        let players = self.cast.lock();
        let periods = players
            .values()
            .map(|player| player.pods.borrow().spec.termination_grace_period.unwrap_or(GRACE_PERIOD));
        Duration::from_secs(periods.max().unwrap_or(0).into())
    }

    /// What is being ended is ended at once.
    pub fn hurry(&self) {
        for player in self.cast.lock().values() {
            player.signals.hurry.cancel();
        }
    }

    /// How all pods stand, by their namespaces and names.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        let standing = |player: &Player| Standing {
            is_unwanted: player.signals.end.is_cancelled(),
            ..player.standing.borrow().clone()
        };
        self.cast.lock().values().map(standing).collect()
    }

    /// All pods as a kubelet tells of them.
    #[must_use]
    pub fn to_json(&self) -> Vec<Value> {
        let redacts = self.means.executor.redacts();
        let node = &self.means.node.name;
        self.standings().iter().map(|standing| standing.to_json(node, redacts)).collect()
    }

    /// Changes with each of them.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.cast.changed.subscribe()
    }

    /// Whether a pod is one that is played.
    #[must_use]
    pub fn has(&self, pod: &tap::PodRef) -> bool {
        self.cast.with(pod, |_| ()).is_some()
    }

    /// Something has happened to a pod that it should look at.
    pub fn wake(&self, pod: &tap::PodRef) {
        self.cast.with(pod, |player| player.signals.wake.notify_one());
    }

    /// A kubelet has been seen to use the runtime.
    pub fn kubelet_seen(&self) {
        if self.means.kubelet.see() {
            self.means.witness.held();
        }
    }

    /// Whether nothing is started or ended, because a kubelet is there.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.means.kubelet.is_there()
    }
}
