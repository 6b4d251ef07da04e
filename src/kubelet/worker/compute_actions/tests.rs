//! Cases of Kubernetes' tests of `computePodActions` (`kuberuntime/kuberuntime_manager_test.go`):
//! `TestComputePodActions` and those with init containers, sidecars, restart rules and
//! `RestartAllContainers`.

use super::*;
use crate::cri::v1;
use crate::manifest::ProbeType::{Liveness, Startup};
use crate::manifest::pod::PodOrigin;
use crate::manifest::reader::tests::pod;
use crate::prober::ProbeResult::{Failure, Success, Unknown};

/// Returns a container instance in a state.
pub(in crate::kubelet::worker) fn instance(pod: &Pod, name: &str, state: InstanceState) -> ContainerInstance {
    let container = pod.container(name);
    ContainerInstance {
        id: format!("{name}-0").into(),
        sandbox: "sandbox-0".to_owned(),
        name: name.to_owned(),
        state,
        created_at: 1,
        started_at: 1,
        finished_at: 1,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        hash: container.map(|container| hash(container)).unwrap_or_default(),
        restart_count: 0,
        attempt: 0,
        image: String::new(),
        image_id: String::new(),
        message_file: None,
        log: std::path::PathBuf::new(),
        user: None,
        annotations: Arc::default(),
    }
}

pub(in crate::kubelet::worker) fn running(pod: &Pod, name: &str) -> ContainerInstance {
    instance(pod, name, InstanceState::Running)
}

fn exited(pod: &Pod, name: &str, exit_code: i32) -> ContainerInstance {
    ContainerInstance { exit_code, ..instance(pod, name, InstanceState::Exited) }
}

fn sandbox(attempt: u32) -> SandboxInstance {
    SandboxInstance {
        id: format!("sandbox-{attempt}").into(),
        attempt,
        is_ready: true,
        is_empty: false,
        is_host_network: false,
        created_at: attempt.into(),
        addresses: vec!["10.0.0.2".to_owned()],
    }
}

pub(in crate::kubelet::worker) fn runtime_status(containers: Vec<ContainerInstance>) -> RuntimePodStatus {
    RuntimePodStatus { sandboxes: vec![sandbox(0)], containers }
}

/// Returns the pod actions for these probe results, each by container name and probe type.
fn act(
    pod: &Pod,
    runtime_status: &RuntimePodStatus,
    results: &[(&str, ProbeType, ProbeResult)],
) -> PodActions {
    act_after_kill(pod, runtime_status, results, None)
}

/// Returns the pod actions if the restart of the container with the id `restart_pending` has not
/// been tried after its kill.
fn act_after_kill(
    pod: &Pod,
    runtime_status: &RuntimePodStatus,
    results: &[(&str, ProbeType, ProbeResult)],
    restart_pending: Option<&str>,
) -> PodActions {
    let probe_result = |id: &str, kind| {
        let known = results.iter().find(|(name, of, _)| id == format!("{name}-0") && *of == kind);
        known.map(|(_, _, result)| *result)
    };
    compute_pod_actions(ActionInputs {
        pod,
        runtime_status,
        probe_result: &probe_result,
        probe_spec: Some(&pod.spec),
        restart_pending: &|id| restart_pending == Some(id),
    })
}

/// Describes pod actions in short: the kills, resets and starts, in order.
fn steps(actions: &PodActions) -> String {
    let mut steps = Vec::new();
    let PodActions {
        kill_pod,
        create_sandbox,
        sandbox: _,
        containers_to_kill,
        containers_to_reset,
        init_containers_to_start,
        containers_to_start,
    } = actions;
    steps.extend(kill_pod.then(|| "kill pod".to_owned()));
    steps.extend(create_sandbox.map(|attempt| format!("sandbox {attempt}")));
    let killed = |to_kill: &ContainerToKill| format!("kill {} ({})", to_kill.name, to_kill.message);
    steps.extend(containers_to_kill.iter().map(killed));
    steps.extend(containers_to_reset.iter().map(|kill| format!("reset {}", kill.name)));
    steps.extend(
        init_containers_to_start.iter().chain(containers_to_start).map(|name| format!("start {name}")),
    );
    steps.join(", ")
}

