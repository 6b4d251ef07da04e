//! Tests of rules with the objects of a node.

mod pauses;

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Response;

use super::target::RequestNames;
use super::*;
use crate::cri::{ContainerObservation, MethodName, SandboxObservation, framed_message, v1};
use crate::events::EventRecorder;
use crate::inventory::{Inventory, Source};
use crate::manifest::{ExecPurpose, Manifests, ProbeType, Source as SpecSource, read_manifests};
use crate::probe::SpecResolver;
use crate::relay::{CallIds, CallInfo, CallPolicy as _, MarkSet, Peer};
use crate::tap::{Decoder, Observation, Tap, TapConfig, TapMetrics};

/// Number of calls of the test with many calls. `PROBESHIM_POLICY_CALLS` sets another.
const CALLS: u64 = 20_000;

/// Rules, and a node with the pods `shop/web-0` to `shop/web-9`. Each has the containers `main`
/// and `side`, with the ids `0-main`, `0-side` and so on.
struct RuleFixture {
    policies: Policies,
    rules: FaultRules,
    /// The tap, whose queue takes the barrier of calls about unknown objects.
    tap: Tap,
    decoder: Decoder,
    inventory: watch::Sender<Arc<Inventory>>,
    events: Arc<EventRecorder>,
}

impl RuleFixture {
    fn with(rules: &[&str]) -> Self {
        let (tap, decoder) = Tap::new(TapConfig::default(), TapMetrics::default());
        let mut inventory = Arc::<Inventory>::default();
        let pods = (0..10).flat_map(pod_observations);
        let now = Instant::now();
        inventory.fold(Source::List, now, now, pods.collect());
        let (inventory, inventory_rx) = watch::channel(inventory);
        let (specs, events) = (SpecResolver::default(), Arc::<EventRecorder>::default());
        let manifests = manifests();
        let node = NodeView {
            inventory: inventory_rx,
            specs: watch::channel(specs.with_manifests(manifests)).1,
            calls: tap.internal_calls(CallIds::starting_at(1)),
            events: events.clone(),
            known_execs: KnownExecs::default(),
        };
        let policies = Policies::default();
        policies.connect(node);
        let numbered = (1..).zip(rules);
        let parsed = numbered
            .map(|(number, text)| FaultRule::parse(&format!("rule-{number}"), text, None, false).unwrap());
        policies.faults.add(parsed.collect(), RuleSource::Flag, "the test").unwrap();
        Self { rules: policies.faults.clone(), policies, tap, decoder, inventory, events }
    }

    /// Makes a call of the kubelet. Returns the names of the rules that hit it; `None` if it is not
    /// even intercepted.
    fn call(&self, id: u64, method: &str, message: &impl prost::Message) -> Option<Vec<String>> {
        let marks = MarkSet::default();
        let interceptor = self.policies.interceptor(&info(id, method))?;
        let mut decision = interceptor.decide(Some(frame(message)), &marks);
        let polled = decision.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "the objects are known");
        drop(decision);
        Some(names(&marks))
    }

    /// Makes an `ExecSync`. Returns the names of the rules that hit it.
    fn exec(&self, id: u64, container: &str, command: &[&str], timeout: i64) -> Vec<String> {
        self.call(id, "ExecSync", &exec(container, command, timeout)).unwrap()
    }
}

#[test]
fn a_probe_that_is_only_named_is_found_by_rules_and_not_by_policies_for_all_probes() {
    let fixture = RuleFixture::with(&[]);
    let resolver = SpecResolver::default;
    for (specs, is_configured) in
        [(resolver().with_manifests(manifests()), true), (resolver().with_names_only(manifests()), false)]
    {
        let node = NodeView {
            inventory: fixture.inventory.subscribe(),
            specs: watch::channel(specs).1,
            calls: fixture.tap.internal_calls(CallIds::starting_at(1)),
            events: fixture.events.clone(),
            known_execs: KnownExecs::default(),
        };
        let target = node.find_known(RequestNames::from(exec("3-main", &["alive"], 2)));
        assert!(node.is_probe(&target, ExecPurpose::Liveness));
        assert_eq!(node.probes(&target), Some(vec![ProbeType::Liveness]));
        assert_eq!(node.is_configured_probe(&target), is_configured);
    }
}

