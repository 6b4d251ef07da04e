//! What is seen of clients → what they have done with pods that are kept alive.

use crate::play::{Act, Key};
use crate::relay::Head;
use crate::tap::{Ended, Stopping};
use crate::world::{Container, Sandbox, World};

/// What a call has done that has ended.
pub(super) fn done(world: &World, ended: &mut Ended) -> Option<(Key, Act)> {
    let method = ended.call.method.label();
    let name = |container: &Container| container.name.name.clone();
    if is_ours(&ended.head) {
        let container = ended.call.container.as_ref().filter(|_| method == "CreateContainer")?;
        let act = Act::Attempted(container.name.clone()?, container.attempt?);
        let sandbox = world.sandbox(ended.call.pod.as_ref()?.id.as_deref()?)?;
        return Some((Key::of(&sandbox.pod)?, act));
    }
    if !ended.went_well() {
        return None;
    }
    let of_container = || {
        let container = world.container(ended.call.container.as_ref()?.id.as_deref()?)?;
        Some((Key::of(&world.sandbox_of(container)?.pod)?, container))
    };
    let of_sandbox = || world.sandbox(ended.call.pod.as_ref()?.id.as_deref()?);
    match method {
        "RunPodSandbox" => {
            let request = ended.request.take()?;
            Some((Key::of(ended.call.pod.as_ref()?)?, Act::Ran(request)))
        }
        "CreateContainer" => {
            let request = ended.request.take()?;
            let name = ended.call.container.as_ref()?.name.clone()?;
            Some((Key::of(&of_sandbox()?.pod)?, Act::Created(name, request)))
        }
        "StartContainer" => {
            let (key, container) = of_container()?;
            Some((key, Act::Started(name(container)?)))
        }
        "RemoveContainer" => {
            let (key, container) = of_container()?;
            is_newest(world, container).then(|| Some((key, Act::LetGo(name(container)?)))).flatten()
        }
        "RemovePodSandbox" => {
            let sandbox = of_sandbox().filter(|sandbox| is_newest_sandbox(world, sandbox))?;
            Some((Key::of(&sandbox.pod)?, Act::Removed))
        }
        _ => None,
    }
}

/// What a call is about to do.
pub(super) fn about_to(world: &World, stopping: &Stopping) -> Option<(Key, Act)> {
    let head = stopping.head.upgrade()?;
    if is_ours(&head) {
        return None;
    }
    if let Some(id) = &stopping.sandbox {
        let sandbox = world.sandbox(id).filter(|sandbox| is_newest_sandbox(world, sandbox))?;
        return Some((Key::of(&sandbox.pod)?, Act::LetGoAll));
    }
    let container = world.container(stopping.container.as_deref()?)?;
    let container = Some(container).filter(|container| is_newest(world, container))?;
    let key = Key::of(&world.sandbox_of(container)?.pod)?;
    Some((key, Act::LetGo(container.name.name.clone()?)))
}

/// Whether a call is one that we have made.
fn is_ours(head: &Head) -> bool {
    let pid = head.peer.as_ref().and_then(|peer| peer.pid);
    pid.is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()))
}

/// Whether there is no later attempt of a container: what has ended before is tidied up by many.
fn is_newest(world: &World, container: &Container) -> bool {
    let pod = world.sandbox_of(container).map(|sandbox| &sandbox.pod);
    let is_later = |other: &Container| {
        other.name.name == container.name.name
            && other.name.attempt > container.name.attempt
            && world.sandbox_of(other).map(|sandbox| names(sandbox))
                == pod.map(|pod| (&pod.namespace, &pod.name, &pod.uid))
    };
    !world.containers().any(|other| is_later(other))
}

fn is_newest_sandbox(world: &World, sandbox: &Sandbox) -> bool {
    let is_later = |other: &Sandbox| names(other) == names(sandbox) && other.attempt > sandbox.attempt;
    !world.sandboxes().any(|other| is_later(other))
}

fn names(sandbox: &Sandbox) -> (&Option<String>, &Option<String>, &Option<String>) {
    let pod = &sandbox.pod;
    (&pod.namespace, &pod.name, &pod.uid)
}
