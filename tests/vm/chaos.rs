//! Installations and removals that are killed at random moments, with a kubelet as kubeadm since
//! 1.34 sets it up. `PROBESHIM_CHAOS_ROUNDS` sets the number of rounds, and `PROBESHIM_CHAOS_SEED`
//! repeats those of an earlier run.

use std::env;
use std::process;

use fixtures::need;
use fixtures::vm::Vm;

use crate::payload::node_with_kubelet_unit;

/// Rounds without a number in the environment.
const ROUNDS: usize = 10;

/// Longest time in milliseconds in which the sockets of probeshim and of the runtime may both
/// refuse.
const MAX_REFUSED: u64 = 40_000;

#[test]
#[expect(clippy::print_stdout, reason = "shows the measurements")]
fn a_killed_installation_can_be_repeated_or_undone_and_leaves_the_node_as_it_was() {
    let vm = need!(Vm::new());
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<usize>().unwrap());
    let rounds = number("PROBESHIM_CHAOS_ROUNDS").unwrap_or(ROUNDS);
    // bash has seeds of 15 bits.
    let seed = number("PROBESHIM_CHAOS_SEED").unwrap_or(process::id() as usize % 32_768);
    let payload = need!(node_with_kubelet_unit(include_str!("chaos.sh")))
        .file("rounds", rounds.to_string().as_bytes())
        .file("seed", seed.to_string().as_bytes())
        .file("poll-sockets.pl", include_bytes!("poll-sockets.pl"));
    let outcome = vm.run(payload);
    assert_eq!(outcome.exit_code, 0, "seed {seed}\n{}\n{}", outcome.text("log"), outcome.log);
    let expected: Vec<String> = (1..=rounds).map(|round| format!("round {round}: identical")).collect();
    assert_eq!(outcome.text("rounds"), expected.join("\n"), "seed {seed}\n{}", outcome.text("log"));
    let (kills, refused) = (outcome.text("kills").lines().count(), outcome.text("refused"));
    println!("{rounds} rounds, {kills} kills, seed {seed}: both sockets refused for at most {refused} ms");
    assert!(kills > 0, "seed {seed}: nothing was killed");
    assert!(refused.parse::<u64>().unwrap() <= MAX_REFUSED, "seed {seed}: {refused} ms");
}
