//! Cost of fault rules with `command` for the other clients, while one client sends long commands:
//! the latency of a second client with the rules, compared with the same load without rules.

use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use probeshim::cri::framed_message;
use probeshim::cri::v1::ExecSyncRequest;
use prost::Message as _;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::judge::{median, run};
use crate::processes::Processes;
use crate::stub::EXEC_SYNC;
use crate::victim::{self, Victim};

/// Number of rules.
const RULES: usize = 500;

/// Maximum p99 of the second client, as a multiple of its p99 under the same load without rules.
const MAX_FACTOR: f64 = 1.5;

/// Duration of the load.
const LOAD: Duration = Duration::from_secs(4);

/// Time between the starts of two of its calls, if the first ends within that time.
const PACE: Duration = Duration::from_millis(10);

type Pattern = fn(usize) -> String;

/// Rules and a command.
#[derive(Debug)]
pub(crate) struct RuleAttack {
    pub(crate) name: &'static str,
    /// Returns the pattern of a rule.
    pattern: Pattern,
    /// Number of arguments, and the bytes of each.
    arguments: (usize, usize),
}

/// Returns every attack.
pub(crate) fn all() -> Vec<RuleAttack> {
    let slow = |_| "[a-z]*[a-z]*[a-z]*b".to_owned();
    let counted = |_| r"(\w{1,3}x){1,3}y".to_owned();
    let different = |rule| format!("[a-z]*[a-z]*{rule}$");
    let attacks: [(&str, Pattern, (usize, usize)); 5] = [
        ("rules, 120 KB in an argument", slow, (1, 120_000)),
        ("rules, 120 KB in 60,000 arguments", slow, (60_000, 1)),
        ("rules, 4 KB of arguments", counted, (1, 4_000)),
        ("rules, different, 4 KB of arguments", different, (1, 4_000)),
        ("rules, different, 120 KB of arguments", different, (1, 120_000)),
    ];
    attacks.into_iter().map(|(name, pattern, arguments)| RuleAttack { name, pattern, arguments }).collect()
}

impl RuleAttack {
    /// Returns the p99 of a second client, in milliseconds: without the rules, and with them.
    pub(crate) fn measure(&self) -> [f64; 2] {
        let rules: String = (0..RULES).fold("faults:\n".to_owned(), |mut rules, rule| {
            let pattern = (self.pattern)(rule);
            let _ = writeln!(
                rules,
                "- {{name: r{rule}, match: {{method: ExecSync, command: '{pattern}'}}, do: {{delay: 1ms}}, for: 24h}}"
            );
            rules
        });
        ["", &rules].map(|config| {
            let processes = Processes::start_with(config);
            let victim = Victim::start(&processes.shim.socket);
            let calls =
                thread::scope(|scope| scope.spawn(|| run(self.load(&processes.shim.socket))).join().unwrap());
            assert!(calls > 0, "{}: no call was answered", self.name);
            victim.stop().p99
        })
    }

    /// Sends `ExecSync`s with long commands. Returns their number.
    async fn load(&self, socket: &Path) -> u64 {
        let (count, bytes) = self.arguments;
        let cmd = vec!["a".repeat(bytes); count];
        let request = ExecSyncRequest { container_id: "c0".to_owned(), cmd, timeout: 10 };
        let message = framed_message(&request.encode_to_vec());
        let mut connection = victim::connect(socket).await;
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (begun, mut calls) = (Instant::now(), 0);
        while begun.elapsed() < LOAD {
            ticks.tick().await;
            victim::call(&mut connection, EXEC_SYNC, message.clone()).await.unwrap();
            calls += 1;
        }
        calls
    }
}

/// Prints the medians, and returns the violations of the limit.
pub(crate) fn judge(attack: &RuleAttack, measured: &[[f64; 2]]) -> Option<String> {
    let [without, with] = [0, 1].map(|at| median(measured.iter().map(|p99| p99[at]).collect()).unwrap());
    let (name, factor) = (attack.name, with / without);
    println!(
        "{name:<40} p99 {without:.2} ms without rules, {with:.2} ms with {RULES} rules: {factor:.2} times"
    );
    (factor > MAX_FACTOR).then(|| {
        format!("{name}: the second client's p99 is {factor:.2} times that without rules, the limit is {MAX_FACTOR} times")
    })
}
