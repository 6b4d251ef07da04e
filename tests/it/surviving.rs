//! probeshim or its runtime is killed at each of its calls to the runtime, and started again: pods
//! end in the same way, and no state is lost.

mod adoption;
mod client_pods;
mod killer;
mod play;
mod runtime;
mod state_dir;

/// Calls that change the state of a runtime or of a container.
const ACTS: [&str; 8] = [
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ExecSync",
];

/// Number of walks that run at the same time.
const AT_ONCE: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Before the call with this number reaches the runtime.
    Asked(usize),
    /// When the runtime has answered the call with this number.
    Answered(usize),
}

/// Returns both moments of each of `calls` calls.
fn moments(calls: usize) -> impl Iterator<Item = Moment> {
    (1..=calls).flat_map(|call| [Moment::Asked(call), Moment::Answered(call)])
}
