//! Measures the cost of the relay: latency, throughput and memory. It is compared with a direct
//! connection, a plain byte relay (socat) and the bare relay, whose observer ignores all calls.
//!
//! The targets take turns in one run, so that a machine that changes its speed changes it for all.
//! The runtime is procrun, most of whose containers answer immediately, without a process. The
//! client keeps to one connection, as the kubelet does.
//!
//! Arguments name the parts to measure. Without arguments, all parts are measured.

#![allow(clippy::unwrap_used, reason = "a bench fails at the first error")]
#![allow(clippy::print_stdout, reason = "a bench prints its results")]
#![allow(clippy::cast_precision_loss, reason = "no value here has 52 bits")]

mod bare;
mod case;
mod exec;
mod history;
mod load;
mod memory;
mod page;
mod probing;
mod raw;
mod reclaim;
mod rules;
mod storm;
mod target;
mod top;
mod turns;

use std::path::PathBuf;

/// Names of the parts that can be measured.
const PARTS: [&str; 12] = [
    "latency", "pace", "rules", "memory", "crowd", "procrun", "probing", "storm", "exec", "history", "top",
    "page",
];

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == bare::ARGUMENT) {
        let mut path = || PathBuf::from(arguments.next().unwrap());
        return bare::run(&path(), &path());
    }
    // Cargo adds an option to the arguments.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|part| !PARTS.contains(&part.as_str())) {
        panic!("{unknown:?} is not a part; the parts are {}", PARTS.join(", "));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for part in
        PARTS.into_iter().filter(|part| wanted.is_empty() || wanted.iter().any(|wanted| wanted == part))
    {
        runtime.block_on(async {
            match part {
                "latency" => turns::latency().await,
                "pace" => turns::pace().await,
                "rules" => rules::rules().await,
                "storm" => storm::storm(),
                "exec" => exec::exec(),
                "history" => history::history(),
                "top" => top::top(),
                "page" => page::page().await,
                "memory" => {
                    reclaim::rest().await;
                    reclaim::attacks().await;
                    memory::probeshim().await;
                    memory::baseline().await;
                }
                "crowd" => memory::crowd().await,
                "procrun" => memory::procrun().await,
                "probing" => probing::probing().await,
                unknown => unreachable!("{unknown} is not a part"),
            }
        });
    }
}
