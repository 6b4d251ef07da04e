//! `make equivalence`: what a command sees and does when probeshim executes it, compared with the
//! runtime's own execution, in many kinds of containers: on this machine, and on a node in a
//! virtual machine. `EQUIVALENCE_KINDS` selects kinds by their names, separated by semicolons.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the matrix is the result")]

mod behaviours;
mod containers;
mod runner;
mod vm;

use std::env;
use std::path::Path;

use fixtures::containerd::Containerd;
use fixtures::image::{BUSYBOX, Image, Store};
use fixtures::machine::{program, tool};
use fixtures::need;
use fixtures::runtime::Runtime as _;

use containers::{ContainerKind, node};
use runner::{Matrix, Outcome, RUNTIME_FAILS};

/// Path of the program that prints the attributes of its process, in the image.
const ATTRIBUTES: &str = "bin/attributes";

/// OCI runtimes of a node, each with a runtime handler or several.
const OCI_RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Variables that select kinds, and name the socket and the handler of a runtime.
const KINDS: &str = "EQUIVALENCE_KINDS";
const RUNTIME: &str = "EQUIVALENCE_RUNTIME";
const HANDLER: &str = "EQUIVALENCE_HANDLER";

/// cgroup of the pods on a node, whose cgroups systemd manages.
const SLICE: &str = "equivalence.slice";

/// On runc and crun of this machine, or on the runtime of `EQUIVALENCE_RUNTIME`, which has the
/// images, and whose node is prepared as by `vm.sh`.
#[tokio::test]
async fn a_command_is_the_same_with_and_without_the_runtime() {
    if let Some(runtime) = env::var_os(RUNTIME) {
        let handler = env::var(HANDLER).unwrap_or_else(|error| panic!("{HANDLER}: {error}"));
        let dir = tempfile::tempdir().unwrap();
        let matrix = Matrix::new(dir.path(), Path::new(&runtime), &handler).on_emulated_node(SLICE);
        let mut kinds = node::kinds();
        kinds.extend(ContainerKind::common(dir.path()));
        return compare(&matrix, selected(kinds)).await;
    }
    let store = need!(images());
    let containerd = need!(Containerd::start_unified());
    containerd.import(&store);
    for name in OCI_RUNTIMES {
        need!(program(name, name));
        println!("{name}:");
        let folder = containerd.folder().join(name.to_owned() + "-matrix");
        std::fs::create_dir(&folder).unwrap();
        let matrix = Matrix::new(&folder, &containerd.socket(), name);
        compare(&matrix, selected(ContainerKind::common(&folder))).await;
    }
}

/// Returns images for the containers. Fails if a program is missing.
fn images() -> Result<Store, String> {
    let attributes = std::fs::read(tool("attributes-1")?.join("attributes")).unwrap();
    let mut store = Store::new(&program("busybox", "busybox-static")?);
    let image = Image { name: BUSYBOX, user: "", command: &["/bin/sh"] };
    store.add_with(image, &[(ATTRIBUTES, &attributes)]);
    Ok(store)
}

/// Returns the kinds that the environment selects. Names of other kinds are ignored if at least one
/// is known, because some kinds exist only on a node.
fn selected(mut kinds: Vec<ContainerKind>) -> Vec<ContainerKind> {
    if let Ok(names) = env::var(KINDS) {
        kinds.retain(|kind| names.split(';').any(|name| name == kind.name));
        assert!(!kinds.is_empty(), "{KINDS} names no known kind: {names}");
    }
    kinds
}

/// Compares kinds of containers.
async fn compare(matrix: &Matrix, kinds: Vec<ContainerKind>) {
    let mut problems = Vec::new();
    for kind in kinds {
        let outcome = matrix.compare(&kind).await;
        match &outcome {
            Outcome::Equal { direct } => println!("{}: equal, {direct} executed directly", kind.name),
            Outcome::Forwarded { reason } => println!("{}: forwarded: {reason}", kind.name),
            Outcome::NotStarted { error } => println!("{}: not started: {error}", kind.name),
            Outcome::Different { differences } => {
                println!("{}: DIFFERENT\n{}", kind.name, differences.join("\n"));
            }
        }
        let is_expected = match (&outcome, kind.forwarded_because) {
            (Outcome::Equal { .. }, None) => true,
            (Outcome::Forwarded { reason }, Some(expected)) => reason.contains(expected),
            // A client gets the runtime's own error.
            (Outcome::Forwarded { reason }, None) => reason.starts_with(RUNTIME_FAILS),
            (Outcome::NotStarted { error }, _) => {
                kind.unsupported_error.is_some_and(|expected| error.contains(expected))
            }
            _ => false,
        };
        if !is_expected {
            problems.push(format!("{}: {outcome:?}", kind.name));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
