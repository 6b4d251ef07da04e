//! Measures the cost of fault rules that select no call, of limits and of coalescing.

use std::fmt::Write as _;

use crate::case::Cases;
use crate::target::Target;
use crate::turns::{CONTAINERS, Rhythm, measure};

/// Number of rules.
const RULES: usize = 10_000;

/// Measures calls with no rules, with rules for other methods, and with rules for the method of the
/// calls that select other pods.
pub(crate) async fn rules() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "maxExecSyncs: 1000\nmaxExecSyncsPerContainer: 100\ncoalesceProbes: true\n";
    let targets = [
        Target::procrun(folder.path(), CONTAINERS),
        Target::probeshim_named("no rules", folder.path(), ""),
        Target::probeshim_named("the same", folder.path(), ""),
        Target::probeshim_named("other methods", folder.path(), &config("StopContainer")),
        Target::probeshim_named("other pods", folder.path(), &config("ExecSync")),
        Target::probeshim_named("limits", folder.path(), limits),
    ];
    let cases = Cases::on(targets[0].socket()).await;
    for (case, rhythm, name) in [
        (&cases.synthetic, Rhythm::AtOnce(1), "1 at a time"),
        (&cases.synthetic, Rhythm::PerSecond(200), "200 per second"),
        (&cases.real, Rhythm::AtOnce(1), "1 at a time"),
    ] {
        println!("\n{}, {name}, {RULES} rules that select no call", case.name);
        let measured = measure(&targets, case, rhythm).await;
        for target in &measured[2..] {
            println!(
                "{:>14}: {:.3} times the median without rules",
                target.name(),
                target.ratio_to(&measured[1])
            );
        }
    }
}

/// Returns a configuration with rules for a method, each for another pod that does not exist.
fn config(method: &str) -> String {
    let mut config = "faults:\n".to_owned();
    for rule in 0..RULES {
        let _ = writeln!(
            config,
            "- {{name: r{rule}, match: {{method: {method}, pod: nobody-{rule}}}, do: {{hang: true}}, for: 24h}}"
        );
    }
    config
}