fn three(policy: &str) -> Pod {
    pod(&format!(
        "{{restartPolicy: {policy}, containers: [{{name: a, image: i}}, {{name: b, image: i}}, {{name: c, image: i}}]}}"
    ))
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
#[test]
fn upstream_test_compute_pod_actions() {
    let [always, on_failure, never] = ["Always", "OnFailure", "Never"].map(three);
    let all_running = |pod: &Pod| runtime_status(["a", "b", "c"].map(|name| running(pod, name)).into());
    let ended =
        |pod: &Pod| runtime_status(vec![exited(pod, "a", 0), running(pod, "b"), exited(pod, "c", 111)]);
    let dead = |pod: &Pod, codes: [i32; 3]| RuntimePodStatus {
        sandboxes: vec![SandboxInstance { is_ready: false, ..sandbox(0) }],
        containers: ["a", "b", "c"]
            .into_iter()
            .zip(codes)
            .map(|(name, code)| exited(pod, name, code))
            .collect(),
    };
    let no_address = |pod: &Pod| RuntimePodStatus {
        sandboxes: vec![SandboxInstance { addresses: Vec::new(), ..sandbox(0) }],
        ..all_running(pod)
    };
    let with = |pod: &Pod, first: ContainerInstance| {
        runtime_status(vec![first, running(pod, "b"), running(pod, "c")])
    };
    let changed = ContainerInstance { hash: "other".to_owned(), ..running(&always, "a") };
    let of = |pod: &Pod, state| with(pod, instance(pod, "a", state));
    for (row, pod, runtime_status, results, expected) in [
        ("nothing to do", &always, all_running(&always), None, ""),
        (
            "new pod",
            &always,
            RuntimePodStatus::default(),
            None,
            "kill pod, sandbox 0, start a, start b, start c",
        ),
        ("Always restarts", &always, ended(&always), None, "start a, start c"),
        ("OnFailure restarts what failed", &on_failure, ended(&on_failure), None, "start c"),
        ("OnFailure restarts created", &on_failure, of(&on_failure, InstanceState::Created), None, "start a"),
        ("Never restarts none", &never, ended(&never), None, ""),
        (
            "dead sandbox, Always",
            &always,
            dead(&always, [0, 1, 0]),
            None,
            "kill pod, sandbox 1, start a, start b, start c",
        ),
        (
            "dead sandbox, OnFailure skips what succeeded",
            &on_failure,
            dead(&on_failure, [0, 1, 0]),
            None,
            "kill pod, sandbox 1, start b",
        ),
        ("dead sandbox, OnFailure, all succeeded", &on_failure, dead(&on_failure, [0; 3]), None, "kill pod"),
        ("dead sandbox, Never", &never, dead(&never, [0; 3]), None, "kill pod"),
        (
            "sandbox without address",
            &always,
            no_address(&always),
            None,
            "kill pod, sandbox 1, start a, start b, start c",
        ),
        (
            "another hash",
            &always,
            with(&always, changed),
            None,
            "kill a (Container a definition changed, will be restarted), start a",
        ),
        (
            "liveness Failure",
            &always,
            all_running(&always),
            Some(("a", Liveness, Failure)),
            "kill a (Container a failed liveness probe, will be restarted), start a",
        ),
        (
            "startup Failure",
            &always,
            all_running(&always),
            Some(("a", Startup, Failure)),
            "kill a (Container a failed startup probe, will be restarted), start a",
        ),
        ("liveness Unknown", &always, all_running(&always), Some(("a", Liveness, Unknown)), ""),
        (
            "liveness Failure, Never",
            &never,
            all_running(&never),
            Some(("a", Liveness, Failure)),
            "kill a (Container a failed liveness probe)",
        ),
        (
            "unknown state, even with Never",
            &never,
            of(&never, InstanceState::Unknown),
            None,
            "kill a (Container is in \"unknown\" state, try killing it before restart), start a",
        ),
        ("created, even with Never", &never, of(&never, InstanceState::Created), None, "start a"),
    ] {
        let results: Vec<_> = results.into_iter().collect();
        assert_eq!(steps(&act(pod, &runtime_status, &results)), expected, "{row}");
    }
    // A pod with Never that never had a container gets another sandbox.
    let empty = RuntimePodStatus {
        sandboxes: vec![SandboxInstance { is_ready: false, ..sandbox(0) }],
        containers: Vec::new(),
    };
    assert_eq!(steps(&act(&never, &empty, &[])), "kill pod, sandbox 1, start a, start b, start c");
    // No container is left to run: the pod is killed with its other containers.
    let one = pod("{restartPolicy: Never, containers: [{name: a, image: i}]}");
    let failed = act(&one, &runtime_status(vec![running(&one, "a")]), &[("a", Liveness, Failure)]);
    assert_eq!(steps(&failed), "kill pod");
}

/// A kubelet that is not interrupted tries the restart in the sync of the kill. Its next sync knows
/// only the exit code.
#[test]
fn a_killed_container_is_restarted_by_its_policy_alone_after_its_restart_was_tried() {
    for (policy, code, restart_pending, expected) in [
        ("OnFailure", 0, true, "start a"),
        ("OnFailure", 0, false, ""),
        ("OnFailure", 137, false, "start a"),
        ("Always", 0, false, "start a"),
        ("Never", 137, true, ""),
    ] {
        let pod = three(policy);
        let runtime_status =
            runtime_status(vec![exited(&pod, "a", code), running(&pod, "b"), running(&pod, "c")]);
        let restart_pending = restart_pending.then_some("a-0");
        let actions = act_after_kill(&pod, &runtime_status, &[], restart_pending);
        assert_eq!(steps(&actions), expected, "{policy}, {code}, {restart_pending:?}");
    }
}

#[test]
fn upstream_test_compute_pod_actions_with_restart_rules() {
    for (own, of_pod, code, expected) in [
        ("Always", "Never", 0, "start a"),
        ("OnFailure", "Always", 0, "kill pod"),
        ("OnFailure", "Never", 3, "start a"),
        ("Never", "Always", 3, "kill pod"),
    ] {
        let pod = pod(&format!(
            "{{restartPolicy: {of_pod}, containers: [{{name: a, image: i, restartPolicy: {own}}}]}}"
        ));
        let steps = steps(&act(&pod, &runtime_status(vec![exited(&pod, "a", code)]), &[]));
        assert_eq!(steps, expected, "{own} in {of_pod}, {code}");
    }
    let rule = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]";
    let pod = pod(&format!(
        "{{restartPolicy: Never, containers: [{{name: a, image: i, restartPolicy: Never, {rule}}}]}}"
    ));
    for (code, expected) in [(42, "start a"), (1, "kill pod")] {
        assert_eq!(
            steps(&act(&pod, &runtime_status(vec![exited(&pod, "a", code)]), &[])),
            expected,
            "{code}"
        );
    }
}

