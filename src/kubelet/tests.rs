//! Phases of pod workers, with a runtime in memory.

mod admission;
mod fake_runtime;
mod image_volumes;
mod images;
mod probes;
mod user_namespaces;

use std::collections::BTreeSet;

use super::*;
use crate::cri::MeteredChannel;
use crate::events::{EventFilter, EventRecorder};
use crate::handler::Executor;
use crate::manifest::pod::{Deletion, HostNamespaces};
use crate::manifest::reader::tests::{pod, pod_set};
use crate::prober::ProbeManager;
use crate::relay::CallIds;
use crate::socket::SocketPath;
use crate::tap::{Tap, TapConfig, TapMetrics};
use fake_runtime::FakeRuntime;

/// A source whose pods and objects the test sets.
struct TestSource {
    pods: watch::Receiver<Vec<Arc<Pod>>>,
    objects: watch::Receiver<Arc<ConfigObjects>>,
}

impl PodSource for TestSource {
    const OWNER: PodOwner = PodOwner::Kubelet;

    fn desired(&mut self) -> DesiredPods {
        let (pods, objects) = (self.pods.borrow_and_update().clone(), self.objects.borrow().clone());
        DesiredPods { pods, objects, ..DesiredPods::default() }
    }

    async fn changed(&mut self) {
        self.pods.changed().await.unwrap();
    }
}

/// The built-in kubelet on a runtime in memory.
struct Node {
    kubelet: Kubelet,
    runtime: FakeRuntime,
    events: Arc<EventRecorder>,
    pods: watch::Sender<Vec<Arc<Pod>>>,
    /// Objects that are read with the next pods.
    objects: watch::Sender<Arc<ConfigObjects>>,
    end: CancellationToken,
    run: tokio::task::JoinHandle<bool>,
    dir: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        Self::start_with(|_| None)
    }

    fn start_with(prober: impl FnOnce(&Arc<EventRecorder>) -> Option<ProbeManager>) -> Self {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), FakeRuntime::default());
        let events = Arc::<EventRecorder>::default();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        runtime.serve(&at("runtime.sock"));
        let socket = SocketPath::new(&at("runtime.sock")).unwrap();
        let channel = MeteredChannel::new(&socket);
        let (tap, _decoder) = Tap::new(TapConfig::default(), TapMetrics::default());
        let deps = KubeletDeps {
            executor: Executor::new(channel.client(), None, false),
            runtime: channel,
            internal_calls: tap.internal_calls(CallIds::starting_at(1)),
            prober: prober(&events),
            events: events.clone(),
            spec_updates: None,
            store: ClientPodStore::open(&at("state")).unwrap(),
        };
        let dirs = PodDirs {
            logs: at("logs"),
            keep_logs: false,
            log_rotation: LogRotatePolicy::default(),
            pods: at("pods"),
        };
        let config = KubeletConfig { relay_socket: socket, dirs, paths: BTreeSet::new(), prune: false };
        let (mut kubelet, end) = (Kubelet::new(config, deps).unwrap(), CancellationToken::new());
        std::fs::write(at("resolv.conf"), "").unwrap();
        Arc::get_mut(&mut kubelet.context).unwrap().node.resolv_conf = at("resolv.conf");
        let (pods, pods_rx) = watch::channel(Vec::new());
        let (objects, objects_rx) = watch::channel(Arc::default());
        let source = TestSource { pods: pods_rx, objects: objects_rx };
        let (running, until) = (kubelet.clone(), end.clone());
        let run = tokio::spawn(async move { running.run(source, until).await });
        Self { kubelet, runtime, events, pods, objects, end, run, dir }
    }

    /// Waits until a pod is published in a state that `is_it` accepts. Returns its status.
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

    /// Waits until the containers of pods have been stopped with these timeouts, in order. Panics
    /// on any other stop.
    async fn until_stopped(&self, expected: &[(&str, i64)]) {
        let expected: Vec<_> = expected.iter().map(|(pod, timeout)| ((*pod).to_owned(), *timeout)).collect();
        loop {
            let changed = self.runtime.changed();
            let stops = self.runtime.stops();
            assert!(expected.starts_with(&stops), "{stops:?}, not {expected:?}");
            if stops == expected {
                return;
            }
            changed.await;
        }
    }

    /// Waits until these numbers of commands were executed and are in flight.
    async fn until_executed(&self, expected: (usize, usize)) {
        loop {
            let changed = self.runtime.changed();
            if self.runtime.execs() == expected {
                return;
            }
            changed.await;
        }
    }
}

/// Returns a pod, `a`, whose container has this hook.
fn hooked(hook: &str, deletion: Option<u32>) -> Arc<Pod> {
    let deletion = deletion.map(|seconds| Deletion { grace_period: Some(seconds) });
    let spec = format!(
        "{{containers: [{{name: main, image: i, imagePullPolicy: Never, lifecycle: {{{hook}: {{exec: {{command: [x]}}}}}}}}]}}"
    );
    Arc::new(Pod { name: "a".to_owned(), uid: "uid".to_owned(), deletion, ..pod(&spec) })
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
        && published.status().is_some_and(|status| status.phase() == "Running")
}

