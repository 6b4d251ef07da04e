//! Zombies that execs left in a container.

use std::collections::{HashMap, HashSet};

use procfs::process::{Process as Proc, Stat};

use super::ProcessInfo;
use super::processes::exec_of;

/// Zombies of a container: processes of execs that have ended, and for which no parent has waited
/// between two searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zombies {
    /// Number of zombies; at least 1.
    pub count: u32,
    /// Name of the program of the youngest zombie.
    pub name: String,
    /// The pid of the exec that left the youngest zombie.
    pub session: u32,
    /// Parent of the zombies; of several parents, the one that has the most zombies.
    pub parent: ZombieParent,
}

/// A process that does not wait for its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZombieParent {
    /// The pid on the host.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
    /// Whether it is the first process of the container, which gets orphans as children.
    pub is_first_process: bool,
}

/// Result of a search for zombies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::execsync) enum ZombieReport {
    /// The number of processes is that of the last search. Its zombies were not counted again.
    Unchanged,
    /// The zombies that two searches have found.
    Counted(Option<Zombies>),
    /// As [`Counted`](Self::Counted). Others were found for the first time, and may be about to
    /// vanish: another search is needed.
    Unconfirmed(Option<Zombies>),
    /// The processes of the container are not known.
    #[default]
    Unknown,
}

/// Searches for the zombies of a container.
#[derive(Debug, Default)]
pub(super) struct ZombieSearch {
    /// Pids of the zombies that the last search found.
    seen: HashSet<u32>,
    /// Number of processes and threads at the last search, if it was measured and the next search
    /// is not needed before it changes.
    settled_at: Option<u64>,
}

impl ZombieSearch {
    /// Searches for zombies among the children of a container's first process and of the processes
    /// that execs left, unless `tasks`, the container's number of processes and threads, is that of
    /// the last search. A zombie counts for that number, and is in no list of a cgroup's processes.
    /// `execs` are the pids of execs that have ended.
    pub(super) fn search(
        &mut self,
        tasks: Option<u64>,
        first_process: i32,
        left: &[ProcessInfo],
        execs: &HashSet<u32>,
    ) -> ZombieReport {
        if tasks.is_some() && self.settled_at == tasks {
            return ZombieReport::Unchanged;
        }
        let parents = [first_process].into_iter().chain(left.iter().map(|process| process.pid.cast_signed()));
        let is_of_exec =
            |stat: &Stat| self.seen.contains(&stat.pid.unsigned_abs()) || exec_of(stat, execs).is_some();
        let found: Vec<Stat> = parents.flat_map(zombie_children).filter(is_of_exec).collect();
        let pids: HashSet<u32> = found.iter().map(|stat| stat.pid.unsigned_abs()).collect();
        let is_settled = pids.is_subset(&self.seen);
        let confirmed: Vec<Stat> =
            found.into_iter().filter(|stat| self.seen.contains(&stat.pid.unsigned_abs())).collect();
        (self.seen, self.settled_at) = (pids, tasks.filter(|_| is_settled));
        let zombies = summary(&confirmed, first_process);
        if is_settled { ZombieReport::Counted(zombies) } else { ZombieReport::Unconfirmed(zombies) }
    }
}

/// Returns the children of a process that are zombies. An orphan is a child of the first process of
/// its container.
fn zombie_children(parent: i32) -> Vec<Stat> {
    let children = || Proc::new(parent).ok()?.task_main_thread().ok()?.children().ok();
    let children = children().unwrap_or_default().into_iter();
    let stats = children.filter_map(|pid| Proc::new(i32::try_from(pid).ok()?).ok()?.stat().ok());
    stats.filter(|stat| stat.state == 'Z').collect()
}

/// Describes the zombies; `None` without zombies.
fn summary(zombies: &[Stat], first_process: i32) -> Option<Zombies> {
    let youngest = zombies.iter().max_by_key(|stat| (stat.starttime, stat.pid))?;
    let mut counts: HashMap<i32, u32> = HashMap::new();
    for stat in zombies {
        *counts.entry(stat.ppid).or_default() += 1;
    }
    let (parent, _) = counts.into_iter().max_by_key(|(parent, count)| (*count, *parent))?;
    let name = Proc::new(parent).and_then(|process| process.stat()).ok()?.comm;
    Some(Zombies {
        count: u32::try_from(zombies.len()).unwrap_or(u32::MAX),
        name: youngest.comm.clone(),
        session: youngest.session.unsigned_abs(),
        parent: ZombieParent { pid: parent.unsigned_abs(), name, is_first_process: parent == first_process },
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a process with two zombie children that lead sessions of their own. Returns it and
    /// the pids of the children.
    fn parent_of_zombies() -> (Child, [u32; 2]) {
        // The sessions end once `cat` has replaced the shell, which would wait for them. `cat` ends
        // with this test.
        let session = "until grep -q cat /proc/$PPID/comm; do :; done; exec true";
        let script = format!("for i in 1 2; do setsid sh -c '{session}' & echo $!; done; exec cat");
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut parent =
            Command::new("sh").args(["-c", &script]).stdin(input).stdout(output).spawn().unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let sessions = [(); 2].map(|()| lines.next().unwrap().unwrap().parse().unwrap());
        let is_zombie = |pid: u32| {
            let stat = Proc::new(pid.cast_signed()).unwrap().stat().unwrap();
            stat.state == 'Z' && stat.session == pid.cast_signed()
        };
        while !sessions.iter().all(|pid| is_zombie(*pid)) {
            std::thread::yield_now();
        }
        (parent, sessions)
    }

    #[test]
    fn zombies_of_execs_are_counted_once_two_searches_have_found_them() {
        let (mut parent, [first, second]) = parent_of_zombies();
        let pid = parent.id().cast_signed();
        let mut search = ZombieSearch::default();
        let of_first = HashSet::from([first]);
        let reports = [
            search.search(Some(3), pid, &[], &of_first),
            // The number of tasks is the same, but the first zombie has to be confirmed.
            search.search(Some(3), pid, &[], &HashSet::new()),
            search.search(Some(3), pid, &[], &HashSet::from([second])),
            search.search(Some(4), pid, &[], &HashSet::from([second])),
            search.search(None, 0, &[], &HashSet::new()),
        ];
        let left = ProcessInfo { pid: parent.id(), session: 1, command: Vec::new() };
        let mut of_other = ZombieSearch::default();
        let by_left = [(); 2].map(|()| of_other.search(None, 0, std::slice::from_ref(&left), &of_first));
        parent.kill().unwrap();
        parent.wait().unwrap();
        let zombies = |session, is_first_process| Zombies {
            count: 1,
            name: "true".into(),
            session,
            parent: ZombieParent { pid: parent.id(), name: "cat".into(), is_first_process },
        };
        let expected = [
            ZombieReport::Unconfirmed(None),
            ZombieReport::Counted(Some(zombies(first, true))),
            ZombieReport::Unchanged,
            ZombieReport::Unconfirmed(Some(zombies(first, true))),
            ZombieReport::Counted(None),
        ];
        assert_eq!(reports, expected);
        let expected = [ZombieReport::Unconfirmed(None), ZombieReport::Counted(Some(zombies(first, false)))];
        assert_eq!(by_left, expected);
    }
}
