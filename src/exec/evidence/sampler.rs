//! Reads what the kernel tells, on a thread of its own: a process that is stuck in the kernel can hold up whoever reads about it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::cgroup::{Cgroup, CgroupMount, mounts, pressures};
use super::counters::Counters;
use super::processes::{in_sessions, read_cmdline};
use super::{Evidence, PressureStall, ProcessInfo};

/// Questions that may wait; more are not asked.
const QUEUE_CAPACITY: usize = 1_024;

/// How old a baseline may be to serve another call as well.
const FRESH: Duration = Duration::from_millis(100);

/// Calls whose baseline is kept.
const BASELINES: usize = 8_192;

/// What is asked of the sampler.
#[derive(Debug)]
pub(in crate::exec) enum Ask {
    /// This is the first process of a container.
    Located { container: Arc<str>, pid: i32 },
    /// A container is gone, or has no process any more.
    Gone { container: Arc<str> },
    /// A call begins in a container.
    Baseline { call: u64, container: Arc<str> },
    /// It has ended, and nothing more is to be known.
    Forget { call: u64 },
    /// It has ended: what went on meanwhile?
    Evidence { call: u64, container: Arc<str>, in_flight: (usize, usize) },
    /// What are the words of a process?
    Command { container: Arc<str>, exec: Box<str>, pid: u32 },
    /// Which processes are left of these sessions?
    Left { container: Arc<str>, sessions: HashSet<u32> },
}

/// What the sampler answers.
#[derive(Debug)]
pub(in crate::exec) enum SamplerAnswer {
    /// What went on.
    Evidence { call: u64, evidence: Box<Evidence> },
    /// The words of a process.
    Command { container: Arc<str>, exec: Box<str>, args: Vec<String> },
    /// What is left.
    Left { container: Arc<str>, processes: Vec<ProcessInfo> },
    /// The first process of a container; `None` where the runtime, who is asked for it in the sampler's stead, did not tell.
    Located { container: Arc<str>, pid: Option<i32> },
}

/// The sampler's thread, which ends when this is dropped.
#[derive(Debug)]
pub(in crate::exec) struct Sampler(SyncSender<Ask>);

/// What the thread keeps.
struct SamplerState {
    mounts: Vec<CgroupMount>,
    containers: HashMap<Arc<str>, CgroupCache>,
    baselines: BTreeMap<u64, (Arc<str>, Rc<Baseline>)>,
    node: Option<(Instant, PressureStall)>,
    answers: UnboundedSender<SamplerAnswer>,
}

#[derive(Default)]
struct CgroupCache {
    cgroup: Option<Cgroup>,
    last: Option<Rc<Baseline>>,
}

/// What was counted when a call began.
struct Baseline {
    at: Instant,
    counters: Option<Counters>,
    node: Option<(Instant, PressureStall)>,
}

impl Sampler {
    /// Starts the thread. It answers as long as somebody listens.
    pub(in crate::exec) fn start(answers: UnboundedSender<SamplerAnswer>) -> io::Result<Self> {
        let (asks, request) = sync_channel(QUEUE_CAPACITY);
        thread::Builder::new().name("sampler".to_owned()).spawn(move || {
            let state = SamplerState {
                mounts: mounts(),
                containers: HashMap::new(),
                baselines: BTreeMap::new(),
                node: None,
                answers,
            };
            state.run(&request);
        })?;
        Ok(Self(asks))
    }

    /// Asks; `false` where too much waits already.
    pub(in crate::exec) fn ask(&self, ask: Ask) -> bool {
        self.0.try_send(ask).is_ok()
    }
}

impl SamplerState {
    fn run(mut self, request: &Receiver<Ask>) {
        while let Ok(ask) = request.recv() {
            if let Some(answer) = self.answer(ask)
                && self.answers.send(answer).is_err()
            {
                return;
            }
        }
    }