/// Returns the manifests of the pods `web-3` and `web-4`. The probes of the others are unknown.
fn manifests() -> Manifests {
    let exec =
        |command: &str, timeout: u32| json!({"exec": {"command": [command]}, "timeoutSeconds": timeout});
    let pod = |name: &str, containers: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": containers},
        })
    };
    let main = json!({"name": "main", "livenessProbe": exec("alive", 2), "readinessProbe": exec("ready", 2)});
    let main_of_4 = json!({
        "name": "main", "startupProbe": exec("up", 2), "livenessProbe": exec("both", 1),
        "readinessProbe": exec("both", 1),
    });
    let side_of_4 = json!({
        "name": "side", "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"tcpSocket": {"port": 80}},
    });
    let pods = [pod("web-3", json!([main])), pod("web-4", json!([main_of_4, side_of_4]))];
    let read = |pod| read_manifests(pod, SpecSource::Manifest, false, &mut Vec::new());
    pods.iter().flat_map(read).collect()
}

fn pod_observations(pod: usize) -> Vec<Observation> {
    let metadata = v1::PodSandboxMetadata {
        name: format!("web-{pod}"),
        namespace: "shop".into(),
        uid: format!("uid-{pod}"),
        attempt: 0,
    };
    let tier = if pod.is_multiple_of(2) { "front" } else { "back" };
    let sandbox = SandboxObservation {
        id: format!("pod-{pod}"),
        metadata: Some(metadata),
        is_ready: Some(true),
        labels: Some([("tier".to_owned(), tier.to_owned())].into()),
        ..SandboxObservation::default()
    };
    let container = |name: &str| ContainerObservation {
        id: format!("{pod}-{name}"),
        sandbox: Some(format!("pod-{pod}")),
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        state: Some(v1::ContainerState::ContainerRunning),
        image: Some(if name == "main" { "web:1.2".into() } else { "proxy:3".into() }),
        ..ContainerObservation::default()
    };
    let containers = ["main", "side"].map(|name| Observation::Container(container(name)));
    [Observation::Sandbox(sandbox)].into_iter().chain(containers).collect()
}

fn info(id: u64, method: &str) -> Arc<CallInfo> {
    let peer = Peer { uid: 0, pid: Some(1), program: Some("kubelet".to_owned()) };
    Arc::new(CallInfo {
        id,
        peer: Some(Arc::new(peer)),
        method: MethodName::of_path(&format!("/runtime.v1.RuntimeService/{method}")),
        start: SystemTime::UNIX_EPOCH,
        since: Instant::now(),
        trace: None,
        timeout: None,
    })
}

fn exec(container: &str, command: &[&str], timeout: i64) -> v1::ExecSyncRequest {
    let cmd = command.iter().map(ToString::to_string).collect();
    v1::ExecSyncRequest { container_id: container.into(), cmd, timeout }
}

fn frame(message: &impl prost::Message) -> Bytes {
    framed_message(&message.encode_to_vec())
}

fn names(marks: &MarkSet) -> Vec<String> {
    marks.get().faults.iter().map(|mark| mark.name.to_string()).collect()
}

#[test]
fn rules_select_pods_containers_images_labels_and_probes() {
    let node = RuleFixture::with(&[
        "ExecSync pod=shop/web-3: hang",
        "ExecSync pod=web-? container=side: hang",
        "ExecSync image=web:*: hang",
        "ExecSync label.tier=back: hang",
        "ExecSync probe=liveness: hang",
        "ExecSync namespace=other: hang",
        "ExecSync client=crictl: hang",
    ]);
    let rules = |container: &str, command: &str, timeout| node.exec(1, container, &[command], timeout);
    assert_eq!(rules("3-main", "alive", 2), ["rule-1", "rule-3", "rule-4", "rule-5"]);
    assert_eq!(rules("3-main", "ready", 2), ["rule-1", "rule-3", "rule-4"]);
    assert_eq!(
        rules("3-main", "alive", 3),
        ["rule-1", "rule-3", "rule-4"],
        "another timeout, another caller"
    );
    assert_eq!(rules("4-side", "alive", 2), ["rule-2"]);
    assert_eq!(rules("5-main", "alive", 2), ["rule-3", "rule-4"]);
}