#[tokio::test]
async fn the_grace_period_of_a_terminating_pod_only_shrinks_and_its_final_status_stays() {
    let node = Node::start();
    node.pods.send_replace(vec![named("a", None)]);
    node.until("a", is_running).await;
    node.pods.send_replace(vec![named("a", Some(3600))]);
    node.until_stopped(&[("a", 3600)]).await;
    node.until("a", |it| it.phase() == WorkerPhase::Terminating).await;
    // A longer period changes nothing. It has been applied when another pod of the same update
    // runs.
    node.pods.send_replace(vec![named("a", Some(7000)), named("b", None)]);
    node.until("b", is_running).await;
    node.pods.send_replace(vec![named("a", Some(600)), named("b", None)]);
    node.until_stopped(&[("a", 3600), ("a", 600)]).await;
    node.pods.send_replace(vec![named("a", Some(0)), named("b", None)]);
    node.until_stopped(&[("a", 3600), ("a", 600), ("a", 2)]).await;
    let ended = node.until("a", |it| it.removed().is_some()).await;
    assert_eq!(ended.phase(), WorkerPhase::Terminated);
    let status = ended.status().unwrap();
    let exit_code =
        status.containers().next().and_then(|main| main.terminated()).map(|ended| ended.exit_code);
    assert_eq!((status.phase(), exit_code), ("Failed", Some(137)));
    // A pod that is being deleted does not start again.
    node.pods.send_replace(vec![named("a", Some(0)), named("b", None), named("c", None)]);
    node.until("c", is_running).await;
    assert_eq!(node.runtime.created(), 3);
    // Another pod of the same name replaces it.
    let again = Arc::new(Pod { uid: "another".to_owned(), ..Pod::clone(&named("a", None)) });
    node.pods.send_replace(vec![again]);
    node.until("a", |it| is_running(it) && it.uid() == "another").await;
    assert_eq!(node.kubelet.published_pods().iter().filter(|it| it.names().1 == "a").count(), 1);
    // Neither an override equal to the pod's own period nor a longer one stops the containers
    // again.
    node.pods.send_replace(Vec::new());
    let stops = [("a", 3600), ("a", 600), ("a", 2), ("b", 7200), ("c", 7200), ("a", 7200)];
    while !stops.iter().all(|(pod, timeout)| node.runtime.stops().contains(&((*pod).to_owned(), *timeout))) {
        node.runtime.changed().await;
    }
    node.kubelet.force_terminate();
    node.end.cancel();
    assert!(node.run.await.unwrap() && node.runtime.is_empty());
}

#[tokio::test]
async fn a_pod_waits_until_the_network_of_the_runtime_is_ready() {
    let node = Node::start();
    node.runtime.set_network_ready(false);
    let (_, mut events) = node.events.follow(&EventFilter::default());
    let in_host_network = Pod {
        host: HostNamespaces { network: true, ..HostNamespaces::default() },
        ..Pod::clone(&named("host", None))
    };
    node.pods.send_replace(vec![named("waits", None), Arc::new(in_host_network)]);
    node.until("host", is_running).await;
    let event = loop {
        let event = events.recv().await.unwrap();
        if event.reason == "NetworkNotReady" {
            break event;
        }
    };
    assert_eq!(event.pod.as_ref().and_then(|pod| pod.name.as_deref()), Some("waits"));
    let expected = "network is not ready: container runtime network not ready: \
                    NetworkReady=false reason: message:";
    assert_eq!((event.message.as_str(), node.runtime.created()), (expected, 1));
    node.runtime.set_network_ready(true);
    node.until("waits", is_running).await;
    node.kubelet.force_terminate();
    node.end.cancel();
    assert!(node.run.await.unwrap());
}

#[tokio::test]
async fn all_pods_share_the_state_of_the_runtime() {
    let node = Node::start();
    node.runtime.set_network_ready(false);
    let started = std::time::SystemTime::now();
    let (_, mut events) = node.events.follow(&EventFilter::default());
    let names = BTreeSet::from(["a", "b", "c"].map(str::to_owned));
    node.pods.send_replace(names.iter().map(|name| named(name, None)).collect());
    let mut waiting = BTreeSet::new();
    while waiting != names {
        let event = events.recv().await.unwrap();
        assert_eq!(event.reason, "NetworkNotReady");
        waiting.extend(event.pod.as_ref().and_then(|pod| pod.name.clone()));
    }
    // One update, unless this has taken so long that the next ones were due.
    let calls = node.runtime.status_calls() as u64;
    assert!((1..=1 + started.elapsed().unwrap().as_secs() / 5).contains(&calls), "{calls}");
    node.end.cancel();
    assert!(node.run.await.unwrap());
}

