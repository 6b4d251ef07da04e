//! Reads counters and processes from the kernel on a separate thread: reading `/proc` of a task in
//! D state can block.

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
use super::processes::{in_sessions, monitor_of, read_cmdline, session_members};
use super::zombies::{ZombieReport, ZombieSearch};
use super::{Evidence, PressureStall, ProcessInfo};

/// Maximum number of queued requests; further requests are refused.
const QUEUE_CAPACITY: usize = 1_024;

/// Maximum age of a baseline that is shared with another call.
const BASELINE_MAX_AGE: Duration = Duration::from_millis(100);

/// Maximum number of calls whose baseline is kept.
const MAX_BASELINES: usize = 8_192;

/// A request to the sampler.
#[derive(Debug)]
pub(in crate::execsync) enum SampleRequest {
    /// Sets the pid of the first process of a container.
    InitPid { container: Arc<str>, pid: i32 },
    /// Forgets a container that has exited or was removed.
    ContainerGone { container: Arc<str> },
    /// Takes the baseline of a call that starts.
    Baseline { call: u64, container: Arc<str> },
    /// Discards the baseline of a call that needs no evidence.
    DiscardBaseline { call: u64 },
    /// Collects the evidence of a call that has ended.
    Evidence { call: u64, container: Arc<str>, in_flight: (usize, usize) },
    /// Reads the command line of a process.
    Cmdline { container: Arc<str>, exec: Box<str>, pid: u32 },
    /// Lists the processes that are left of `sessions`, and counts the zombies that `execs`, the
    /// pids of execs that have ended, left.
    SessionProcesses { container: Arc<str>, sessions: HashSet<u32>, execs: HashSet<u32> },
}

/// A result of the sampler.
#[derive(Debug)]
pub(in crate::execsync) enum SampleResult {
    /// The evidence of a call.
    Evidence { call: u64, evidence: Box<Evidence> },
    /// The command line of a process.
    Cmdline { container: Arc<str>, exec: Box<str>, args: Vec<String> },
    /// Processes that are left of sessions, and zombies that execs left.
    SessionProcesses { container: Arc<str>, processes: Vec<ProcessInfo>, zombies: ZombieReport },
    /// The pid of the first process of a container; `None` if the runtime did not report it. The
    /// analyzer sends this result, not the sampler.
    InitPid { container: Arc<str>, pid: Option<i32> },
}

/// Handle of the sampler's thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(in crate::execsync) struct Sampler(SyncSender<SampleRequest>);

/// State of the sampler's thread.
struct SamplerState {
    mounts: Vec<CgroupMount>,
    containers: HashMap<Arc<str>, SampledContainer>,
    baselines: BTreeMap<u64, (Arc<str>, Rc<Baseline>)>,
    node_pressure: Option<(Instant, PressureStall)>,
    results: UnboundedSender<SampleResult>,
}

struct SampledContainer {
    first_process: i32,
    cgroup: Option<Cgroup>,
    /// The pid of procrun's monitor, whose session the processes of the container are.
    monitor: Option<i32>,
    last_baseline: Option<Rc<Baseline>>,
    zombies: ZombieSearch,
}

/// The counters at the start of a call.
struct Baseline {
    taken_at: Instant,
    counters: Option<Counters>,
    node_pressure: Option<(Instant, PressureStall)>,
}

impl Sampler {
    /// Starts the thread, which ends when the receiver of `results` is dropped.
    pub(in crate::execsync) fn start(results: UnboundedSender<SampleResult>) -> io::Result<Self> {
        let (sender, requests) = sync_channel(QUEUE_CAPACITY);
        thread::Builder::new().name("sampler".to_owned()).spawn(move || {
            let state = SamplerState {
                mounts: mounts(),
                containers: HashMap::new(),
                baselines: BTreeMap::new(),
                node_pressure: None,
                results,
            };
            state.run(&requests);
        })?;
        Ok(Self(sender))
    }

    /// Queues a request. Returns false if the queue is full.
    pub(in crate::execsync) fn try_send(&self, request: SampleRequest) -> bool {
        self.0.try_send(request).is_ok()
    }
}

impl SamplerState {
    fn run(mut self, requests: &Receiver<SampleRequest>) {
        while let Ok(request) = requests.recv() {
            if let Some(result) = self.handle(request)
                && self.results.send(result).is_err()
            {
                return;
            }
        }
    }

    fn handle(&mut self, request: SampleRequest) -> Option<SampleResult> {
        match request {
            SampleRequest::InitPid { container, pid } => {
                let cgroup = Cgroup::find(pid, &container, &self.mounts);
                let monitor = if cgroup.is_none() { monitor_of(pid, &container) } else { None };
                let sampled = SampledContainer {
                    first_process: pid,
                    cgroup,
                    monitor,
                    last_baseline: None,
                    zombies: ZombieSearch::default(),
                };
                self.containers.insert(container.clone(), sampled);
                self.add_late_baselines(&container);
            }
            SampleRequest::ContainerGone { container } => drop(self.containers.remove(&container)),
            SampleRequest::Baseline { call, container } => {
                let baseline = self.take_baseline(&container);
                self.baselines.insert(call, (container, baseline));
                if self.baselines.len() > MAX_BASELINES {
                    self.baselines.pop_first();
                }
            }
            SampleRequest::DiscardBaseline { call } => drop(self.baselines.remove(&call)),
            SampleRequest::Evidence { call, container, in_flight } => {
                let evidence = Box::new(self.evidence(call, &container, in_flight));
                return Some(SampleResult::Evidence { call, evidence });
            }
            SampleRequest::Cmdline { container, exec, pid } => {
                let args = read_cmdline(pid)?;
                return Some(SampleResult::Cmdline { container, exec, args });
            }
            SampleRequest::SessionProcesses { container, sessions, execs } => {
                let (processes, zombies) = match self.containers.get_mut(&container) {
                    Some(sampled) => sampled.left_by(&sessions, &execs),
                    None => (Vec::new(), ZombieReport::Unknown),
                };
                return Some(SampleResult::SessionProcesses { container, processes, zombies });
            }
        }
        None
    }