#[test]
fn rules_for_sandboxes_and_new_objects_use_the_names_in_the_request() {
    let node = RuleFixture::with(&[
        "*Sandbox pod=web-3: hang",
        "CreateContainer pod=shop/new container=main image=web:*: hang",
        "Stop* pod=web-3 container=main: hang",
    ]);
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: "pod-3".into() };
    assert_eq!(node.call(1, "StopPodSandbox", &stop).unwrap(), ["rule-1"], "a sandbox is no container");
    let stop = v1::StopContainerRequest { container_id: "3-main".into(), timeout: 0 };
    assert_eq!(node.call(2, "StopContainer", &stop).unwrap(), ["rule-3"]);
    let metadata = |name: &str| {
        Some(v1::PodSandboxMetadata { name: name.into(), namespace: "shop".into(), ..Default::default() })
    };
    let config = |name| Some(v1::PodSandboxConfig { metadata: metadata(name), ..Default::default() });
    let run = |name| v1::RunPodSandboxRequest { config: config(name), ..Default::default() };
    assert_eq!(node.call(3, "RunPodSandbox", &run("web-3")).unwrap(), ["rule-1"]);
    assert_eq!(node.call(4, "RunPodSandbox", &run("new")).unwrap(), [""; 0]);
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "pod-9".into(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "web:2".into(), ..Default::default() }),
            ..Default::default()
        }),
        sandbox_config: config("new"),
    };
    let unknown = v1::CreateContainerRequest { pod_sandbox_id: String::new(), ..create };
    assert_eq!(node.call(5, "CreateContainer", &unknown).unwrap(), ["rule-2"]);
}

#[tokio::test]
async fn a_call_about_a_new_container_waits_until_the_container_is_known() {
    let mut node = RuleFixture::with(&["ExecSync pod=shop/web-12: hang"]);
    let exec = frame(&exec("12-main", &["true"], 1));
    let marks = MarkSet::default();
    let interceptor = node.policies.interceptor(&info(1, "ExecSync")).unwrap();
    let mut decision = interceptor.decide(Some(exec), &marks);
    let polled = decision.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the events before the call are not processed yet");
    let inventory = node.inventory.clone();
    node.decoder
        .next(|event| {
            inventory.send_modify(|inventory| {
                let now = Instant::now();
                inventory.fold(Source::Call, now, now, pod_observations(12));
            });
            let crate::tap::TapEvent::Barrier(reached) = event else { panic!("{event:?}") };
            reached.send(()).unwrap();
        })
        .await;
    decision.await;
    assert_eq!(names(&marks), ["rule-1"]);
}

#[test]
fn a_rule_for_one_probe_of_one_pod_affects_no_other_call() {
    let node = RuleFixture::with(&["ExecSync pod=shop/web-3 probe=liveness: abort(UNKNOWN)"]);
    let count = std::env::var("PROBESHIM_POLICY_CALLS").ok().and_then(|count| count.parse().ok());
    let (mut hits, mut expected) = (0, 0);
    for id in 0..count.unwrap_or(CALLS) {
        let (pod, container) = (id % 10, if id % 3 == 0 { "side" } else { "main" });
        let (command, timeout) = (if id % 7 < 4 { "alive" } else { "ready" }, 2 + i64::from(id % 11 == 0));
        let is_probe = (pod, container, command, timeout) == (3, "main", "alive", 2);
        let rules = node.exec(id, &format!("{pod}-{container}"), &[command], timeout);
        assert_eq!(!rules.is_empty(), is_probe, "call {id}");
        hits += rules.len();
        expected += usize::from(is_probe);
        if id % 5 == 0 {
            let stop = v1::StopContainerRequest { container_id: "3-main".into(), timeout: 0 };
            assert_eq!(node.call(id, "StopContainer", &stop), None, "calls to other methods are not read");
        }
    }
    assert!(hits == expected && hits > 100, "{hits} of {expected}");
    assert_eq!(node.rules.list()[0].hits, hits as u64);
}

