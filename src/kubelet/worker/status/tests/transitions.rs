//! Statuses of pods whose containers the runtime no longer has, or has in an earlier sandbox.

use super::*;
use crate::cri::v1::ContainerState::{ContainerExited, ContainerRunning, ContainerUnknown};
use crate::kubelet::pod_status::{ContainerStatusExt as _, PodStatusExt as _};
use crate::manifest::reader::tests::pod;

/// Returns a short description of a container: state, last state and restart count.
fn describe(status: &PodStatus, name: &str) -> String {
    let known = status.containers().find(|known| known.name == name).unwrap();
    let ended = |ended: &corev1::ContainerStateTerminated| {
        format!("{} {}", ended.reason.as_deref().unwrap_or_default(), ended.exit_code)
    };
    let state = match (known.waiting(), known.terminated()) {
        (Some(waiting), _) => waiting.reason.clone().unwrap_or_default(),
        (_, Some(terminated)) => ended(terminated),
        _ => "running".to_owned(),
    };
    let last = known.last_terminated().map(ended).unwrap_or_default();
    format!("{state}, after [{last}], {} restarts", known.restart_count)
}

/// Returns the statuses of a pod at one sync after the other, each with these containers.
fn statuses(
    pod: &Pod,
    syncs: impl IntoIterator<Item = Vec<v1::ContainerStatus>>,
    reasons: &WaitingReasons,
) -> Vec<PodStatus> {
    let (mut statuses, mut before) = (Vec::new(), None);
    for (seconds, containers) in (0..).zip(syncs) {
        let status = status_at(pod, &runtime_status(containers), reasons, before.as_ref(), seconds);
        statuses.push(status.clone());
        before = Some(status);
    }
    statuses
}

#[test]
fn a_running_container_that_vanishes_counts_as_killed_and_as_a_restart() {
    let pod = pod("{containers: [{name: main, image: i}, {name: other, image: i}]}");
    let other = || container("other", 0, ContainerRunning, 0);
    let main = || container("main", 0, ContainerRunning, 0);
    let next = v1::ContainerStatus { id: "main-again".to_owned(), ..main() };
    let all = statuses(
        &pod,
        [vec![main(), other()], vec![other()], vec![other()], vec![next, other()]],
        &WaitingReasons::new(),
    );
    let gone = "ContainerCreating, after [ContainerStatusUnknown 137], 1 restarts";
    let expected = [
        "running, after [], 0 restarts",
        gone,
        gone,
        "running, after [ContainerStatusUnknown 137], 1 restarts",
    ];
    assert_eq!(all.iter().map(|status| describe(status, "main")).collect::<Vec<_>>(), expected);
    assert!(all.iter().all(|status| status.phase() == "Running"), "{all:#?}");
}

#[test]
fn a_container_that_vanishes_from_a_pod_that_is_being_deleted_is_no_restart() {
    let deletion = crate::manifest::pod::Deletion { grace_period: Some(5) };
    let pod = Pod { deletion: Some(deletion), ..pod("{containers: [{name: main, image: i}]}") };
    let all =
        statuses(&pod, [vec![container("main", 0, ContainerRunning, 0)], vec![]], &WaitingReasons::new());
    assert_eq!(
        describe(&all[1], "main"),
        "ContainerCreating, after [ContainerStatusUnknown 137], 0 restarts"
    );
}

#[test]
fn the_end_of_a_container_that_was_removed_stays_until_the_next_instance_runs() {
    let pod = pod("{containers: [{name: main, image: i}]}");
    let back_off = WaitingReasons::from([("main".to_owned(), waiting("CrashLoopBackOff", "back-off"))]);
    let ended = || container("main", 0, ContainerExited, 3);
    let all = statuses(&pod, [vec![ended()], vec![]], &WaitingReasons::new());
    assert_eq!(describe(&all[1], "main"), "Error 3, after [], 0 restarts");
    let all = statuses(&pod, [vec![ended()], vec![]], &back_off);
    assert_eq!(describe(&all[1], "main"), "CrashLoopBackOff, after [Error 3], 0 restarts");
    let next = vec![container("main", 1, ContainerRunning, 0)];
    let all = statuses(&pod, [vec![ended()], vec![], next], &WaitingReasons::new());
    assert_eq!(describe(&all[2], "main"), "running, after [Error 3], 1 restarts");
}

