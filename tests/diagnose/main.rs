//! `make diagnose`: incidents with a known cause, and the answers of `explain`, `lint` and
//! `describe` to the first question about them. Most are pods of a real kubelet whose runtime is
//! probeshim; for the others, probeshim runs the probes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "the score is shown")]

mod answer;
mod condition;
mod incident;
mod observed;
mod played;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use fixtures::containerd::Version;
use fixtures::need;

use self::answer::{Diagnosis, Score};
use self::incident::{Incident, Prober};

/// Number of incidents at the same time. More would disturb each other on two processors.
const AT_ONCE: usize = 5;

/// Returns the diagnoses of incidents. A few incidents run at the same time, and each diagnosis is
/// shown when it has been read.
fn side_by_side(incidents: &[&Incident], run: impl Fn(&Incident) -> Diagnosis + Sync) -> Vec<Diagnosis> {
    let (queue, diagnoses) = (Mutex::new(VecDeque::from(incidents.to_vec())), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap().pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(incident) = next() {
                    let result = shown(run(incident));
                    diagnoses.lock().unwrap().push(result);
                }
            });
        }
    });
    diagnoses.into_inner().unwrap()
}

/// Shows a diagnosis and returns it.
fn shown(diagnosis: Diagnosis) -> Diagnosis {
    eprintln!("{diagnosis}");
    diagnosis
}

/// Returns the selected incidents: those that the variable `DIAGNOSE_INCIDENTS` names, separated by
/// blanks, the short form if its value is `short`, or else all.
fn selected() -> Vec<Incident> {
    let mut incidents = Incident::read_all();
    match std::env::var("DIAGNOSE_INCIDENTS").as_deref() {
        Ok("short") => incidents.retain(|incident| incident.short),
        Ok(names) => incidents.retain(|incident| names.split_whitespace().any(|name| name == incident.name)),
        Err(_) => {}
    }
    assert!(!incidents.is_empty(), "DIAGNOSE_INCIDENTS names no incident");
    incidents
}

/// Returns the versions of containerd: the variable `DIAGNOSE_CONTAINERD` selects one.
fn versions() -> Vec<(&'static str, Version)> {
    let mut versions = vec![("2.2", Version::V2_2), ("1.6", Version::V1_6)];
    if let Ok(only) = std::env::var("DIAGNOSE_CONTAINERD") {
        versions.retain(|(name, _)| *name == only);
        assert!(!versions.is_empty(), "DIAGNOSE_CONTAINERD must be 2.2 or 1.6, but is {only}");
    }
    versions
}

/// The first answer about each incident is right, and healthy pods have no finding.
#[test]
fn the_cause_of_every_incident_is_named() {
    let incidents = selected();
    let of = |prober| incidents.iter().filter(|it| it.prober == prober).collect::<Vec<_>>();
    let mut results = Vec::new();
    for (name, version) in versions() {
        let behind_kubelet = of(Prober::Kubelet);
        if !behind_kubelet.is_empty() {
            eprintln!("\na kubelet on containerd {name}:");
            results.push(observed::diagnose(version, &behind_kubelet));
        }
    }
    let probed = of(Prober::Probeshim);
    if !probed.is_empty() {
        eprintln!("\nprobes of probeshim:");
        results.push(played::diagnose(&probed));
    }
    let all: Vec<&Diagnosis> = results.iter().flatten().flatten().collect();
    let score: Score = all.iter().map(|diagnosis| diagnosis.score()).sum();
    let is_right = |diagnosis: &&&Diagnosis| diagnosis.score().is_full();
    eprintln!(
        "\ndiagnoses: {score}, incidents: {} of {} right",
        all.iter().filter(is_right).count(),
        all.len()
    );
    assert!(score.is_full(), "{score}");
    // A missing program does not hide wrong answers, so it is reported last.
    for result in results {
        need!(result);
    }
}
