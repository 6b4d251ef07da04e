//! Tests of pauses with the objects of a node.

use std::time::Duration;

use tokio::task::yield_now;

use super::*;
use crate::cri::unary_message;
use crate::events::{Event, EventFilter, reason};
use crate::manifest::ProbeType::{Liveness, Readiness, Startup};
use crate::policy::PausedProbe::{Discarded, Executed, Success};
use crate::probe::Selector;
use crate::relay::{Effect, Ending};

const MINUTE: Duration = Duration::from_secs(60);

fn pause(selector: &str) -> Pause {
    let PauseSelector(selector) = selector.parse().unwrap();
    Pause { name: None, selector, lifetime: MINUTE, readiness: false }
}

impl RuleFixture {
    /// Begins a pause. Returns its name.
    fn pause(&self, selector: &str) -> String {
        self.policies.pauses.begin(pause(selector), "the test").unwrap().name
    }

    /// Makes an `ExecSync`. Returns how it is treated, and whether it is marked.
    fn paused(&self, info: &Arc<CallInfo>, container: &str, command: &str, timeout: i64) -> PausedProbe {
        let Some(interceptor) = self.policies.interceptor(info) else { return Executed };
        let marks = MarkSet::default();
        let mut decision = interceptor.decide(Some(frame(&exec(container, &[command], timeout))), &marks);
        let polled = decision.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let std::task::Poll::Ready(call) = polled else { panic!("the objects are known") };
        drop(decision);
        let treatment = match call.before.into_iter().next() {
            None => Executed,
            Some(Effect::End(Ending::Response(response), _)) => match response.into_result() {
                Ok(message) => {
                    let message = unary_message(&message).unwrap();
                    assert_eq!(message, b"", "exit code 0, and no output");
                    Success
                }
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::Unavailable);
                    assert!(
                        status.message().starts_with("the probe is paused by probeshim (pause-"),
                        "{status}"
                    );
                    Discarded
                }
            },
            Some(other) => panic!("{other:?}"),
        };
        let marks = marks.get();
        let marked: Vec<&str> = marks.policies.iter().map(|policy| &**policy).collect();
        assert_eq!(marked, if treatment == Executed { vec![] } else { vec!["pause"] });
        treatment
    }

    /// Makes an `ExecSync` of the kubelet.
    fn probed(&self, container: &str, command: &str, timeout: i64) -> PausedProbe {
        self.paused(&info(1, "ExecSync"), container, command, timeout)
    }

    fn pause_names(&self) -> Vec<String> {
        self.policies.pauses.list().into_iter().map(|pause| pause.name).collect()
    }

    fn events(&self, reason: &str) -> Vec<String> {
        let events = self.events.select(&EventFilter::default());
        let of_reason = |event: &&Arc<Event>| event.reason == reason;
        events.iter().filter(of_reason).map(|event| event.message.clone()).collect()
    }
}

/// Returns an `ExecSync` of a client.
fn call_of(program: &str, pid: i32) -> Arc<CallInfo> {
    let peer = Peer { uid: 0, pid: Some(pid), program: Some(program.to_owned()) };
    Arc::new(CallInfo { peer: Some(Arc::new(peer)), ..(*info(1, "ExecSync")).clone() })
}

#[test]
fn only_an_exec_of_a_liveness_probe_alone_is_answered_with_success() {
    for (types, by_default, with_readiness) in [
        (&[][..], Executed, Executed),
        (&[Liveness], Success, Success),
        (&[Startup], Discarded, Discarded),
        (&[Readiness], Executed, Discarded),
        (&[Liveness, Startup], Discarded, Discarded),
        (&[Liveness, Readiness], Discarded, Discarded),
        (&[Readiness, Startup], Discarded, Discarded),
        (&ProbeType::ALL, Discarded, Discarded),
    ] {
        let treatments = [false, true].map(|readiness| PausedProbe::for_types(types, readiness));
        assert_eq!(treatments, [by_default, with_readiness], "{types:?}");
    }
}

#[test]
fn a_pause_answers_the_probes_of_the_containers_that_it_selects() {
    let node = RuleFixture::with(&[]);
    assert_eq!(node.probed("3-main", "alive", 2), Executed, "nothing is paused yet");
    node.pause("shop/web-3");
    assert_eq!(node.probed("3-main", "alive", 2), Success);
    assert_eq!(node.probed("3-main", "ready", 2), Executed);
    assert_eq!(node.probed("3-main", "bye", 0), Executed, "a hook has no timeout");
    assert_eq!(node.probed("3-main", "alive", 0), Executed);
    assert_eq!(node.probed("4-main", "up", 2), Executed, "another pod");
    node.pause("pod=web-4,container=main");
    assert_eq!(node.probed("4-main", "up", 2), Discarded);
    assert_eq!(node.probed("4-main", "both", 1), Discarded, "two probes have this command");
    assert_eq!(node.policies.pauses.list().iter().map(|pause| pause.answered).collect::<Vec<_>>(), [1, 2]);
    let crictl = call_of("crictl", 1);
    assert_eq!(node.paused(&crictl, "3-main", "alive", 2), Executed, "a user wants to know the result");
    assert_eq!(node.paused(&crictl, "3-main", "other", 2), Executed);
}