    fn take_baseline(&mut self, container: &Arc<str>) -> Rc<Baseline> {
        let now = Instant::now();
        let node_pressure = self.node_pressure(now);
        let Some(cache) = self.containers.get_mut(container) else {
            return Rc::new(Baseline { taken_at: now, counters: None, node_pressure });
        };
        if let Some(last) = cache.last_baseline.as_ref().filter(|last| now - last.taken_at < BASELINE_MAX_AGE)
        {
            return last.clone();
        }
        let counters = cache.cgroup.as_ref().map(Cgroup::counters);
        let baseline = Rc::new(Baseline { taken_at: now, counters, node_pressure });
        cache.last_baseline = Some(baseline.clone());
        baseline
    }

    /// Takes baselines for calls that started before the cgroup of their container was found.
    fn add_late_baselines(&mut self, container: &Arc<str>) {
        let late = self
            .baselines
            .iter()
            .filter(|(_, (id, baseline))| id == container && baseline.counters.is_none());
        let late: Vec<u64> = late.map(|(call, _)| *call).collect();
        for call in late {
            let baseline = self.take_baseline(container);
            self.baselines.insert(call, (container.clone(), baseline));
        }
    }

    fn node_pressure(&mut self, now: Instant) -> Option<(Instant, PressureStall)> {
        if self.node_pressure.is_none_or(|(at, _)| now - at >= BASELINE_MAX_AGE) {
            self.node_pressure = Some((now, pressures(Path::new("/proc/pressure"), "")?));
        }
        self.node_pressure
    }

    fn evidence(&mut self, call: u64, container: &Arc<str>, in_flight: (usize, usize)) -> Evidence {
        let now = Instant::now();
        let baseline = self.baselines.remove(&call).map(|(_, baseline)| baseline);
        let node_pressure = pressures(Path::new("/proc/pressure"), "");
        let cgroup = self.containers.get(container).and_then(|cache| cache.cgroup.as_ref());
        let counters = cgroup.map(Cgroup::counters).unwrap_or_default();
        let before = baseline.as_ref().and_then(|baseline| baseline.counters).unwrap_or_default();
        let node_before = baseline.as_ref().and_then(|baseline| baseline.node_pressure);
        let cpu = counters.cpu.zip(before.cpu);
        Evidence {
            window: baseline.map(|baseline| now - baseline.taken_at).unwrap_or_default(),
            in_flight,
            cpu: cpu.map(|(now, before)| now.delta_since(before, cgroup.and_then(Cgroup::quota))),
            container_pressure: counters
                .pressure
                .zip(before.pressure)
                .map(|(now, before)| now.delta_since(before)),
            node_pressure: node_pressure.zip(node_before).map(|(now, (_, before))| now.delta_since(before)),
            psi_window: node_before.map(|(at, _)| now - at).unwrap_or_default(),
            pids: cgroup.and_then(Cgroup::pids),
            is_frozen: cgroup.and_then(Cgroup::is_frozen),
            oom_kills: counters
                .oom_kills
                .zip(before.oom_kills)
                .map(|(now, before)| now.saturating_sub(before)),
            load: load_average(),
        }
    }
}

impl SampledContainer {
    /// Returns the processes that are left of sessions, and the zombies that execs left.
    fn left_by(&mut self, sessions: &HashSet<u32>, execs: &HashSet<u32>) -> (Vec<ProcessInfo>, ZombieReport) {
        let processes =
            if sessions.is_empty() { Vec::new() } else { in_sessions(&self.processes(), sessions) };
        // The monitor of procrun waits for orphans.
        let zombies = match &self.cgroup {
            Some(cgroup) => self.zombies.search(cgroup.tasks(), self.first_process, &processes, execs),
            None => ZombieReport::Unknown,
        };
        (processes, zombies)
    }

    /// Returns the pids of the container's processes; none if neither its cgroup nor its monitor is
    /// known.
    fn processes(&self) -> Vec<i32> {
        match (&self.cgroup, self.monitor) {
            (Some(cgroup), _) => cgroup.processes(),
            (None, Some(monitor)) => session_members(monitor),
            (None, None) => Vec::new(),
        }
    }
}

/// Returns the node's load average over the last minute, and its number of processors.
fn load_average() -> Option<(f64, usize)> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let last_minute = text.split(' ').next()?.parse().ok()?;
    // `/proc/stat` has all processors of the node, not only those that probeshim may use.
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some((last_minute, stat.lines().filter(is_processor).count()))
}
