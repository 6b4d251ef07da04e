//! The prober as a whole, on paused time and with commands that are played. Tables 9.2 and 9.3 of the kubelet's tests are here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Status;

use super::handler::exec_tests::answer;
use super::*;
use crate::cri::v1::{self, ExecSyncRequest, ExecSyncResponse};
use crate::cri::{ContainerFact, MethodName, SandboxFact};
use crate::probe::ProbeType;
use crate::relay::Head;
use crate::tap::Fact;
use crate::world::Source;

/// Longer than any period here.
const SETTLED: Duration = Duration::from_secs(200);

/// A node on which things happen as a test says.
struct Node {
    world: Arc<World>,
    prober: Prober,
    notices: Arc<Notices>,
    _folder: tempfile::TempDir,
}

/// What was told, and when.
#[derive(Debug, Default)]
struct Notices(Mutex<Vec<(Instant, Notice)>>);

impl Witness for Notices {
    fn notice(&self, notice: Notice) {
        self.0.lock().unwrap().push((Instant::now(), notice));
    }
}

type Answered = Result<ExecSyncResponse, Status>;

/// When a container has been started, in seconds before now.
fn ago(seconds: u64) -> i64 {
    let at = SystemTime::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    i64::try_from(at.duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

fn succeed() -> Answered {
    answer(0, "", "")
}

fn fail() -> Answered {
    answer(1, "", "")
}

impl Node {
    /// A node with manifests of these pods, whose names tell them apart. `play` answers commands.
    fn new(pods: &[Value], play: impl Fn(&ExecSyncRequest) -> Answered + Send + Sync + 'static) -> Self {
        Self::slow(pods, move |request| (Duration::ZERO, play(request)))
    }

    /// The same with commands that take their time.
    fn slow(
        pods: &[Value],
        play: impl Fn(&ExecSyncRequest) -> (Duration, Answered) + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (count, pod) in pods.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{count}.json")), pod.to_string()).unwrap();
        }
        let specs = Specs::read(&[folder.path()]).unwrap();
        let notices = Arc::new(Notices::default());
        let prober = Prober::start(Parts {
            specs,
            executor: Executor::played(play),
            metrics: Metrics::default(),
            witness: notices.clone(),
            enquiries: mpsc::channel(1).0,
            runtime: Handle::current(),
        });
        Self { world: Arc::default(), prober, notices, _folder: folder }
    }

    /// The same once it has run for longer than any period: nothing begins at a time of chance.
    async fn settled(
        pods: &[Value],
        play: impl Fn(&ExecSyncRequest) -> Answered + Send + Sync + 'static,
    ) -> Self {
        let node = Self::new(pods, play);
        node.prober.listed();
        sleep(SETTLED).await;
        node
    }

    fn told(&mut self, fact: Fact) {
        let now = Instant::now();
        let changes = self.world.fold(Source::List, now, now, vec![fact]);
        self.prober.changed(&self.world, &changes);
    }

    /// A pod's sandbox runs.
    fn pod(&mut self, name: &str) {
        let metadata = v1::PodSandboxMetadata {
            name: name.into(),
            uid: name.into(),
            namespace: "it".into(),
            attempt: 0,
        };
        self.told(Fact::Sandbox(SandboxFact {
            id: format!("s-{name}"),
            metadata: Some(metadata),
            is_ready: Some(true),
            addresses: Some(vec!["127.0.0.1".into()]),
            ..SandboxFact::default()
        }));
    }

    /// Something is so of a container of a pod: `web/main#0` is the first of its name.
    fn container(&mut self, name: &str, state: v1::ContainerState, started_at: i64, exit: Option<i32>) {
        let (pod, rest) = name.split_once('/').unwrap();
        let (container, attempt) = rest.split_once('#').unwrap_or((rest, "0"));
        let attempt = attempt.parse().unwrap();
        self.told(Fact::Container(ContainerFact {
            id: format!("{pod}/{container}#{attempt}"),
            sandbox: Some(format!("s-{pod}")),
            metadata: Some(v1::ContainerMetadata { name: container.into(), attempt }),
            state: Some(state),
            created_at: Some(1 + i64::from(attempt)),
            started_at: Some(started_at),
            exit: exit.map(|code| (code, String::new())),
            ..ContainerFact::default()
        }));
    }

    /// A container is there, and runs.
    fn run(&mut self, name: &str) {
        self.container(name, v1::ContainerState::ContainerRunning, ago(0), None);
    }

    fn exit(&mut self, name: &str, code: i32) {
        self.container(name, v1::ContainerState::ContainerExited, ago(0), Some(code));
    }

    fn report(&self, pod: &str) -> PodReport {
        let is_it = |report: &PodReport| report.names.name.as_deref() == Some(pod);
        self.prober.report().into_iter().find(is_it).unwrap_or_else(|| panic!("{pod} is not probed"))
    }

    fn container_of(&self, name: &str) -> ContainerReport {
        let (pod, container) = name.split_once('/').unwrap();
        let report = self.report(pod);
        let is_it = |it: &ContainerReport| it.names.name.as_deref() == Some(container);
        report.containers.into_iter().find(is_it).unwrap()
    }

    fn probe(&self, name: &str, probe_type: ProbeType) -> Option<ProbeReport> {
        self.container_of(name).probes.into_iter().find(|probe| probe.probe_type == probe_type)
    }

    fn result(&self, name: &str, probe_type: ProbeType) -> Option<ProbeResult> {
        self.probe(name, probe_type).and_then(|probe| probe.result)
    }

    /// The pods that are worked on, with the containers and types of their probes.
    fn workers(&self) -> Vec<String> {
        let mut workers = Vec::new();
        for pod in self.prober.shared.pods() {
            let inner = pod.lock();
            let name = inner.names.name.clone().unwrap();
            let worker = |worker: &pod::Worker| {
                format!("{name}/{} {}", worker.container, worker.machine.probe_type.name())
            };
            workers.extend(inner.workers.iter().map(worker));
        }
        workers.sort();
        workers
    }

    /// What has been told, and how many seconds after a time.
    fn told_since(&self, begin: Instant) -> Vec<(f64, What, String)> {
        let seconds = |at: Instant| (at.saturating_duration_since(begin).as_secs_f64() * 10.0).round() / 10.0;
        let notices = self.notices.0.lock().unwrap();
        let told = notices.iter().filter(|(at, _)| *at >= begin);
        told.map(|(at, notice)| (seconds(*at), notice.what, notice.message.clone())).collect()
    }
}

/// A pod of containers, each with what is written of it beside its name.
fn pod(name: &str, policy: &str, containers: &[(&str, Value)]) -> Value {
    let containers: Vec<Value> = containers.iter().map(|(name, more)| merged(name, more)).collect();
    json!({
        "kind": "Pod", "metadata": {"name": name, "namespace": "it"},
        "spec": {"restartPolicy": policy, "containers": containers},
    })
}

fn merged(name: &str, more: &Value) -> Value {
    let mut container = json!({"name": name});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    container
}

/// A probe that executes its own name.
#[expect(clippy::needless_pass_by_value, reason = "it is written where it is used")]
fn probe(probe_type: ProbeType, more: Value) -> (String, Value) {
    let mut probe =
        json!({"exec": {"command": [probe_type.name()]}, "periodSeconds": 1, "failureThreshold": 1});
    probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (probe_type.field().to_owned(), probe)
}

fn probes(probes: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(probes.into_iter().collect())
}

/// Lets everything happen that is due until a while has passed.
async fn after(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds)).await;
}