#[test]
fn readiness_is_paused_if_one_of_the_pauses_of_the_container_includes_it() {
    let node = RuleFixture::with(&[]);
    node.pause("web-3");
    let readiness = Pause { readiness: true, ..pause("namespace=shop") };
    node.policies.pauses.begin(readiness, "the test").unwrap();
    assert_eq!(node.probed("3-main", "ready", 2), Discarded);
    node.policies.pauses.resume(&["pause-2".to_owned()], "the test").unwrap();
    assert_eq!(node.probed("3-main", "ready", 2), Executed);
    assert_eq!(node.probed("3-main", "alive", 2), Success);
}

#[test]
fn unknown_execs_of_a_kubelet_with_a_timeout_are_discarded() {
    let node = RuleFixture::with(&[]);
    node.pause("*");
    assert_eq!(node.probed("5-main", "anything", 1), Discarded);
    assert_eq!(node.probed("5-main", "anything", 0), Executed, "a hook");
    assert_eq!(node.paused(&call_of("crictl", 1), "5-main", "anything", 1), Executed, "no kubelet");
}

#[test]
fn calls_of_probeshim_itself_are_not_paused() {
    let node = RuleFixture::with(&[]);
    node.pause("web-3");
    let own = call_of("probeshim", i32::try_from(std::process::id()).unwrap());
    assert_eq!(node.paused(&own, "3-main", "alive", 2), Executed);
    assert_eq!(node.policies.pauses.list()[0].answered, 0);
}