#[test]
fn a_container_in_the_unknown_state_counts_as_killed_if_it_ran() {
    let pod = pod("{containers: [{name: main, image: i}]}");
    let unknown = || container("main", 0, ContainerUnknown, 0);
    let all = statuses(
        &pod,
        [vec![unknown()], vec![container("main", 0, ContainerRunning, 0)], vec![unknown()]],
        &WaitingReasons::new(),
    );
    let expected = [
        ", after [], 0 restarts",
        "running, after [], 0 restarts",
        "ContainerStatusUnknown 137, after [], 1 restarts",
    ];
    assert_eq!(all.iter().map(|status| describe(status, "main")).collect::<Vec<_>>(), expected);
}

#[test]
fn a_removed_init_container_has_completed_once_a_regular_container_exists() {
    let pod =
        pod("{initContainers: [{name: init, image: i}, {name: side, image: i, restartPolicy: Always}], \
         containers: [{name: main, image: i}]}");
    let main = || container("main", 0, ContainerRunning, 0);
    let side = || container("side", 0, ContainerRunning, 0);
    let all = statuses(&pod, [vec![main(), side()]], &WaitingReasons::new());
    assert_eq!(describe(&all[0], "init"), "Completed 0, after [], 0 restarts");
    assert_eq!((all[0].phase(), all[0].is("Initialized")), ("Running", true));
    let all = statuses(&pod, [vec![main()]], &WaitingReasons::new());
    assert_eq!(describe(&all[0], "side"), "PodInitializing, after [], 0 restarts");
}

#[test]
fn a_pod_with_a_new_sandbox_stays_initialized_while_its_init_containers_run_again() {
    let pod = pod("{initContainers: [{name: init, image: i}], containers: [{name: main, image: i}]}");
    let first = vec![container("init", 0, ContainerExited, 0), container("main", 0, ContainerRunning, 0)];
    let again = vec![container("init", 1, ContainerRunning, 0)];
    let all = statuses(&pod, [first, again], &WaitingReasons::new());
    assert_eq!((all[1].phase(), all[1].is("Initialized")), ("Pending", true));
    assert_eq!(describe(&all[1], "main"), "PodInitializing, after [ContainerStatusUnknown 137], 1 restarts");
}

#[test]
fn containers_of_an_earlier_sandbox_do_not_keep_a_pod_running() {
    let pod = pod(
        "{initContainers: [{name: side, image: i, restartPolicy: Always, startupProbe: {exec: {command: [x]}}}], \
         containers: [{name: main, image: i}]}",
    );
    let containers =
        || vec![container("side", 1, ContainerRunning, 0), container("main", 0, ContainerExited, 137)];
    for (sandbox, expected) in [("sandbox", "Running"), ("earlier", "Pending")] {
        let mut runtime_status = runtime_status(containers());
        for main in runtime_status.containers.iter_mut().filter(|it| it.name == "main") {
            sandbox.clone_into(&mut main.sandbox);
        }
        let (node, reasons) = (node(), WaitingReasons::new());
        let inputs =
            StatusInputs { probe_spec: Some(&pod.spec), ..inputs(&pod, &node, &runtime_status, &reasons) };
        assert_eq!(status(&inputs, at(0)).phase(), expected, "main is in {sandbox}");
    }
}

#[test]
fn containers_that_are_removed_to_restart_all_say_so_in_their_last_state() {
    let rule = "restartPolicy: Never, restartPolicyRules: \
                [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let pod = pod(&format!(
        "{{restartPolicy: Never, containers: [{{name: main, image: i, {rule}}}, {{name: other, image: i}}]}}"
    ));
    let other = || container("other", 0, ContainerRunning, 0);
    let exited = vec![container("main", 0, ContainerExited, 42), other()];
    let next = vec![container("main", 1, ContainerRunning, 0), container("other", 1, ContainerRunning, 0)];
    let all = statuses(&pod, [exited, vec![], vec![], next], &WaitingReasons::new());
    let restarting: Vec<bool> = all.iter().map(|status| status.is("AllContainersRestarting")).collect();
    assert_eq!(restarting, [true, false, false, false]);
    assert!(all.iter().all(|status| status.phase() == "Running"), "{all:#?}");
    let waiting = |reason: &str| format!("{reason}, after [RestartingAllContainers 137], 1 restarts");
    for name in ["main", "other"] {
        assert_eq!(describe(&all[1], name), waiting("RestartingAllContainers"));
        assert_eq!(describe(&all[2], name), waiting("ContainerCreating"));
        assert_eq!(describe(&all[3], name), waiting("running"));
    }
}