const STARTUP: ProbeType = ProbeType::Startup;
const READINESS: ProbeType = ProbeType::Readiness;
const LIVENESS: ProbeType = ProbeType::Liveness;

#[tokio::test(start_paused = true)]
async fn table_9_2_add_remove_pods() {
    let one = |probe_type| probes([probe(probe_type, json!({}))]);
    let pods = [
        pod("plain", "Always", &[("main", json!({}))]),
        pod(
            "probed",
            "Always",
            &[("a", one(READINESS)), ("b", one(LIVENESS)), ("c", one(STARTUP)), ("d", json!({}))],
        ),
    ];
    let mut node = Node::new(&pods, |_| succeed());
    node.pod("plain");
    assert!(node.workers().is_empty(), "AddRemovePods: pod without probes");
    node.pod("probed");
    let expected = ["probed/a readiness", "probed/b liveness", "probed/c startup"];
    assert_eq!(node.workers(), expected, "AddRemovePods: before any container is there");
    for _ in 0..2 {
        node.told(Fact::SandboxGone("s-probed".into()));
        after(2.0).await;
        assert!(node.workers().is_empty(), "AddRemovePods: removed");
    }
}

#[tokio::test(start_paused = true)]
async fn table_9_2_restartable_init_container() {
    let all = probes(ProbeType::ALL.map(|probe_type| probe(probe_type, json!({}))));
    let with = |more: Value| {
        let mut pod = pod("web", "Always", &[("main", json!({}))]);
        let mut init = merged("side", &more);
        if more.get("restartPolicy").is_some() {
            init.as_object_mut().unwrap().extend(all.as_object().unwrap().clone());
        }
        pod["spec"]["initContainers"] = json!([init]);
        pod
    };
    // An init container with probes is refused as a whole; one without them has no workers.
    let mut node = Node::new(&[with(json!({}))], |_| succeed());
    node.pod("web");
    assert!(node.workers().is_empty(), "no sidecar");
    let mut node = Node::new(&[with(json!({"restartPolicy": "Always"}))], |_| succeed());
    node.pod("web");
    assert_eq!(
        node.workers(),
        ["web/side liveness", "web/side readiness", "web/side startup"],
        "with sidecar"
    );
}

