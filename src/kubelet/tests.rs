//! Phases of pod workers, with a runtime in memory.

mod fake_runtime;

use super::*;
use crate::cri::MeteredChannel;
use crate::manifest::pod::Deletion;
use crate::manifest::reader::tests::pod;
use crate::relay::CallIds;
use crate::tap::{Tap, TapConfig, TapMetrics};
use fake_runtime::FakeRuntime;

/// A source whose pods the test sets.
struct TestSource(watch::Receiver<Vec<Arc<Pod>>>);

impl PodSource for TestSource {
    const OWNER: PodOwner = PodOwner::Kubelet;

    fn desired(&mut self) -> DesiredPods {
        DesiredPods { pods: self.0.borrow_and_update().clone(), ..DesiredPods::default() }
    }

    async fn changed(&mut self) {
        self.0.changed().await.unwrap();
    }
}

/// The built-in kubelet on a runtime in memory.
struct Node {
    kubelet: Kubelet,
    runtime: FakeRuntime,
    pods: watch::Sender<Vec<Arc<Pod>>>,
    end: CancellationToken,
    run: tokio::task::JoinHandle<bool>,
    _dir: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), FakeRuntime::default());
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        runtime.serve(&at("runtime.sock"));
        let socket = SocketPath::new(&at("runtime.sock")).unwrap();
        let channel = MeteredChannel::new(&socket);
        let (tap, _decoder) = Tap::new(TapConfig::default(), TapMetrics::default());
        let (state, snapshot) = StateStore::open(&at("state")).unwrap();
        let kubelet = Kubelet::new(KubeletConfig {
            relay_socket: socket,
            executor: Executor::new(channel.client(), None, false),
            runtime: channel,
            internal_calls: tap.internal_calls(CallIds::starting_at(1)),
            prober: None,
            logs: at("logs"),
            keep_logs: false,
            log_rotation: LogRotatePolicy::default(),
            pods: at("pods"),
            client_pods: ClientPods::new(&snapshot, state.clone()).unwrap(),
            state,
            snapshot,
            paths: BTreeSet::new(),
            prune: false,
            events: Arc::default(),
            spec_updates: None,
        });
        let (kubelet, end) = (kubelet.unwrap(), CancellationToken::new());
        let (pods, source) = watch::channel(Vec::new());
        let (running, until) = (kubelet.clone(), end.clone());
        let run = tokio::spawn(async move { running.run(TestSource(source), until).await });
        Self { kubelet, runtime, pods, end, run, _dir: dir }
    }

    /// Waits until a pod is published so. Returns its status.
    async fn until(&self, name: &str, is_it: impl Fn(&PublishedPod) -> bool) -> PublishedPod {
        let mut changes = self.kubelet.changes();
        loop {
            let pods = self.kubelet.published_pods();
            if let Some(published) = pods.into_iter().find(|it| it.names().1 == name && is_it(it)) {
                return published;
            }
            changes.changed().await.unwrap();
        }
    }

    /// Waits until the containers of pods were stopped with these timeouts.
    async fn until_stopped(&self, expected: &[(&str, i64)]) {
        let expected: Vec<_> = expected.iter().map(|(pod, timeout)| ((*pod).to_owned(), *timeout)).collect();
        loop {
            let stops = self.runtime.stops();
            assert!(expected.starts_with(&stops), "{stops:?}, not {expected:?}");
            if stops == expected {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn named(name: &str, deletion: Option<u32>) -> Arc<Pod> {
    let deletion = deletion.map(|seconds| Deletion { grace_period: Some(seconds) });
    let pod = pod(
        "{terminationGracePeriodSeconds: 7200, containers: [{name: main, image: i, imagePullPolicy: Never}]}",
    );
    Arc::new(Pod { name: name.to_owned(), uid: format!("uid-of-{name}"), deletion, ..pod })
}

fn is_running(published: &PublishedPod) -> bool {
    published.phase() == WorkerPhase::Syncing
        && published.status().is_some_and(|status| status.phase == "Running")
}

#[tokio::test]
async fn the_grace_period_of_a_terminating_pod_only_shrinks_and_its_final_status_stays() {
    let node = Node::start();
    node.pods.send_replace(vec![named("a", None)]);
    node.until("a", is_running).await;
    node.pods.send_replace(vec![named("a", Some(3600))]);
    node.until_stopped(&[("a", 3600)]).await;
    node.until("a", |it| it.phase() == WorkerPhase::Terminating).await;
    // A longer period changes nothing: by the time another pod of the same update runs, it has been applied.
    node.pods.send_replace(vec![named("a", Some(7000)), named("b", None)]);
    node.until("b", is_running).await;
    node.pods.send_replace(vec![named("a", Some(600)), named("b", None)]);
    node.until_stopped(&[("a", 3600), ("a", 600)]).await;
    node.pods.send_replace(vec![named("a", Some(0)), named("b", None)]);
    node.until_stopped(&[("a", 3600), ("a", 600), ("a", 2)]).await;
    let ended = node.until("a", |it| it.removed().is_some()).await;
    assert_eq!(ended.phase(), WorkerPhase::Terminated);
    let status = ended.status().unwrap();
    let exit_code = status.container_statuses[0].state.terminated.as_ref().map(|ended| ended.exit_code);
    assert_eq!((status.phase, exit_code), ("Failed", Some(137)));
    // A pod that is being deleted does not start again.
    node.pods.send_replace(vec![named("a", Some(0)), named("b", None), named("c", None)]);
    node.until("c", is_running).await;
    assert_eq!(node.runtime.created(), 3);
    // Another pod of its name takes its place.
    let again = Arc::new(Pod { uid: "another".to_owned(), ..Pod::clone(&named("a", None)) });
    node.pods.send_replace(vec![again]);
    node.until("a", |it| is_running(it) && it.uid() == "another").await;
    assert_eq!(node.kubelet.published_pods().iter().filter(|it| it.names().1 == "a").count(), 1);
    node.end.cancel();
    while !node.run.is_finished() {
        node.kubelet.force_terminate();
        tokio::task::yield_now().await;
    }
    assert!(node.run.await.unwrap() && node.runtime.is_empty());
}