#[test]
fn upstream_test_compute_pod_actions_with_restart_all_containers() {
    let rule =
        "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let pod = pod(&format!(
        "{{restartPolicy: Never, initContainers: [{{name: first, image: i}}], containers: [\
         {{name: a, image: i, restartPolicy: Never, {rule}}}, {{name: b, image: i}}]}}"
    ));
    let all =
        |code| runtime_status(vec![exited(&pod, "a", code), running(&pod, "b"), exited(&pod, "first", 0)]);
    assert_eq!(steps(&act(&pod, &all(42), &[])), "reset b, reset first, reset a");
    assert_eq!(steps(&act(&pod, &all(1), &[])), "");
    // All containers have been removed: the pod starts from its first init container.
    assert_eq!(steps(&act(&pod, &runtime_status(Vec::new()), &[])), "start first");
}

#[test]
fn upstream_test_compute_pod_actions_with_init_containers() {
    let with = |policy: &str| {
        pod(&format!(
            "{{restartPolicy: {policy}, initContainers: [{{name: i1, image: i}}, {{name: i2, image: i}}], containers: [{{name: a, image: i}}]}}"
        ))
    };
    let [always, never] = ["Always", "Never"].map(with);
    let ok = |pod: &Pod, name: &str| exited(pod, name, 0);
    for (row, pod, containers, expected) in [
        ("none yet", &always, vec![], "start i1"),
        ("the first runs", &always, vec![running(&always, "i1")], ""),
        ("the first is created", &always, vec![instance(&always, "i1", InstanceState::Created)], "start i1"),
        ("the first is done", &always, vec![ok(&always, "i1")], "start i2"),
        ("the first failed", &always, vec![exited(&always, "i1", 1)], "start i1"),
        ("the first failed, Never", &never, vec![exited(&never, "i1", 1)], "kill pod"),
        ("both are done", &always, vec![ok(&always, "i2"), ok(&always, "i1")], "start a"),
        ("both are done, the first is removed", &always, vec![ok(&always, "i2")], "start a"),
        ("the main one runs", &always, vec![running(&always, "a")], ""),
        ("the main one failed", &always, vec![exited(&always, "a", 1), ok(&always, "i2")], "start a"),
        ("unknown, Never", &never, vec![instance(&never, "i1", InstanceState::Unknown)], "kill pod"),
    ] {
        assert_eq!(steps(&act(pod, &runtime_status(containers), &[])), expected, "{row}");
    }
    // The exit code and the rules of a container in the unknown state do not count: it may run.
    let rule = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [0]}}]";
    for (own, expected) in [
        (
            "OnFailure",
            "kill i1 (Init container is in \"unknown\" state, try killing it before restart), start i1",
        ),
        ("Never", "kill pod"),
    ] {
        let pod = pod(&format!(
            "{{restartPolicy: Never, initContainers: [{{name: i1, image: i, restartPolicy: {own}, {rule}}}], \
             containers: [{{name: a, image: i}}]}}"
        ));
        let unknown = runtime_status(vec![instance(&pod, "i1", InstanceState::Unknown)]);
        assert_eq!(steps(&act(&pod, &unknown, &[])), expected, "{own}");
    }
    let killed = ContainerInstance { reason: "OOMKilled".to_owned(), ..exited(&always, "i1", 0) };
    assert_eq!(steps(&act(&always, &runtime_status(vec![killed]), &[])), "start i1");
}