    fn answer(&mut self, ask: Ask) -> Option<SamplerAnswer> {
        match ask {
            Ask::Located { container, pid } => {
                let cgroup = Cgroup::find(pid, &container, &self.mounts);
                self.containers.insert(container.clone(), CgroupCache { cgroup, last: None });
                self.add_late_baselines(&container);
            }
            Ask::Gone { container } => drop(self.containers.remove(&container)),
            Ask::Baseline { call, container } => {
                let baseline = self.baseline(&container);
                self.baselines.insert(call, (container, baseline));
                if self.baselines.len() > BASELINES {
                    self.baselines.pop_first();
                }
            }
            Ask::Forget { call } => drop(self.baselines.remove(&call)),
            Ask::Evidence { call, container, in_flight } => {
                let evidence = Box::new(self.evidence(call, &container, in_flight));
                return Some(SamplerAnswer::Evidence { call, evidence });
            }
            Ask::Command { container, exec, pid } => {
                let args = read_cmdline(pid)?;
                return Some(SamplerAnswer::Command { container, exec, args });
            }
            Ask::Left { container, sessions } => {
                // Nothing is found where nobody can look.
                let cgroup = self.containers.get(&container).and_then(|known| known.cgroup.as_ref());
                let processes = cgroup.map(|cgroup| in_sessions(&cgroup.processes(), &sessions));
                let processes = processes.unwrap_or_default();
                return Some(SamplerAnswer::Left { container, processes });
            }
        }
        None
    }

    fn baseline(&mut self, container: &Arc<str>) -> Rc<Baseline> {
        let now = Instant::now();
        let node = self.node_pressure(now);
        let Some(known) = self.containers.get_mut(container) else {
            return Rc::new(Baseline { at: now, counters: None, node });
        };
        if let Some(last) = known.last.as_ref().filter(|last| now - last.at < FRESH) {
            return last.clone();
        }
        let counters = known.cgroup.as_ref().map(Cgroup::counters);
        let baseline = Rc::new(Baseline { at: now, counters, node });
        known.last = Some(baseline.clone());
        baseline
    }

    /// Gives calls that had begun before their container was found a baseline of now.
    fn add_late_baselines(&mut self, container: &Arc<str>) {
        let late = self
            .baselines
            .iter()
            .filter(|(_, (place, baseline))| place == container && baseline.counters.is_none());
        let late: Vec<u64> = late.map(|(call, _)| *call).collect();
        for call in late {
            let baseline = self.baseline(container);
            self.baselines.insert(call, (container.clone(), baseline));
        }
    }

    fn node_pressure(&mut self, now: Instant) -> Option<(Instant, PressureStall)> {
        if self.node.is_none_or(|(at, _)| now - at >= FRESH) {
            self.node = Some((now, pressures(Path::new("/proc/pressure"), "")?));
        }
        self.node
    }

    fn evidence(&mut self, call: u64, container: &Arc<str>, in_flight: (usize, usize)) -> Evidence {
        let now = Instant::now();
        let baseline = self.baselines.remove(&call).map(|(_, baseline)| baseline);
        let node = pressures(Path::new("/proc/pressure"), "");
        let cgroup = self.containers.get(container).and_then(|known| known.cgroup.as_ref());
        let counters = cgroup.map(Cgroup::counters).unwrap_or_default();
        let before = baseline.as_ref().and_then(|baseline| baseline.counters).unwrap_or_default();
        let node_before = baseline.as_ref().and_then(|baseline| baseline.node);
        let cpu = counters.cpu.zip(before.cpu);
        Evidence {
            window: baseline.map(|baseline| now - baseline.at).unwrap_or_default(),
            in_flight,
            cpu: cpu.map(|(now, before)| now.since(before, cgroup.and_then(Cgroup::quota))),
            container_pressure: counters.pressure.zip(before.pressure).map(|(now, before)| now.since(before)),
            node_pressure: node.zip(node_before).map(|(now, (_, before))| now.since(before)),
            psi_window: node_before.map(|(at, _)| now - at).unwrap_or_default(),
            pids: cgroup.and_then(Cgroup::pids),
            is_frozen: cgroup.and_then(Cgroup::is_frozen),
            oom_kills: counters
                .oom_kills
                .zip(before.oom_kills)
                .map(|(now, before)| now.saturating_sub(before)),
            load: load(),
        }
    }
}

/// The node's load over the last minute, and how many processors it has.
fn load() -> Option<(f64, usize)> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let last_minute = text.split(' ').next()?.parse().ok()?;
    // Those of the node: what may be used here is another matter.
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some((last_minute, stat.lines().filter(is_one).count()))
}
