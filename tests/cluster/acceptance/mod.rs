//! Manifests that a kubelet accepts are accepted by probeshim. Random pods are validated by an API
//! server, whose rules the kubelet applies to static pods, and by probeshim.
//!
//! `PROBESHIM_FUZZ_PODS` sets the number of pods, and `PROBESHIM_FUZZ_SEED` selects others.

mod mutation;
mod pods;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;

use fastrand::Rng;
use fixtures::cluster::ApiServer;
use fixtures::need;
use probeshim::config::{Environment, check};
use serde_json::Value;

/// Seed without one in the environment: a test has the same result each time.
const SEED: u64 = 1;

/// Number of pods without a number in the environment.
const PODS: usize = 600;

/// Parts of messages about manifests that probeshim refuses although they are valid. docs/parity.md
/// has the reasons.
const DOCUMENTED: &[&str] =
    &["supported values: \"Memory\", \"HugePages\", \"HugePages-SIZE\"", "the containers of the pod are: "];

/// Fields for a scheduler, of which probeshim validates only what the kubelet uses.
const FOR_SCHEDULERS: &[&str] = &[
    "/tolerations",
    "/topologySpreadConstraints",
    "/affinity/pod",
    "/affinity/nodeAffinity/preferred",
    "/preemptionPolicy",
];

/// A pod, and what was changed in it at random.
struct Candidate {
    name: String,
    pod: Value,
    mutation: Option<String>,
}

#[test]
#[expect(clippy::print_stdout, reason = "shows how many pods are valid")]
fn random_pods_that_the_api_server_accepts_are_accepted() {
    let server = need!(ApiServer::start());
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("PROBESHIM_FUZZ_SEED").unwrap_or(SEED);
    let count = number("PROBESHIM_FUZZ_PODS").map_or(PODS, |count| usize::try_from(count).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::with_seed(seed);
    let candidates: Vec<Candidate> = (0..count).map(|number| candidate(&mut rng, number)).collect();
    for Candidate { name, pod, .. } in &candidates {
        fs::write(dir.path().join(format!("{name}.json")), pod.to_string()).unwrap();
    }
    let (accepted, errors) = server.dry_run(dir.path());
    let accepted: BTreeSet<String> = accepted.into_iter().collect();
    let (mut refused, mut lax) = (Vec::new(), Vec::new());
    for Candidate { name, mutation, .. } in &candidates {
        let problems = problems(&dir.path().join(format!("{name}.json")));
        let is_documented = problems.iter().any(|line| DOCUMENTED.iter().any(|known| line.contains(known)));
        let change = mutation.as_deref().unwrap_or("unchanged");
        let is_for_schedulers = FOR_SCHEDULERS.iter().any(|field| change.starts_with(field));
        if accepted.contains(name) {
            if !problems.is_empty() && !is_documented {
                refused.push(format!("{name}, {change}: {}", problems.join("; ")));
            }
        } else if problems.is_empty() && !is_for_schedulers {
            let error = errors.lines().find(|line| line.contains(&format!("/{name}.json")));
            lax.push(format!("{name}, {change}: {}", error.unwrap_or("not created")));
        }
    }
    println!("seed {seed}: {} of {count} pods are valid", accepted.len());
    assert!(refused.is_empty(), "seed {seed}: refused by probeshim only:\n{}", refused.join("\n"));
    assert!(lax.is_empty(), "seed {seed}: accepted by probeshim only:\n{}", lax.join("\n"));
    assert!(accepted.len() > count / 3, "seed {seed}: only {} pods are valid", accepted.len());
}

fn candidate(rng: &mut Rng, number: usize) -> Candidate {
    let name = format!("p{number}");
    let mut pod = pods::pod(rng, &name);
    let mutation = rng.bool().then(|| mutation::mutate(rng, &mut pod["spec"]));
    Candidate { name, pod, mutation }
}

/// Returns the problems that probeshim reports for a file.
fn problems(path: &Path) -> Vec<String> {
    let report = check(&[path.to_owned()], None, false, None, &Environment::detect());
    match report.specs {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}
