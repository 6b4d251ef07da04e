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

/// Longest time in milliseconds in which the endpoint of a running kubelet may not answer.
const MAX_UNANSWERED: u64 = 40_000;

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
        .file("poll-endpoint.pl", include_bytes!("poll-endpoint.pl"));
    let outcome = vm.run(payload);
    assert_eq!(outcome.exit_code, 0, "seed {seed}\n{}\n{}", outcome.text("log"), outcome.log);
    let expected: Vec<String> = (1..=rounds).map(|round| format!("round {round}: identical")).collect();
    assert_eq!(outcome.text("rounds"), expected.join("\n"), "seed {seed}\n{}", outcome.text("log"));
    let (kills, polled) = (outcome.text("kills").lines().count(), outcome.text("polled"));
    println!("{rounds} rounds, {kills} kills, seed {seed}; polls of the kubelet's endpoint:\n{polled}");
    assert!(kills > 0, "seed {seed}: nothing was killed");
    let figure = |name: &str| {
        let line = polled.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("seed {seed}: {name} is missing:\n{polled}")).parse::<u64>().unwrap()
    };
    for socket in ["/run/containerd-2.2/containerd.sock", "/run/probeshim/probeshim.sock"] {
        assert!(figure(socket) > 0, "seed {seed}: {polled}");
    }
    let unanswered = figure("longest");
    assert!(unanswered <= MAX_UNANSWERED, "seed {seed}: {unanswered} ms");
}