#[test]
fn a_seeded_run_repeats_exactly() {
    let run = || {
        let node = RuleFixture::with(&["ExecSync percentage=30 seed=11: delay(1s, 500ms)"]);
        let calls = (0..200).map(|id| node.exec(id, &format!("{}-main", id % 10), &["true"], 1).len());
        calls.collect::<Vec<usize>>()
    };
    let first = run();
    assert!((20..120).contains(&first.iter().sum::<usize>()), "{first:?}");
    for _ in 0..100 {
        assert_eq!(run(), first);
    }
}

#[test]
fn unchanged_rules_of_the_configuration_do_not_begin_again() {
    let rules = FaultRules::default();
    let rule = |name: &str, text: &str| {
        FaultRule::parse(name, text, Some(std::time::Duration::from_secs(600)), false).unwrap()
    };
    rules.set_configured(vec![rule("a", "ExecSync: hang"), rule("b", "Status: hang")]).unwrap();
    let expires = |name: &str| rules.list().into_iter().find(|it| it.name == name).and_then(|it| it.expires);
    let before = expires("a");
    rules.set_configured(vec![rule("a", "ExecSync: hang"), rule("c", "Version: hang")]).unwrap();
    assert!(before.is_some() && expires("a") == before);
    let names = |rules: &FaultRules| rules.list().into_iter().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!(names(&rules), ["a", "c"]);
    rules.clear(&["a".to_owned()], "the test").unwrap();
    rules.set_configured(vec![rule("a", "ExecSync: hang"), rule("c", "Version: hang")]).unwrap();
    assert_eq!(names(&rules), ["c"], "a rule that was ended stays ended");
    rules.add(vec![rule("d", "ExecSync: hang")], RuleSource::Command, "the test").unwrap();
    let error = rules.set_configured(vec![rule("d", "Version: hang")]).unwrap_err();
    assert!(error.to_string().contains("\"d\" is the name of an active rule"), "{error}");
    assert_eq!(names(&rules), ["c", "d"], "an error changes nothing");
}

#[tokio::test]
async fn calls_of_probeshim_itself_are_affected_by_rules_that_name_it() {
    let node = RuleFixture::with(&[
        "ExecSync client=probeshim container=main: 1*exit(3, '', broken) -> 1*abort(UNAVAILABLE, gone) -> 1*drop -> off",
        "ExecSync pod=*: abort(UNKNOWN)",
        "ExecSync client=probeshim container=side at=after: set(response.exit_code=9)+delay(1ms)",
    ]);
    let own =
        Peer { uid: 0, pid: i32::try_from(std::process::id()).ok(), program: Some("probeshim".to_owned()) };
    let info = Arc::new(CallInfo { peer: Some(Arc::new(own)), ..(*info(1, "ExecSync")).clone() });
    let call = async |container: &str| {
        let (marks, mut ran) = (MarkSet::default(), false);
        let answer = |request: v1::ExecSyncRequest| {
            ran = request.cmd == ["true"];
            std::future::ready(Ok(Response::new(v1::ExecSyncResponse::default())))
        };
        let result =
            node.policies.apply_to_own(Some(&info), exec(container, &["true"], 1), &marks, answer).await;
        let result = result.map(|response| response.into_inner().exit_code);
        let names = names(&marks).join(" ");
        (result.map_err(|status| status.message().to_owned()), names, ran)
    };
    let first = "rule-1".to_owned();
    assert_eq!(call("3-main").await, (Ok(3), first.clone(), false));
    assert_eq!(call("3-main").await, (Err("gone".to_owned()), first.clone(), false));
    let (result, marks, ran) = call("3-main").await;
    assert!(result.unwrap_err().contains("connection was closed") && marks == first && !ran);
    assert_eq!(call("3-main").await, (Ok(0), String::new(), true));
    assert_eq!(call("3-side").await, (Ok(9), "rule-3 rule-3".to_owned(), true));
}