#[tokio::test]
async fn a_pause_that_begins_while_a_call_waits_answers_the_call() {
    let node = RuleFixture::with(&[]);
    let limits = ExecLimits { node: std::num::NonZeroU32::new(1), ..ExecLimits::default() };
    node.policies.set_exec(ExecSettings { limits, ..ExecSettings::default() });
    let admission = async |id, marks: &MarkSet| {
        let interceptor = node.policies.interceptor(&info(id, "ExecSync")).unwrap();
        interceptor.decide(Some(frame(&exec("3-main", &["alive"], 2))), marks).await.next.unwrap()
    };
    let marks = MarkSet::default();
    let running = admission(1, &marks).await.decide(None, &marks).await;
    let marks = MarkSet::default();
    let waiting = admission(2, &marks).await;
    let mut waiting = waiting.decide(None, &marks);
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    node.pause("shop/web-3");
    // The other call still runs.
    let call = waiting.await;
    drop(running);
    let [Effect::End(Ending::Response(response), _)] = &call.before[..] else { panic!("{call:?}") };
    (**response).clone().into_result().unwrap();
    let marks = marks.get();
    let names: Vec<&str> = marks.policies.iter().map(|policy| &**policy).collect();
    assert_eq!(names, ["limit", "pause"]);
    node.policies.end("the test");
    assert_eq!(node.pause_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_after_its_lifetime_with_an_event() {
    let node = RuleFixture::with(&[]);
    tokio::spawn(node.policies.pauses.clone().expire());
    node.pause("web-3");
    let long = Pause { lifetime: 2 * MINUTE, ..pause("web-4") };
    node.policies.pauses.begin(long, "the test").unwrap();
    tokio::time::advance(Duration::from_millis(59_999)).await;
    assert_eq!(node.probed("3-main", "alive", 2), Success);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(node.probed("3-main", "alive", 2), Executed, "at once");
    assert_eq!(node.pause_names(), ["pause-2"]);
    while node.events(reason::PAUSE_ENDED).is_empty() {
        yield_now().await;
    }
    let ended = "Pause pause-1 was ended by the end of its time. 1 probe was not executed";
    assert_eq!(node.events(reason::PAUSE_ENDED), [ended]);
    tokio::time::advance(MINUTE).await;
    assert_eq!(node.probed("4-main", "up", 2), Executed);
}

#[test]
fn pauses_have_names_and_end_by_name_or_all_together() {
    let node = RuleFixture::with(&[]);
    let pauses = &node.policies.pauses;
    let begin = |name: &str| pauses.begin(Pause { name: Some(name.to_owned()), ..pause("web-3") }, "crictl");
    begin("pause-1").unwrap();
    assert_eq!(node.pause("web-4"), "pause-2", "the next free name");
    let error = begin("pause-2").unwrap_err().to_string();
    assert!(error.starts_with("name \"pause-2\" is the name of an active pause"), "{error}");
    begin("third").unwrap();
    let resume = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        pauses.resume(&names, "crictl[7]")
    };
    let error = resume(&["third", "other"]).unwrap_err().to_string();
    assert_eq!(error, "name \"other\" is no active pause; active are pause-1, pause-2, third");
    assert_eq!(node.pause_names().len(), 3, "an error ends none");
    assert_eq!(resume(&["pause-1"]).unwrap().len(), 1);
    assert_eq!(node.probed("3-main", "alive", 2), Success, "another pause selects it too");
    assert_eq!(resume(&[]).unwrap().len(), 2);
    assert_eq!(resume(&[]).unwrap(), []);
    assert_eq!(node.probed("3-main", "alive", 2), Executed);
    assert_eq!(
        resume(&["third"]).unwrap_err().to_string(),
        "name \"third\" is no active pause: there are none"
    );
    let begins = node.events(reason::PAUSE_BEGAN);
    assert!(
        begins[0].starts_with("Pause pause-1 was requested by crictl, and ends after 1m0s: "),
        "{begins:?}"
    );
    let ends = node.events(reason::PAUSE_ENDED);
    assert_eq!(ends[0], "Pause pause-1 was ended by crictl[7]. 0 probes were not executed");
    assert_eq!((begins.len(), ends.len()), (3, 3));
}

#[test]
fn a_pause_without_limits_is_refused() {
    let validated = |change: fn(&mut Pause), all: bool| {
        let mut pause = pause("web-3");
        change(&mut pause);
        pause.validated(all).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(validated(|pause| pause.lifetime = Duration::from_secs(86_400), false), Ok(()));
    let error = validated(|pause| pause.lifetime = Duration::from_secs(86_401), false).unwrap_err();
    assert_eq!(error, "the duration (for) 24h0m1s must be more than 0s and at most 24h");
    assert!(validated(|pause| pause.lifetime = Duration::ZERO, false).is_err());
    let error =
        validated(|pause| pause.selector = "*/*".parse::<PauseSelector>().unwrap().0, false).unwrap_err();
    assert!(error.contains("would select every container") && error.contains("--all"), "{error}");
    assert_eq!(validated(|pause| pause.selector = Selector::default(), true), Ok(()));
    let error = validated(|pause| pause.name = Some("a b".to_owned()), false).unwrap_err();
    assert!(error.contains("must be a name of 1 to 63"), "{error}");
}

#[test]
fn the_containers_of_a_pause_have_the_treatment_of_each_probe() {
    let node = RuleFixture::with(&[]);
    let listed = |selector: &str, readiness: bool, managed: &str| {
        let status = node.policies.pauses.begin(Pause { readiness, ..pause(selector) }, "the test").unwrap();
        let containers = node.policies.pauses.containers(&status, |pod| pod.uid.as_deref() == Some(managed));
        node.policies.pauses.resume(&[], "the test").unwrap();
        let text = |container: PausedContainer| {
            let probes = container.probes.iter().map(|probe| {
                format!(" {}:{}:{}", probe.probe_type.name(), probe.handler, probe.treatment.name())
            });
            let unknown = if container.probes_known { "" } else { " unknown" };
            let pod = container.pod.name.as_deref().unwrap();
            format!("{pod}/{}{unknown}{}", container.container.unwrap(), probes.collect::<String>())
        };
        containers.into_iter().map(text).collect::<Vec<String>>()
    };
    assert_eq!(
        listed("shop/web-3", false, ""),
        ["web-3/main readiness:exec:executed liveness:exec:success", "web-3/side"]
    );
    assert_eq!(
        listed("pod=web-3,container=main", true, ""),
        ["web-3/main readiness:exec:discarded liveness:exec:success"]
    );
    assert_eq!(
        listed("web-4", false, ""),
        [
            "web-4/main startup:exec:discarded readiness:exec:discarded liveness:exec:discarded",
            "web-4/side readiness:tcpSocket:not-relayed liveness:httpGet:not-relayed",
        ]
    );
    assert_eq!(
        listed("web-4", true, "uid-4"),
        [
            "web-4/main startup:exec:kill-held readiness:exec:executed liveness:exec:kill-held",
            "web-4/side readiness:tcpSocket:executed liveness:httpGet:kill-held",
        ]
    );
    assert_eq!(listed("web-5", false, ""), ["web-5/main unknown", "web-5/side unknown"]);
    assert_eq!(listed("other", false, ""), [""; 0]);
    assert_eq!(listed("*", false, "").len(), 20);
}
