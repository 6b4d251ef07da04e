//! `make equivalence`: what a command sees and does when probeshim executes it, compared with the
//! runtime's own execution, in many kinds of containers. `EQUIVALENCE_KINDS` selects kinds by their
//! names, separated by semicolons.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the matrix is the result")]

mod behaviours;
mod containers;
mod runner;

use fixtures::containerd::Containerd;
use fixtures::image::{self, BUSYBOX, Image};
use fixtures::machine::{program, tool};
use fixtures::need;
use fixtures::runtime::Runtime as _;

use containers::ContainerKind;
use runner::{Matrix, Outcome};

/// Path of the program that prints the attributes of its process, in the image.
const ATTRIBUTES: &str = "/bin/attributes";

#[tokio::test]
async fn a_command_is_the_same_with_and_without_runc() {
    need!(compare("runc").await);
}

/// Compares all kinds of containers on a runtime handler. Fails if a program is missing.
async fn compare(handler: &str) -> Result<(), String> {
    let attributes = tool("attributes-1")?.join("attributes");
    let containerd = Containerd::start_unified()?;
    let mut store = image::Store::new(&program("busybox", "busybox-static")?);
    let program = std::fs::read(attributes).unwrap();
    let image = Image { name: BUSYBOX, user: "", command: &["/bin/sh"] };
    store.add_with(image, &[(&ATTRIBUTES[1..], &program)]);
    containerd.import(&store);
    let matrix = Matrix::new(&containerd, handler);
    let mut problems = Vec::new();
    let selected = std::env::var("EQUIVALENCE_KINDS").ok();
    let selected: Option<Vec<&str>> = selected.as_ref().map(|names| names.split(';').collect());
    let is_selected = |kind: &ContainerKind| match &selected {
        Some(names) => names.contains(&kind.name.as_str()),
        None => true,
    };
    let kinds: Vec<ContainerKind> =
        ContainerKind::all(containerd.folder()).into_iter().filter(is_selected).collect();
    assert!(
        selected.is_none_or(|names| names.len() == kinds.len()),
        "EQUIVALENCE_KINDS names an unknown kind"
    );
    for kind in kinds {
        let outcome = matrix.compare(&kind).await;
        match &outcome {
            Outcome::Equal { direct } => {
                println!("{handler} {}: equal, {direct} executed directly", kind.name);
            }
            Outcome::Forwarded { reason } => {
                println!("{handler} {}: forwarded: {reason}", kind.name);
            }
            Outcome::Different { differences } => {
                println!("{handler} {}: DIFFERENT\n{}", kind.name, differences.join("\n"));
            }
        }
        let is_expected = match (&outcome, kind.forwarded_because) {
            (Outcome::Equal { .. }, None) => true,
            (Outcome::Forwarded { reason }, Some(expected)) => reason.contains(expected),
            _ => false,
        };
        if !is_expected {
            problems.push(format!("{}: {outcome:?}", kind.name));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    Ok(())
}