#[tokio::test(start_paused = true)]
async fn table_9_2_cleanup() {
    let all = || probes(ProbeType::ALL.map(|probe_type| probe(probe_type, json!({}))));
    let names: Vec<String> = (0..100).map(|count| format!("web-{count}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| pod(name, "Always", &[("main", all())])).collect();
    let mut node = Node::new(&pods, |_| succeed());
    for name in &names {
        node.pod(name);
        node.run(&format!("{name}/main"));
    }
    after(3.0).await;
    assert_eq!(node.workers().len(), 300);
    node.told(Fact::SandboxGone("s-web-7".into()));
    after(2.0).await;
    assert_eq!(node.workers().len(), 297, "CleanupPods: only the undesired pod's workers exit");
    assert!(!node.workers().iter().any(|worker| worker.starts_with("web-7/")));
    for _ in 0..10 {
        for name in &names {
            node.told(Fact::SandboxGone(format!("s-{name}")));
        }
    }
    after(2.0).await;
    assert!(node.workers().is_empty(), "CleanupRepeated");
}

#[tokio::test(start_paused = true)]
async fn table_9_2_update_readiness() {
    let is_well = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let plays = is_well.clone();
    let web = pod("web", "Always", &[("main", probes([probe(READINESS, json!({}))]))]);
    let play = move |_: &_| if plays.load(Ordering::Relaxed) { succeed() } else { fail() };
    let mut node = Node::new(&[web], play);
    node.pod("web");
    node.run("web/main");
    after(2.0).await;
    assert!(node.container_of("web/main").is_ready, "UpdateReadiness: success");
    assert!(node.report("web").conditions[1].is_met);
    is_well.store(false, Ordering::Relaxed);
    after(2.0).await;
    assert!(!node.container_of("web/main").is_ready, "UpdateReadiness: failure");
    assert_eq!(node.report("web").conditions[0].reason, Some("ContainersNotReady"));
}

/// Table 9.1, `CleanUp`: a worker that is told to stop, again and again, ends once, and leaves nothing.
#[tokio::test(start_paused = true)]
async fn table_9_1_clean_up() {
    for probe_type in ProbeType::ALL {
        let web = pod("web", "Always", &[("main", probes([probe(probe_type, json!({}))]))]);
        let mut node = Node::new(&[web], |_| succeed());
        node.pod("web");
        node.run("web/main");
        after(2.0).await;
        assert_eq!(node.result("web/main", probe_type), Some(ProbeResult::Success));
        let pod = node.prober.shared.pods().remove(0);
        for _ in 0..10 {
            pod.lock().stop();
        }
        after(2.0).await;
        let inner = pod.lock();
        assert!(
            inner.workers.is_empty() && inner.containers[0].result(probe_type).is_none(),
            "{probe_type:?}"
        );
    }
}

/// Table 9.1, `RestartAll`.
#[tokio::test(start_paused = true)]
async fn table_9_1_restart_all() {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    let probed = |more: Value| {
        let mut container = probes([probe(LIVENESS, json!({}))]);
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        container
    };
    let own = probed(json!({"restartPolicy": "Never", "restartPolicyRules": rules}));
    let containers = [("main", own), ("other", probed(json!({})))];
    let start = async || {
        let mut node = Node::settled(&[pod("web", "Never", &containers)], |_| succeed()).await;
        node.pod("web");
        node.run("web/main");
        node.run("web/other");
        after(2.0).await;
        node
    };
    let is_there = |node: &Node, worker: &str| node.workers().iter().any(|known| known == worker);
    let mut node = start().await;
    node.exit("web/main", 1);
    after(2.0).await;
    assert!(is_there(&node, "web/main liveness"), "own rule matches");
    assert_eq!(node.result("web/main", LIVENESS), Some(ProbeResult::Failure));
    node.exit("web/other", 137);
    after(2.0).await;
    assert!(is_there(&node, "web/other liveness"), "terminated because a sibling triggered");
    node.container("web/other#1", v1::ContainerState::ContainerCreated, 0, None);
    after(2.0).await;
    assert!(is_there(&node, "web/other liveness"), "cleaned up");
    assert_eq!(node.result("web/other", LIVENESS), Some(ProbeResult::Failure), "cleaned up");
    let mut node = start().await;
    node.exit("web/other", 1);
    after(2.0).await;
    assert!(!is_there(&node, "web/other liveness"), "no rule of its own, and policy Never");
}

/// Table 9.3, Probe. A probe that is nil, has no handler or is of another type does not exist here.
#[tokio::test(start_paused = true)]
async fn table_9_3_probe() {
    let unavailable = || Err(Status::unavailable("gone"));
    for (row, answered, tries, held, message) in [
        ("success", succeed as fn() -> Answered, 1, Some(ProbeResult::Success), None),
        (
            "failure",
            || answer(1, "bad", ""),
            1,
            Some(ProbeResult::Failure),
            Some("Readiness probe failed: bad"),
        ),
        (
            "unknown with error",
            unavailable,
            3,
            Some(ProbeResult::Failure),
            Some(
                "Readiness probe errored and resulted in unknown state: rpc error: code = Unavailable desc = gone",
            ),
        ),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let web =
            pod("web", "Always", &[("main", probes([probe(READINESS, json!({"periodSeconds": 100}))]))]);
        let mut node = Node::settled(&[web], move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            answered()
        })
        .await;
        node.run_pod("web");
        let begin = Instant::now();
        after(0.1).await;
        // Each change has it tried once more, as long as it is not ready: here the seed does.
        assert_eq!(calls.load(Ordering::Relaxed) % tries, 0, "{row}: {calls:?}");
        assert_eq!(node.result("web/main", READINESS), held, "{row}");
        let told = node.told_since(begin);
        assert_eq!(told.first().map(|(.., message)| message.as_str()), message, "{row}");
    }
}

impl Node {
    /// Somebody has a container stopped, for as long as the call is there.
    fn stop(&self, container: &str) -> Arc<Head> {
        let head = Arc::new(Head {
            id: 1,
            peer: None,
            method: MethodName::of_path("/runtime.v1.RuntimeService/StopContainer"),
            start: SystemTime::now(),
            since: Instant::now(),
            trace: None,
        });
        let container = Some(container.to_owned());
        self.prober.stopping(&Stopping { head: Arc::downgrade(&head), sandbox: None, container });
        head
    }

    /// A pod with its one container.
    fn run_pod(&mut self, name: &str) {
        self.pod(name);
        self.run(&format!("{name}/main"));
    }
}

/// Table 9.3, Probe: args passed through, env expansion.
#[tokio::test(start_paused = true)]
async fn table_9_3_commands() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let mut container = probes([probe(
        LIVENESS,
        json!({"exec": {"command": ["some", "$(A)", "$(B)"]}, "timeoutSeconds": 7}),
    )]);
    container["env"] = json!([{"name": "A", "value": "script"}]);
    let mut node = Node::settled(&[pod("web", "Always", &[("main", container)])], move |request| {
        seen.lock().unwrap().push(request.clone());
        succeed()
    })
    .await;
    node.run_pod("web");
    after(0.1).await;
    let asked = asked.lock().unwrap();
    assert_eq!((asked[0].cmd.join(" ").as_str(), asked[0].timeout), ("some script $(B)", 7));
    assert_eq!(asked[0].container_id, "web/main#0");
}