#[test]
fn upstream_test_compute_pod_actions_with_restartable_init_containers() {
    let with = |policy: &str, probes: &str| {
        pod(&format!(
            "{{restartPolicy: {policy}, initContainers: [{{name: s1, image: i, restartPolicy: Always{probes}}}, \
             {{name: s2, image: i, restartPolicy: Always}}], containers: [{{name: a, image: i}}]}}"
        ))
    };
    let probe = "exec: {command: [x]}";
    let plain = with("Never", "");
    let startup = with("Never", &format!(", startupProbe: {{{probe}}}"));
    let liveness = with("Never", &format!(", livenessProbe: {{{probe}}}"));
    let s1 = |pod: &Pod| running(pod, "s1");
    let both = |pod: &Pod| vec![running(pod, "s2"), s1(pod)];
    let kill = |what: &str| format!("kill s1 (Init container s1 failed {what} probe), ");
    for (row, pod, containers, results, expected) in [
        ("the first", &plain, vec![], None, "start s1".to_owned()),
        (
            "stuck created",
            &plain,
            vec![instance(&plain, "s1", InstanceState::Created)],
            None,
            "start s1".into(),
        ),
        ("started: next", &plain, vec![s1(&plain)], None, "start s2".into()),
        ("all started: main", &plain, both(&plain), None, "start a".into()),
        ("startup missing: wait", &startup, vec![s1(&startup)], None, String::new()),
        ("startup Unknown: wait", &startup, vec![s1(&startup)], Some((Startup, Unknown)), String::new()),
        ("startup Success: next", &startup, vec![s1(&startup)], Some((Startup, Success)), "start s2".into()),
        (
            "startup Failure: again",
            &startup,
            vec![s1(&startup)],
            Some((Startup, Failure)),
            kill("startup") + "start s1",
        ),
        ("liveness missing: next", &liveness, vec![s1(&liveness)], None, "start s2".into()),
        (
            "liveness Unknown: next",
            &liveness,
            vec![s1(&liveness)],
            Some((Liveness, Unknown)),
            "start s2".into(),
        ),
        (
            "liveness Failure: again, and the others go on",
            &liveness,
            both(&liveness),
            Some((Liveness, Failure)),
            kill("liveness") + "start s1, start a",
        ),
        (
            "exited, whatever the policy",
            &plain,
            vec![running(&plain, "a"), running(&plain, "s2"), exited(&plain, "s1", 0)],
            None,
            "start s1".into(),
        ),
        (
            "gone, and the pod was past it",
            &plain,
            vec![running(&plain, "a"), running(&plain, "s2")],
            None,
            "start s1".into(),
        ),
        (
            "all main ones are done",
            &plain,
            vec![exited(&plain, "a", 0), running(&plain, "s2"), exited(&plain, "s1", 1)],
            None,
            "kill pod".into(),
        ),
    ] {
        let results: Vec<_> = results.into_iter().map(|(kind, result)| ("s1", kind, result)).collect();
        assert_eq!(steps(&act(pod, &runtime_status(containers), &results)), expected, "{row}");
    }
    let changed = ContainerInstance { hash: "other".to_owned(), ..s1(&plain) };
    let actions =
        act(&plain, &runtime_status(vec![running(&plain, "a"), running(&plain, "s2"), changed]), &[]);
    assert_eq!(steps(&actions), "kill s1 (Init container s1 definition changed), start s1");
}