#[tokio::test]
async fn resolv_conf_of_the_node_is_read_for_each_sandbox() {
    let node = Node::start();
    let resolv_conf = node.dir.path().canonicalize().unwrap().join("resolv.conf");
    let (_, mut events) = node.events.follow(&EventFilter::default());
    let mut pods = Vec::new();
    for (name, server) in [("a", "192.0.2.1"), ("b", "192.0.2.2")] {
        std::fs::write(&resolv_conf, format!("nameserver {server}\n")).unwrap();
        pods.push(named(name, None));
        node.pods.send_replace(pods.clone());
        node.until(name, is_running).await;
        assert_eq!(node.runtime.sandbox_dns().last().unwrap().servers, [server]);
    }
    std::fs::remove_file(&resolv_conf).unwrap();
    pods.push(named("c", None));
    node.pods.send_replace(pods);
    let event = loop {
        let event = events.recv().await.unwrap();
        if event.reason == "FailedCreatePodSandBox" {
            break event;
        }
    };
    let expected =
        format!("Failed to create pod sandbox: open {}: no such file or directory", resolv_conf.display());
    assert_eq!(event.message, expected);
    node.kubelet.force_terminate();
    node.end.cancel();
    assert!(node.run.await.unwrap());
}

#[tokio::test]
async fn a_shortened_grace_period_ends_the_running_hook_and_starts_it_again() {
    let node = Node::start();
    let with = |deletion| vec![hooked("preStop", deletion)];
    node.pods.send_replace(with(None));
    node.until("a", is_running).await;
    node.pods.send_replace(with(Some(3600)));
    node.until_executed((1, 1)).await;
    node.pods.send_replace(with(Some(1800)));
    node.until_executed((2, 1)).await;
    assert_eq!(node.runtime.stops(), [], "the container is stopped after its hook");
    node.pods.send_replace(with(Some(0)));
    node.until("a", |it| it.removed().is_some()).await;
    node.end.cancel();
    assert!(node.run.await.unwrap() && node.runtime.is_empty());
}

/// The sync waits for a postStart hook that never ends.
#[tokio::test]
async fn a_sync_is_cancelled_if_the_pod_is_to_terminate() {
    let node = Node::start();
    let with = |deletion| vec![hooked("postStart", deletion)];
    node.pods.send_replace(with(None));
    node.until_executed((1, 1)).await;
    node.pods.send_replace(with(Some(0)));
    node.until_executed((1, 0)).await;
    node.until("a", |it| it.removed().is_some()).await;
    node.end.cancel();
    assert!(node.run.await.unwrap() && node.runtime.is_empty());
}

#[tokio::test]
async fn a_later_override_only_shortens_the_grace_period() {
    let signals = WorkerSignals::default();
    let mut periods = signals.grace_periods();
    for (requested, expected) in [
        (None, None),
        (Some(60), None),
        (Some(20), Some(20)),
        (Some(30), Some(20)),
        (Some(5), Some(5)),
        (None, Some(5)),
    ] {
        signals.request_termination(requested, 30);
        assert_eq!(*periods.borrow_and_update(), expected, "{requested:?}");
    }
    let signals = WorkerSignals::default();
    signals.request_termination(Some(60), 30);
    assert_eq!(
        *signals.grace_periods().borrow(),
        Some(60),
        "the first override may be longer than the pod's own"
    );
}

#[tokio::test]
async fn a_changed_object_wakes_the_pods_that_refer_to_it() {
    let node = Node::start();
    let with = |name: &str, map: &str| {
        let spec =
            format!("{{containers: [{{name: a, image: i, envFrom: [{{configMapRef: {{name: {map}}}}}]}}]}}");
        let handle = PodWorkerHandle {
            pod: watch::Sender::new(Arc::new(pod(&spec))),
            signals: Arc::default(),
            published: watch::channel(PublishedPod::new(Arc::new(pod(&spec)), SystemTime::now())).1,
            successors: Vec::new(),
        };
        let signals = handle.signals.clone();
        node.kubelet.pod_workers.lock().insert(name.to_owned(), handle);
        signals
    };
    let (changed, other) = (with("one", "changed"), with("two", "other"));
    let map = |name: &str, value: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: test}}, data: {{key: {value}}}}}"
        )
    };
    let objects =
        |value: &str| pod_set(&[map("changed", value), map("other", "x")].join("\n---\n")).unwrap().objects;
    node.kubelet.set_objects(&objects("first"));
    changed.sync.notified().await;
    other.sync.notified().await;
    node.kubelet.set_objects(&objects("second"));
    changed.sync.notified().await;
    assert!(other.sync.notified().now_or_never().is_none());
    node.kubelet.pod_workers.lock().clear();
    node.end.cancel();
    assert!(node.run.await.unwrap());
}