/// Table 9.3, `CacheOperations` and `Updates`: what is new is told of, what is the same is not.
#[tokio::test(start_paused = true)]
async fn table_9_3_results() {
    let web =
        pod("web", "Always", &[("main", probes([probe(READINESS, json!({"initialDelaySeconds": 100}))]))]);
    let mut node = Node::settled(&[web], |_| succeed()).await;
    node.run_pod("web");
    after(0.1).await;
    let pod = node.prober.shared.pods().remove(0);
    let life = machine::Life { container_id: "web/main#0".into(), would_have_ended: 0 };
    let hold = |result| pod.lock().hold("main", READINESS, &life, result);
    let get = || node.result("web/main", READINESS);
    assert_eq!(get(), Some(ProbeResult::Failure), "the seed");
    assert!(hold(Some(ProbeResult::Success)), "Updates: changed");
    assert!(!hold(Some(ProbeResult::Success)), "Updates: same");
    assert_eq!(get(), Some(ProbeResult::Success), "CacheOperations: set, get");
    assert!(!hold(None));
    assert_eq!(get(), None, "CacheOperations: remove");
    assert!(hold(Some(ProbeResult::Success)), "Updates: set new");
}

#[tokio::test(start_paused = true)]
async fn a_failing_liveness_probe_would_have_its_container_killed_again_and_again() {
    let more = json!({"periodSeconds": 10, "failureThreshold": 3, "initialDelaySeconds": 5});
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, more)]))]);
    let mut node = Node::settled(&[web], |_| answer(1, "broken", "")).await;
    let begin = Instant::now();
    node.run_pod("web");
    after(99.0).await;
    let told = node.told_since(begin);
    let at =
        |what| told.iter().filter(|(_, known, _)| *known == what).map(|(at, ..)| *at).collect::<Vec<_>>();
    // The delay lets the first tick pass, and again the one at which it would have been killed.
    assert_eq!(at(What::WouldKill), [30.0, 60.0, 90.0]);
    assert_eq!(at(What::Unhealthy), [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]);
    let kill = told.iter().find(|(_, what, _)| *what == What::WouldKill).unwrap();
    assert_eq!(
        kill.2,
        "Container main failed liveness probe, will be restarted (dry-run: would be stopped with a grace period of 30s)"
    );
    let probe = node.probe("web/main", LIVENESS).unwrap();
    assert_eq!((probe.would_have_killed, probe.result), (3, Some(ProbeResult::Success)));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_has_not_been_started_yet_has_not_failed() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({}))]))]);
    let mut node = Node::settled(&[web], |_| succeed()).await;
    let begin = Instant::now();
    node.pod("web");
    node.container("web/main", v1::ContainerState::ContainerCreated, 0, None);
    after(5.0).await;
    assert_eq!(node.report("web").phase, Phase::Pending);
    node.run("web/main");
    after(5.0).await;
    assert_eq!(
        (node.told_since(begin), node.result("web/main", LIVENESS)),
        (vec![], Some(ProbeResult::Success))
    );
}