/// Kubernetes' `TestPruneInitContainers` and `TestContainerGC`, as far as they concern one pod: of
/// each name the newest instance and the newest exited one are kept.
#[test]
fn upstream_test_prune_init_containers() {
    let pod = pod("{initContainers: [{name: a, image: i}], containers: [{name: b, image: i}]}");
    let numbered = |instance: ContainerInstance, number: u32| ContainerInstance {
        id: format!("{}-{number}", instance.name).into(),
        restart_count: number,
        created_at: number.into(),
        ..instance
    };
    // Newest first, the order of the runtime status.
    let runtime_status = runtime_status(vec![
        numbered(running(&pod, "b"), 3),
        numbered(exited(&pod, "b", 1), 2),
        numbered(exited(&pod, "b", 0), 1),
        numbered(exited(&pod, "a", 0), 2),
        numbered(exited(&pod, "a", 1), 1),
        numbered(instance(&pod, "a", InstanceState::Created), 0),
    ]);
    let old: Vec<&str> = runtime_status.garbage().map(|instance| &*instance.id).collect();
    assert_eq!(old, ["b-1", "a-1", "a-0"]);
}

/// Other containers in the sandbox of a client pod belong to the client.
#[test]
fn a_probe_kill_in_a_client_pod_kills_only_the_failed_container() {
    let probe_spec = pod(
        "{restartPolicy: Never, containers: [{name: a, image: i, livenessProbe: {exec: {command: [x]}}}]}",
    );
    let of_client = Pod {
        origin: PodOrigin::Client { request: Err("unseen".to_owned()), newest: None },
        ..probe_spec.clone()
    };
    let results = [("a", Liveness, Failure)];
    for (pod, expected) in
        [(&probe_spec, "kill pod"), (&of_client, "kill a (Container a failed liveness probe)")]
    {
        assert_eq!(steps(&act(pod, &runtime_status(vec![running(pod, "a")]), &results)), expected);
    }
}

/// The instance that a client created last, and later ones, are newer than all others, whatever
/// their attempts.
#[test]
fn an_instance_created_by_a_client_is_newer_than_dead_instances_of_higher_attempts() {
    let status = |id: &str, attempt, created_at| v1::ContainerStatus {
        id: id.to_owned(),
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt }),
        created_at,
        ..v1::ContainerStatus::default()
    };
    let statuses = || vec![status("dead", 1, 10), status("theirs", 0, 20), status("ours", 2, 30)];
    let order = |statuses: Vec<v1::ContainerStatus>, newest: &str| -> Vec<String> {
        let statuses = statuses.into_iter().map(|status| (status, String::new())).collect();
        let runtime_status = RuntimePodStatus::new(Vec::new(), statuses, |id| id == newest);
        runtime_status.containers.iter().map(|instance| instance.id.to_string()).collect()
    };
    assert_eq!(order(statuses(), "none"), ["ours", "dead", "theirs"]);
    assert_eq!(order(statuses(), "theirs"), ["ours", "theirs", "dead"]);
    assert_eq!(order(statuses()[..2].to_vec(), "theirs"), ["theirs", "dead"]);
    // The clock was set back between the two creations.
    assert_eq!(order(vec![status("ours", 2, 5), status("theirs", 0, 20)], "ours"), ["ours", "theirs"]);
}