#[test]
fn a_pod_past_its_deadline_has_failed_while_its_containers_still_stop() {
    let pod =
        pod("{activeDeadlineSeconds: 1, containers: [{name: main, image: i}, {name: other, image: i}]}");
    let (node, reasons) = (node(), WaitingReasons::new());
    for main in [container("main", 0, ContainerRunning, 0), container("main", 0, ContainerExited, 0)] {
        let runtime_status = runtime_status(vec![main]);
        let inputs =
            StatusInputs { is_past_deadline: true, ..inputs(&pod, &node, &runtime_status, &reasons) };
        let status = status(&inputs, at(2));
        assert_eq!((status.phase(), status.reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
        let conditions: Vec<(&str, &str, Option<&str>)> = status
            .conditions
            .iter()
            .flatten()
            .map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_deref()))
            .collect();
        let expected = [
            ("PodReadyToStartContainers", "True", None),
            ("Initialized", "True", None),
            ("Ready", "False", Some("PodFailed")),
            ("ContainersReady", "False", Some("PodFailed")),
            ("PodScheduled", "True", None),
        ];
        assert_eq!(conditions, expected);
    }
}

#[test]
fn a_pod_with_readiness_gates_is_not_ready_although_its_containers_are() {
    let pod = pod(
        "{readinessGates: [{conditionType: example.com/a}, {conditionType: b}], containers: [{name: main, image: i}]}",
    );
    let all = statuses(&pod, [vec![container("main", 0, ContainerRunning, 0)]], &WaitingReasons::new());
    let condition = |kind: &str| all[0].conditions.iter().flatten().find(|it| it.type_ == kind).unwrap();
    assert_eq!(condition("ContainersReady").status, "True");
    let ready = condition("Ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("ReadinessGatesNotReady")));
    let missing =
        |gate: &str| format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.");
    assert_eq!(ready.message, Some(format!("{}, {}", missing("example.com/a"), missing("b"))));
}

#[test]
fn regular_containers_are_sorted_by_name_and_init_containers_as_in_the_spec() {
    let pod = pod("{initContainers: [{name: z-init, image: i}, {name: a-init, image: i}], \
         containers: [{name: z, image: i}, {name: a, image: i}]}");
    let all = statuses(&pod, [vec![container("a-init", 0, ContainerExited, 0)]], &WaitingReasons::new());
    let names: Vec<&str> = all[0].containers().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["z-init", "a-init", "a", "z"]);
    let ready = all[0].conditions.iter().flatten().find(|it| it.type_ == "Ready").unwrap();
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [z a]"));
}

#[test]
fn containers_share_twelve_kibibytes_of_termination_messages() {
    let pod = pod("{initContainers: [{name: init, image: i}], \
         containers: [{name: a, image: i}, {name: b, image: i}, {name: c, image: i}]}");
    let ended = |name: &str, attempt, message: String| v1::ContainerStatus {
        message,
        ..container(name, attempt, ContainerExited, 1)
    };
    let containers = vec![
        ended("init", 0, "x".repeat(4096)),
        ended("a", 1, "é".repeat(2000)),
        ended("a", 0, "x".repeat(4096)),
        ended("b", 0, "é".repeat(1537) + "x"),
        ended("c", 0, "short".to_owned()),
    ];
    let all = statuses(&pod, [containers], &WaitingReasons::new());
    let bytes = |ended: Option<&corev1::ContainerStateTerminated>| {
        ended.and_then(|ended| ended.message.as_ref()).map(String::len)
    };
    let lengths: Vec<_> =
        all[0].containers().map(|it| (bytes(it.terminated()), bytes(it.last_terminated()))).collect();
    let most = Some(3072);
    assert_eq!(lengths, [(most, None), (most, most), (most, None), (Some(5), None)]);
}