#[tokio::test(start_paused = true)]
async fn errors_count_for_nothing() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"failureThreshold": 2}))]))]);
    // A failure, then an error (three tries), then a failure: two failures in a row.
    let mut node = Node::settled(&[web], move |_| match counted.fetch_add(1, Ordering::Relaxed) {
        1..=3 => Err(Status::internal("runtime trouble")),
        _ => fail(),
    })
    .await;
    let begin = Instant::now();
    node.run_pod("web");
    after(1.5).await;
    assert_eq!(node.probe("web/main", LIVENESS).unwrap().run.length, 1);
    after(1.0).await;
    let killed: Vec<f64> = node
        .told_since(begin)
        .into_iter()
        .filter(|(_, what, _)| *what == What::WouldKill)
        .map(|(at, ..)| at)
        .collect();
    assert_eq!(killed, [2.0]);
    assert_eq!(calls.load(Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn readiness_is_looked_at_as_soon_as_it_has_started() {
    let slow = json!({"periodSeconds": 30});
    let begin = Instant::now();
    let is_up = move || begin.elapsed() > SETTLED + Duration::from_secs(32);
    let all =
        probes([probe(STARTUP, json!({"periodSeconds": 5, "failureThreshold": 60})), probe(READINESS, slow)]);
    let mut node = Node::settled(&[pod("web", "Always", &[("main", all)])], move |request| {
        if request.cmd[0] != "startup" || is_up() { succeed() } else { fail() }
    })
    .await;
    node.run_pod("web");
    after(34.0).await;
    assert!(!node.container_of("web/main").is_started);
    after(1.1).await;
    let container = node.container_of("web/main");
    assert!(container.is_started && container.is_ready);
    assert!(node.probe("web/main", STARTUP).unwrap().on_hold);
}

#[tokio::test(start_paused = true)]
async fn startup_delays_the_others_and_is_needed_again() {
    let all = probes([probe(STARTUP, json!({"failureThreshold": 1000})), probe(LIVENESS, json!({}))]);
    let is_up = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let plays = is_up.clone();
    let mut node = Node::settled(&[pod("web", "Always", &[("main", all)])], move |request| {
        if request.cmd[0] == "startup" && plays.load(Ordering::Relaxed) { succeed() } else { fail() }
    })
    .await;
    let begin = Instant::now();
    node.run_pod("web");
    after(240.0).await;
    let would_kill =
        |node: &Node, begin| node.told_since(begin).iter().any(|(_, what, _)| *what == What::WouldKill);
    assert!(!would_kill(&node, begin), "startup delays liveness");
    is_up.store(true, Ordering::Relaxed);
    after(3.0).await;
    assert!(would_kill(&node, begin), "liveness after startup enables it");
    is_up.store(false, Ordering::Relaxed);
    node.exit("web/main", 1);
    after(2.0).await;
    assert!(!node.container_of("web/main").is_started);
    let begin = Instant::now();
    node.run("web/main#1");
    after(10.0).await;
    assert!(
        !node.container_of("web/main").is_started && !would_kill(&node, begin),
        "it is another container"
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_keep_to_their_grid() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (kept, first) = (times.clone(), Arc::new(Mutex::new(None)));
    let web = pod(
        "web",
        "Always",
        &[("main", probes([probe(LIVENESS, json!({"periodSeconds": 10, "timeoutSeconds": 100}))]))],
    );
    let play = move |_: &ExecSyncRequest| {
        let begin = *first.lock().unwrap().get_or_insert_with(Instant::now);
        let mut times = kept.lock().unwrap();
        times.push((begin.elapsed().as_secs_f64() * 10.0).round() / 10.0);
        // The second takes two periods and a half.
        (Duration::from_secs(if times.len() == 2 { 25 } else { 1 }), succeed())
    };
    let mut node = Node::slow(&[web], play);
    node.prober.listed();
    after(100.0).await;
    node.run_pod("web");
    after(62.0).await;
    assert_eq!(*times.lock().unwrap(), [0.0, 10.0, 35.0, 40.0, 50.0, 60.0]);
}

#[tokio::test(start_paused = true)]
async fn workers_of_a_young_prober_are_spread_and_others_are_not() {
    let one = || probes([probe(LIVENESS, json!({"periodSeconds": 10}))]);
    let names: Vec<String> = (0..200).map(|count| format!("web-{count}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| pod(name, "Always", &[("main", one())])).collect();
    let (times, begin) = (Arc::new(Mutex::new(HashMap::new())), Instant::now());
    let kept = times.clone();
    let mut node = Node::new(&pods, move |request| {
        kept.lock().unwrap().entry(request.container_id.clone()).or_insert_with(|| begin.elapsed());
        succeed()
    });
    for name in &names[..100] {
        node.run_pod(name);
    }
    node.prober.listed();
    after(15.0).await;
    for name in &names[100..] {
        node.run_pod(name);
    }
    after(0.5).await;
    let times = times.lock().unwrap();
    let seconds = |name: &str| times[&format!("{name}/main#0")].as_secs_f64();
    for tenth in 0..10 {
        let lower = f64::from(tenth);
        let count = names[..100].iter().filter(|name| (lower..lower + 1.0).contains(&seconds(name))).count();
        assert!((1..30).contains(&count), "{count} of 100 begin in second {tenth}");
    }
    assert!(names[100..].iter().all(|name| (15.0..15.1).contains(&seconds(name))));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ran_before_is_not_taken_for_new() {
    let probed = |more: Value| {
        let all = [
            probe(STARTUP, more),
            probe(READINESS, json!({"initialDelaySeconds": 1000})),
            probe(LIVENESS, json!({"initialDelaySeconds": 1000})),
        ];
        pod("web", "Always", &[("main", probes(all))])
    };
    let start = async |startup: Value, age: u64| {
        let mut node = Node::new(&[probed(startup)], |_| fail());
        node.pod("web");
        node.container("web/main", v1::ContainerState::ContainerRunning, ago(age), None);
        after(1.5).await;
        node
    };
    let node = start(json!({"failureThreshold": 30}), 60).await;
    assert!(node.container_of("web/main").is_started, "its startup probe would have ended it by now");
    let results = ProbeType::ALL.map(|probe_type| node.result("web/main", probe_type));
    assert_eq!(results, [None; 3], "nothing is held of it yet");
    let node = start(json!({"failureThreshold": 300}), 60).await;
    assert!(!node.container_of("web/main").is_started, "it may not have started yet");
    let node = start(json!({"failureThreshold": 300}), 5).await;
    assert_eq!(node.result("web/main", LIVENESS), Some(ProbeResult::Success), "it is new");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_stops_is_compared() {
    let web = pod(
        "web",
        "Always",
        &[("main", probes([probe(LIVENESS, json!({"periodSeconds": 10, "failureThreshold": 3}))]))],
    );
    let start = async || {
        let mut node = Node::settled(std::slice::from_ref(&web), |_| fail()).await;
        node.run_pod("web");
        (node, Instant::now())
    };
    let last = |node: &Node, begin| {
        node.told_since(begin).last().map(|(_, what, message)| (*what, message.clone())).unwrap()
    };
    let (node, begin) = start().await;
    after(21.0).await;
    let _call = node.stop("web/main#0");
    let expected = "Is being stopped, as it would have been for its liveness probe (verdict 1)";
    assert_eq!(last(&node, begin), (What::StoppedToo, expected.to_owned()));
    let (node, begin) = start().await;
    after(11.0).await;
    let _call = node.stop("web/main#0");
    let expected = "Is being stopped after 2 failures of its liveness probe; 3 are its threshold";
    assert_eq!(last(&node, begin), (What::StoppedBefore, expected.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_the_kubelet_should_have_stopped_is_told() {
    for is_kubelet_there in [true, false] {
        let more = json!({"periodSeconds": 10, "failureThreshold": 3});
        let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, more)]))]);
        let calls = AtomicUsize::new(0);
        let mut node =
            Node::settled(
                &[web],
                move |_| {
                    if calls.fetch_add(1, Ordering::Relaxed) < 3 { fail() } else { succeed() }
                },
            )
            .await;
        node.run_pod("web");
        let begin = Instant::now();
        for _ in 0..100 {
            if is_kubelet_there {
                node.prober.kubelet_seen();
            }
            after(1.0).await;
        }
        let told = node.told_since(begin);
        let told = told
            .iter()
            .find(|(_, what, _)| *what == What::NotStopped)
            .map(|(_, _, message)| message.as_str());
        // A round of the probe, its timeout, and ten seconds.
        let expected = "Has not been stopped for its liveness probe within 41s of when it would have been";
        assert_eq!(told, is_kubelet_there.then_some(expected));
    }
}

/// What readiness with these thresholds is held to be in each period, when each attempt in it comes to the same result, or to an error. An
/// attempt is made once more, at once, when something has become not ready; a container that is new is that, too.
fn model(results: &[Option<bool>], success: usize, failure: usize) -> Vec<bool> {
    let (mut counted, mut held, mut told, mut once_more) = (Vec::new(), false, Vec::new(), true);
    for result in results {
        loop {
            let again = std::mem::take(&mut once_more);
            if let Some(result) = result {
                counted.push(*result);
                let same = counted.iter().rev().take_while(|known| *known == result).count();
                if same >= if *result { success } else { failure } {
                    once_more = held && !*result;
                    held = *result;
                }
            }
            if !again && !once_more {
                break;
            }
        }
        told.push(held);
    }
    told
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    #[test]
    fn a_worker_does_as_a_simple_model_says(
        results in proptest::collection::vec(proptest::option::weighted(0.8, proptest::bool::ANY), 1..28),
        success in 1_usize..4,
        failure in 1_usize..4,
        // Altogether less than the minute after which everything is looked at anyway.
        period in 1_u32..3,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let more = json!({"periodSeconds": period, "successThreshold": success, "failureThreshold": failure});
            let web = pod("web", "Always", &[("main", probes([probe(READINESS, more)]))]);
            let (played, begin) = (results.clone(), Arc::new(Mutex::new(Instant::now())));
            let begun = begin.clone();
            let mut node = Node::settled(&[web], move |_| {
                let turn = begun.lock().unwrap().elapsed().as_secs() / u64::from(period);
                match played.get(usize::try_from(turn).unwrap()).copied().flatten() {
                    Some(true) => succeed(),
                    Some(false) => fail(),
                    None => Err(Status::unavailable("nobody")),
                }
            })
            .await;
            node.run_pod("web");
            *begin.lock().unwrap() = Instant::now();
            let mut told = Vec::new();
            for _ in &results {
                after(f64::from(period) / 2.0).await;
                told.push(node.container_of("web/main").is_ready);
                after(f64::from(period) / 2.0).await;
            }
            assert_eq!(told, model(&results, success, failure));
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_written_otherwise_is_another_probe() {
    let written = |command: &str| {
        pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"exec": {"command": [command]}}))]))])
    };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let mut node = Node::settled(&[written("old")], move |request| {
        seen.lock().unwrap().push(request.cmd[0].clone());
        succeed()
    })
    .await;
    node.run_pod("web");
    after(1.5).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.json"), written("new").to_string()).unwrap();
    node.prober.specify(Specs::read(&[folder.path()]).unwrap());
    after(2.5).await;
    assert_eq!(node.workers(), ["web/main liveness"]);
    let asked = asked.lock().unwrap();
    assert_eq!((asked[0].as_str(), asked.last().unwrap().as_str()), ("old", "new"));
}
