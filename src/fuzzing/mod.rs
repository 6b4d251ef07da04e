//! Bodies of the fuzz targets, one for each kind of input that another user, a container or another
//! machine can send. Each passes bytes to the code that reads them in production, and examines the
//! result.
//!
//! The programs in `fuzz/fuzz_targets` call them with the inputs of libFuzzer. A test calls them
//! with the inputs in `fuzz/corpus`. No other module uses this one.

mod admin_requests;
mod admin_state;
mod authority_fix;
mod containerd_events;
mod cri_messages;
mod grpc_responses;
mod http_heads;
mod kubeconfig;
mod kubelet_pods;
mod manifests;
mod recordings;
mod rules;
mod steps;
mod text;

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::direct;

/// The body of a fuzz target. It panics if an input violates a property.
pub type FuzzBody = fn(&[u8]);

/// The targets by name, in alphabetical order.
pub const TARGETS: [(&str, FuzzBody); 12] = [
    ("admin_requests", admin_requests::run),
    ("authority_fix", authority_fix::run),
    ("containerd_events", containerd_events::run),
    ("cri_messages", cri_messages::run),
    ("exec_protocol", direct::interpret),
    ("grpc_responses", grpc_responses::run),
    ("http_heads", http_heads::run),
    ("kubeconfig", kubeconfig::run),
    ("kubelet_pods", kubelet_pods::run),
    ("manifests", manifests::run),
    ("recordings", recordings::run),
    ("rules", rules::run),
];

/// Runs the target with this name.
///
/// # Panics
///
/// Panics if there is no such target, or if the input violates a property.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, body) = target.expect("the name is that of a target");
    body(input);
}

thread_local! {
    static RUNTIME: Runtime =
        Builder::new_current_thread().enable_all().build().expect("the system permits a runtime");
}

/// Runs a future on the runtime of this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}
