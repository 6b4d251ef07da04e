//! Cost of one hostile client for the other clients: latency of a second client and memory of
//! probeshim under each attack, compared with the same attack on the runtime itself.
//!
//! The runtime is a stub in its own process, with many threads. Figures of different
//! runs of this program are not compared. Each attack is run three times, on probeshim and on the
//! stub in turn, and the medians are judged.
//!
//! Arguments are parts of attack names and select attacks. Without arguments all attacks are run.
//! `--runs 1` runs each attack once.

#![allow(clippy::unwrap_used, reason = "an attack that cannot be made is of no use")]
#![allow(clippy::print_stdout, reason = "it prints a table")]
#![allow(clippy::cast_precision_loss, reason = "no figure here has 52 bits")]

mod attacks;
mod flood;
mod frames;
mod judge;
mod processes;
mod rules;
mod stub;
mod victim;

use std::path::PathBuf;
use std::process::ExitCode;

use judge::Attacked;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// First argument of this program in the stub's process.
const STUB_ARGUMENT: &str = "stub";

/// Number of runs of each attack.
const RUNS: usize = 3;

/// Permits as many open files as possible, also in the processes that are started. Returns the
/// number.
fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == STUB_ARGUMENT) {
        stub::run(&PathBuf::from(&arguments[1]));
        return ExitCode::SUCCESS;
    }
    let open_files = raise_file_limit();
    let mut runs = RUNS;
    if let Some(at) = arguments.iter().position(|argument| argument == "--runs") {
        runs = arguments[at + 1].parse().expect("--runs takes a number");
        arguments.drain(at..at + 2);
    }
    let is_wanted =
        |name: &str| arguments.is_empty() || arguments.iter().any(|part| name.contains(part.as_str()));
    let mut attacks = attacks::all(open_files);
    attacks.retain(|attack| is_wanted(attack.name));
    let mut rules = rules::all();
    rules.retain(|attack| is_wanted(attack.name));
    let count = attacks.len() + rules.len();
    assert!(count > 0, "no attack's name contains one of {arguments:?}");
    let mut failures = Vec::new();
    if !attacks.is_empty() {
        judge::print_heading();
    }
    for attack in &attacks {
        let measured: Vec<Attacked> = (0..runs).map(|_| Attacked::measure(attack)).collect();
        failures.extend(judge::judge(attack, &measured));
    }
    for attack in &rules {
        let measured: Vec<_> = (0..runs).map(|_| attack.measure()).collect();
        failures.extend(rules::judge(attack, &measured));
    }
    if failures.is_empty() {
        println!("\nattacks: {count} run, each within its limits");
        return ExitCode::SUCCESS;
    }
    println!("\nLimits exceeded:");
    for failure in &failures {
        println!("  {failure}");
    }
    ExitCode::FAILURE
}
