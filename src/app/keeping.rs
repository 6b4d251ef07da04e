//! What is seen of clients → what they have done with pods that are kept alive.

use crate::play::{Act, Key};
use crate::relay::Head;
use crate::tap::{Ended, Stopping};
use crate::world::{Container, Sandbox, World};

/// Why what is made is not kept alive, where nothing is.
const NOT_KEPT: &str = "it was made while probeshim did not restart anything";

/// What a call has done that has ended.
pub(super) fn done(world: &World, ended: &mut Ended) -> Option<(Key, Act)> {
    if !ended.went_well() {
        return None;
    }
    let (method, call) = (ended.call.method.label(), &ended.call);
    let sandbox = call.pod.as_ref().and_then(|pod| pod.id.as_deref());
    let container = call.container.as_ref().and_then(|container| container.id.as_deref());
    let of_sandbox = || Key::of(&world.sandbox(sandbox?)?.pod);
    if is_ours(&ended.head) {
        let made = call.container.as_ref().filter(|_| method == "CreateContainer")?;
        return Some((of_sandbox()?, Act::Attempted(made.name.clone()?, made.attempt?)));
    }
    let mut request = ended.request.take().unwrap_or_else(|| Err(NOT_KEPT.to_owned()));
    if ended.head.is_of_kubelet() {
        // It keeps them itself, and what is in them is not for our disk.
        request = Err("a kubelet has made it".to_owned());
    }
    match method {
        "RunPodSandbox" => Some((Key::of(call.pod.as_ref()?)?, Act::Ran(request))),
        "CreateContainer" => {
            let name = call.container.as_ref()?.name.clone()?;
            Some((of_sandbox()?, Act::Created(name, request)))
        }
        "StartContainer" => {
            let container = world.container(container?)?;
            let key = Key::of(&world.sandbox_of(container)?.pod)?;
            Some((key, Act::Started(container.name.name.clone()?)))
        }
        // What was announced as well is known by then; what was not is known now.
        "StopContainer" | "RemoveContainer" => let_go(world, None, container),
        "StopPodSandbox" => let_go(world, sandbox, None),
        "RemovePodSandbox" => {
            let sandbox = world.sandbox(sandbox?).filter(|sandbox| is_newest_sandbox(world, sandbox))?;
            Some((Key::of(&sandbox.pod)?, Act::Removed))
        }
        _ => None,
    }
}

/// Which sandbox or container a client is about to stop or remove.
pub(super) fn about_to(stopping: &Stopping) -> Option<(Option<String>, Option<String>)> {
    let is_theirs = stopping.head.upgrade().is_some_and(|head| !is_ours(&head));
    is_theirs.then(|| (stopping.sandbox.clone(), stopping.container.clone()))
}

/// A client has stopped or removed a sandbox or container, or is about to: it is its own again, unless there is a later one.
pub(super) fn let_go(world: &World, sandbox: Option<&str>, container: Option<&str>) -> Option<(Key, Act)> {
    if let Some(id) = sandbox {
        let sandbox = world.sandbox(id).filter(|sandbox| is_newest_sandbox(world, sandbox))?;
        return Some((Key::of(&sandbox.pod)?, Act::LetGoAll));
    }
    let container = world.container(container?).filter(|container| is_newest(world, container))?;
    let key = Key::of(&world.sandbox_of(container)?.pod)?;
    Some((key, Act::LetGo(container.name.name.clone()?)))
}

/// Whether a call is one that we have made.
fn is_ours(head: &Head) -> bool {
    let pid = head.peer.as_ref().and_then(|peer| peer.pid);
    pid.is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()))
}

/// Whether there is no later attempt of a container: what has ended before is tidied up by many.
pub(super) fn is_newest(world: &World, container: &Container) -> bool {
    let pod = world.sandbox_of(container).map(|sandbox| &sandbox.pod);
    let is_later = |other: &Container| {
        other.name.name == container.name.name
            && other.name.attempt > container.name.attempt
            && world.sandbox_of(other).map(|sandbox| names(sandbox))
                == pod.map(|pod| (&pod.namespace, &pod.name, &pod.uid))
    };
    !world.containers().any(|other| is_later(other))
}

pub(super) fn is_newest_sandbox(world: &World, sandbox: &Sandbox) -> bool {
    let is_later = |other: &Sandbox| names(other) == names(sandbox) && other.attempt > sandbox.attempt;
    !world.sandboxes().any(|other| is_later(other))
}

fn names(sandbox: &Sandbox) -> (&Option<String>, &Option<String>, &Option<String>) {
    let pod = &sandbox.pod;
    (&pod.namespace, &pod.name, &pod.uid)
}
