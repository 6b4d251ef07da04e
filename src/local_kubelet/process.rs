//! Finds the process of a kubelet.

use std::fs;
use std::path::{Path, PathBuf};

use super::configuration::{ConfigurationError, KubeletConfiguration, flag};
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read};

/// Name of the program of a kubelet (`/proc/PID/comm`).
const PROGRAM: &str = "kubelet";

/// Runtime endpoint of a kubelet that configures none.
const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// A process of root that is a kubelet, in the pid namespace of probeshim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeletProcess {
    /// Process id.
    pub(crate) pid: u32,
    /// Start time in clock ticks since the boot, which distinguishes the process from a later one
    /// with the same id.
    started: u64,
    /// Command line.
    arguments: Vec<String>,
    /// Root directory, as this process can open it.
    root: PathBuf,
    /// Working directory, as this process can open it.
    working_dir: PathBuf,
}

impl KubeletProcess {
    /// Returns the kubelets of root below `proc`, which is `/proc`, by process id. `own` is the
    /// process id of probeshim: a kubelet in another pid namespace is that of another node.
    pub(crate) fn find(proc: &Path, own: u32) -> Vec<Self> {
        let entries = fs::read_dir(proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_named = |pid: &u32| {
            fs::read_to_string(proc.join(pid.to_string()).join("comm"))
                .is_ok_and(|name| name.trim() == PROGRAM)
        };
        let mut pids: Vec<u32> = pids.filter(is_named).collect();
        pids.sort_unstable();
        pids.into_iter().filter_map(|pid| Self::of_pid(proc, pid, own)).collect()
    }

    fn of_pid(proc: &Path, pid: u32, own: u32) -> Option<Self> {
        let dir = proc.join(pid.to_string());
        let namespace = |pid: u32, name: &str| fs::read_link(proc.join(format!("{pid}/ns/{name}"))).ok();
        let is_same = |name| namespace(pid, name).is_some_and(|it| Some(it) == namespace(own, name));
        if !is_of_root(&dir) || !is_same("pid") {
            return None;
        }
        // The paths of a kubelet in another mount namespace are below its own root.
        let root = if is_same("mnt") { PathBuf::from("/") } else { dir.join("root") };
        let arguments = read(&dir.join("cmdline"), MAX_SMALL_FILE_BYTES).ok()?;
        let arguments = arguments.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
        Some(Self {
            pid,
            started: start_time(&dir)?,
            arguments: arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect(),
            root,
            working_dir: dir.join("cwd"),
        })
    }

    /// Returns whether the process still runs.
    pub(crate) fn is_alive(&self, proc: &Path) -> bool {
        let dir = proc.join(self.pid.to_string());
        start_time(&dir) == Some(self.started) && is_of_root(&dir)
    }

    /// Reads the configuration by which the kubelet serves its pods.
    pub(crate) fn configuration(&self) -> Result<KubeletConfiguration, ConfigurationError> {
        let mut configuration = KubeletConfiguration::of_pods(&self.arguments, &self.root)?;
        configuration.container_runtime_endpoint.get_or_insert_with(|| DEFAULT_ENDPOINT.to_owned());
        Ok(configuration)
    }

    /// Returns the kubeconfig of the kubelet, if it has an API server.
    pub(crate) fn kubeconfig(&self) -> Option<PathBuf> {
        flag(&self.arguments, "kubeconfig").filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// Returns a path of the kubelet as this process can open it.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        if path.is_absolute() { super::below(&self.root, path) } else { self.working_dir.join(path) }
    }

    /// Returns whether a file descriptor of the process is the socket with this inode.
    pub(crate) fn has_socket(&self, proc: &Path, inode: u64) -> bool {
        let descriptors = fs::read_dir(proc.join(format!("{}/fd", self.pid))).into_iter().flatten().flatten();
        let target = format!("socket:[{inode}]");
        let is_it = |path: PathBuf| fs::read_link(path).is_ok_and(|link| link == Path::new(&target));
        descriptors.map(|entry| entry.path()).any(is_it)
    }
}

/// Returns whether the effective user of a process is root.
fn is_of_root(dir: &Path) -> bool {
    let status = fs::read_to_string(dir.join("status")).unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    uids.split_whitespace().nth(1) == Some("0")
}

/// Returns the start time of a process. The name of its program, in parentheses, may contain
/// spaces.
fn start_time(dir: &Path) -> Option<u64> {
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory with the files of `/proc` that are read.
    pub(in super::super) struct FakeProc(tempfile::TempDir);

    impl FakeProc {
        /// Creates the directory with a process 1, which is probeshim.
        pub(in super::super) fn new() -> Self {
            let proc = Self(tempfile::tempdir().unwrap());
            proc.add(1, "probeshim", 0, "pid:[1]", &["probeshim", "run"]);
            proc
        }

        pub(in super::super) fn path(&self) -> &Path {
            self.0.path()
        }

        pub(in super::super) fn add(
            &self,
            pid: u32,
            name: &str,
            uid: u32,
            namespace: &str,
            arguments: &[&str],
        ) {
            let dir = self.path().join(pid.to_string());
            fs::create_dir_all(dir.join("ns")).unwrap();
            fs::create_dir_all(dir.join("fd")).unwrap();
            fs::write(dir.join("comm"), format!("{name}\n")).unwrap();
            fs::write(dir.join("cmdline"), arguments.join("\0") + "\0").unwrap();
            fs::write(dir.join("status"), format!("Name:\t{name}\nUid:\t7\t{uid}\t7\t7\n")).unwrap();
            let zeros = "0 ".repeat(18);
            fs::write(dir.join("stat"), format!("{pid} ({name}) S {zeros}{} 0", 1000 + pid)).unwrap();
            symlink(namespace, dir.join("ns/pid")).unwrap();
            symlink("mnt:[1]", dir.join("ns/mnt")).unwrap();
        }

        pub(in super::super) fn add_socket(&self, pid: u32, inode: u64) {
            symlink(format!("socket:[{inode}]"), self.path().join(format!("{pid}/fd/7"))).unwrap();
        }
    }

    #[test]
    fn only_a_kubelet_of_root_in_the_pid_namespace_of_probeshim_is_found() {
        let proc = FakeProc::new();
        proc.add(20, "kubelet", 1000, "pid:[1]", &["kubelet"]);
        proc.add(21, "kubelet", 0, "pid:[2]", &["kubelet"]);
        proc.add(22, "kubelet-wrapper", 0, "pid:[1]", &["kubelet"]);
        assert_eq!(KubeletProcess::find(proc.path(), 1), []);
        let arguments = ["/usr/bin/kubelet", "--kubeconfig=/etc/kubernetes/kubelet.conf"];
        proc.add(23, "kubelet", 0, "pid:[1]", &arguments);
        let found = KubeletProcess::find(proc.path(), 1);
        assert_eq!(found.iter().map(|it| it.pid).collect::<Vec<_>>(), [23]);
        assert_eq!(found[0].kubeconfig(), Some("/etc/kubernetes/kubelet.conf".into()));
        assert_eq!(found[0].path(Path::new("/etc/x")), Path::new("/etc/x"));
        assert_eq!(
            found[0].configuration().unwrap().container_runtime_endpoint.as_deref(),
            Some(DEFAULT_ENDPOINT)
        );
    }

    #[test]
    fn a_later_process_with_the_same_id_is_another_kubelet() {
        let proc = FakeProc::new();
        proc.add(23, "kubelet", 0, "pid:[1]", &["kubelet"]);
        let found = KubeletProcess::find(proc.path(), 1).remove(0);
        assert!(found.is_alive(proc.path()));
        let stat = proc.path().join("23/stat");
        let text = fs::read_to_string(&stat).unwrap().replace("1023", "2000");
        fs::write(stat, text).unwrap();
        assert!(!found.is_alive(proc.path()));
    }
}
