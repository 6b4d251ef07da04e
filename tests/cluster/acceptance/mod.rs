//! Manifests that an API server accepts are accepted by probeshim, and others are not. Random pods,
//! and workloads with random changes, are validated by an API server, whose rules the kubelet
//! applies to static pods, and by probeshim.
//!
//! `PROBESHIM_FUZZ_PODS` and `PROBESHIM_FUZZ_FILES` set the numbers of pods and of workloads, and
//! `PROBESHIM_FUZZ_SEED` selects others.

mod files;
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

/// Seed without one in the environment: a test has the same result each time.
const SEED: u64 = 1;

/// Number of pods without a number in the environment.
const PODS: usize = 600;

/// Number of workloads without a number in the environment.
const FILES: usize = 1_200;

/// Parts of messages about manifests that probeshim refuses although they are valid. docs/parity.md
/// has the reasons.
const DOCUMENTED: &[&str] = &[
    "supported values: \"Memory\", \"HugePages\", \"HugePages-SIZE\"",
    "the containers of the pod are: ",
    "image.reference: Required value",
    "image: Invalid value: \" 1 \": must not have leading or trailing whitespace",
];

/// Fields for a scheduler, of which probeshim validates only what the kubelet uses.
const FOR_SCHEDULERS: &[&str] = &[
    "/tolerations",
    "/topologySpreadConstraints",
    "/affinity/pod",
    "/affinity/nodeAffinity/preferred",
    "/preemptionPolicy",
];

/// A file with a pod or workload, and what was changed in it at random.
struct Candidate {
    name: String,
    text: String,
    mutation: Option<String>,
}

#[test]
fn random_pods_that_the_api_server_accepts_are_accepted() {
    let mut rng = Rng::with_seed(number("PROBESHIM_FUZZ_SEED").unwrap_or(SEED));
    let count = count("PROBESHIM_FUZZ_PODS", PODS);
    compare(&(0..count).map(|number| random_pod(&mut rng, number)).collect::<Vec<_>>());
}

#[test]
fn files_of_charts_and_stories_are_judged_as_by_the_api_server() {
    let mut rng = Rng::with_seed(number("PROBESHIM_FUZZ_SEED").unwrap_or(SEED));
    let (count, workloads) = (count("PROBESHIM_FUZZ_FILES", FILES), files::workloads());
    assert!(workloads.len() > 100, "only {} workloads were found", workloads.len());
    let file = |number: usize| {
        let mut workload = workloads[number % workloads.len()].clone();
        // Each workload is judged once as it is.
        let mutation = (number >= workloads.len()).then(|| mutation::mutate(&mut rng, &mut workload));
        let name = format!("w{number}");
        if let Some(metadata) = workload["metadata"].as_object_mut() {
            metadata.insert("name".to_owned(), name.clone().into());
        }
        Candidate { text: files::text(&mut rng, &workload), name, mutation }
    };
    compare(&(0..count.max(workloads.len())).map(file).collect::<Vec<_>>());
}

/// Returns the number in a variable of the environment.
fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse::<u64>().unwrap())
}

fn count(variable: &str, default: usize) -> usize {
    number(variable).map_or(default, |count| usize::try_from(count).unwrap())
}

fn random_pod(rng: &mut Rng, number: usize) -> Candidate {
    let name = format!("p{number}");
    let mut pod = pods::pod(rng, &name);
    let mutation = rng.bool().then(|| mutation::mutate(rng, &mut pod["spec"]));
    Candidate { name, text: pod.to_string(), mutation }
}

/// Compares probeshim's judgement of each candidate with that of an API server.
#[expect(clippy::print_stdout, reason = "shows how many candidates are valid")]
fn compare(candidates: &[Candidate]) {
    let server = need!(ApiServer::start());
    let dir = tempfile::tempdir().unwrap();
    let path = |candidate: &Candidate| dir.path().join(format!("{}.yaml", candidate.name));
    for candidate in candidates {
        fs::write(path(candidate), &candidate.text).unwrap();
    }
    let (accepted, errors) = server.dry_run(dir.path());
    let accepted: BTreeSet<String> = accepted.into_iter().collect();
    let (mut refused, mut lax) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let Candidate { name, mutation, .. } = candidate;
        let problems = problems(&path(candidate));
        let is_documented = problems.iter().any(|line| DOCUMENTED.iter().any(|known| line.contains(known)));
        let change = mutation.as_deref().unwrap_or("unchanged");
        let is_for_schedulers = FOR_SCHEDULERS.iter().any(|field| change.contains(field));
        if accepted.contains(name) {
            if !problems.is_empty() && !is_documented {
                refused.push(format!("{name}, {change}: {}", problems.join("; ")));
            }
        } else if problems.is_empty() && !is_for_schedulers {
            let error = errors.lines().find(|line| line.contains(&format!("/{name}.yaml")));
            lax.push(format!("{name}, {change}: {}", error.unwrap_or("not created")));
        }
    }
    let count = candidates.len();
    println!("{} of {count} are valid", accepted.len());
    assert!(
        refused.is_empty() && lax.is_empty(),
        "refused by probeshim only:\n{}\naccepted by probeshim only:\n{}",
        refused.join("\n"),
        lax.join("\n")
    );
    assert!(accepted.len() > count / 3, "only {} are valid", accepted.len());
}

/// Returns the problems that probeshim reports for a file.
fn problems(path: &Path) -> Vec<String> {
    let report = check(&[path.to_owned()], None, true, None, &Environment::detect());
    match report.specs {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}
