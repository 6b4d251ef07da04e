//! Finds the process of a kubelet.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::configuration::{ConfigurationError, KubeletConfiguration, flag};
use crate::regular_file::{MAX_SMALL_FILE_BYTES, path_of_deleted, read};

/// Name of the program of a kubelet: of its process (`/proc/PID/comm`) and of its file.
const PROGRAM: &str = "kubelet";

/// Bits of the mode of a program that another user than its owner can change, or that gives the
/// rights of its owner to the user who starts it.
const UNTRUSTED_MODE_BITS: u32 = 0o6022;

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
        if !is_same("pid") {
            return None;
        }
        let started = start_time(&dir)?;
        // The paths of a kubelet in another mount namespace are below its own root.
        let root = if is_same("mnt") { PathBuf::from("/") } else { dir.join("root") };
        let arguments = read(&dir.join("cmdline"), MAX_SMALL_FILE_BYTES).ok()?;
        // An argument may be empty, such as the value of a flag.
        let arguments = arguments.strip_suffix(b"\0").unwrap_or(&arguments).split(|byte| *byte == 0);
        let found = Self {
            pid,
            started,
            arguments: arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect(),
            root,
            working_dir: dir.join("cwd"),
        };
        // The command line counts only if it is that of the process which is verified.
        found.is_alive(proc).then_some(found)
    }

    /// Returns whether the process still runs, and is a kubelet of root.
    pub(crate) fn is_alive(&self, proc: &Path) -> bool {
        let dir = proc.join(self.pid.to_string());
        is_of_root(&dir) && is_trusted_program(&dir) && start_time(&dir) == Some(self.started)
    }

    /// Reads the configuration by which the kubelet serves its pods.
    pub(crate) fn configuration(&self) -> Result<KubeletConfiguration, ConfigurationError> {
        let mut configuration = KubeletConfiguration::of_pods(&self.arguments, &self.root)?;
        configuration.container_runtime_endpoint.get_or_insert_with(|| DEFAULT_ENDPOINT.to_owned());
        Ok(configuration)
    }

    /// Returns the kubeconfig of the kubelet, if it has an API server: its absolute path as the
    /// kubelet has it, and as this process can open it.
    pub(crate) fn kubeconfig(&self) -> Option<(PathBuf, PathBuf)> {
        let path = Path::new(flag(&self.arguments, "kubeconfig").filter(|path| !path.is_empty())?);
        let opened = self.path(path);
        let working_dir = || fs::read_link(&self.working_dir).unwrap_or_default();
        let path = if path.is_absolute() { path.to_owned() } else { working_dir().join(path) };
        Some((path, opened))
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

/// Returns whether root has started a process. A program with the set-user-id bit has root as
/// effective user only, and a name and arguments that any user chooses.
fn is_of_root(dir: &Path) -> bool {
    let status = fs::read_to_string(dir.join("status")).unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    uids.split_whitespace().eq(["0"; 4])
}

/// Returns whether the file that a process executes is the program of a kubelet, which only root
/// can change. The name of the process is that of a link, which any user can create.
fn is_trusted_program(dir: &Path) -> bool {
    let exe = dir.join("exe");
    let (Ok(link), Ok(file)) = (fs::read_link(&exe), fs::metadata(&exe)) else { return false };
    // An upgrade replaces the file of a process that still runs.
    let path = path_of_deleted(&link).unwrap_or(link);
    path.file_name() == Some(OsStr::new(PROGRAM)) && is_of_root_only(file.uid(), file.mode())
}

fn is_of_root_only(uid: u32, mode: u32) -> bool {
    uid == 0 && mode & UNTRUSTED_MODE_BITS == 0
}

/// Returns the start time of a process. The name of its program, in parentheses, may contain
/// spaces.
fn start_time(dir: &Path) -> Option<u64> {
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory with the files of `/proc` that are read.
    pub(crate) struct FakeProc(tempfile::TempDir);

    impl FakeProc {
        /// Creates the directory with a process 1, which is probeshim.
        pub(crate) fn new() -> Self {
            let proc = Self(tempfile::tempdir().unwrap());
            proc.add(1, "probeshim", 0, "pid:[1]", &["probeshim", "run"]);
            proc
        }

        pub(crate) fn path(&self) -> &Path {
            self.0.path()
        }

        pub(crate) fn add(&self, pid: u32, name: &str, uid: u32, namespace: &str, arguments: &[&str]) {
            let dir = self.path().join(pid.to_string());
            fs::create_dir_all(dir.join("ns")).unwrap();
            fs::create_dir_all(dir.join("fd")).unwrap();
            fs::write(dir.join("comm"), format!("{name}\n")).unwrap();
            fs::write(dir.join("cmdline"), arguments.join("\0") + "\0").unwrap();
            let status = format!("Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\n");
            fs::write(dir.join("status"), status).unwrap();
            // A program of root, by the name that the link in `exe` has.
            let program = self.path().join(name);
            if !program.is_symlink() {
                symlink("/bin/sh", &program).unwrap();
            }
            symlink(program, dir.join("exe")).unwrap();
            symlink("/", dir.join("cwd")).unwrap();
            let zeros = "0 ".repeat(18);
            fs::write(dir.join("stat"), format!("{pid} ({name}) S {zeros}{} 0", 1000 + pid)).unwrap();
            symlink(namespace, dir.join("ns/pid")).unwrap();
            symlink("mnt:[1]", dir.join("ns/mnt")).unwrap();
        }

        pub(crate) fn add_socket(&self, pid: u32, inode: u64) {
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
        let kubeconfig = PathBuf::from("/etc/kubernetes/kubelet.conf");
        assert_eq!(found[0].kubeconfig(), Some((kubeconfig.clone(), kubeconfig)));
        assert_eq!(found[0].path(Path::new("/etc/x")), Path::new("/etc/x"));
        assert_eq!(
            found[0].configuration().unwrap().container_runtime_endpoint.as_deref(),
            Some(DEFAULT_ENDPOINT)
        );
    }

    #[test]
    fn a_set_user_id_program_with_the_name_of_a_kubelet_is_ignored() {
        let proc = FakeProc::new();
        let arguments = ["/tmp/x/kubelet", "--", "root", "--pod-manifest-path=/tmp/evil"];
        proc.add(23, "kubelet", 0, "pid:[1]", &arguments);
        let is_found = || !KubeletProcess::find(proc.path(), 1).is_empty();
        assert!(is_found());
        let status = proc.path().join("23/status");
        let of_root = fs::read_to_string(&status).unwrap();
        for uids in ["65534 0 0 0", "0 0 0 65534", "0 0 0", ""] {
            fs::write(&status, format!("Name:\tkubelet\nUid:\t{uids}\n")).unwrap();
            assert!(!is_found(), "{uids}");
        }
        fs::write(&status, of_root).unwrap();
        let exe = proc.path().join("23/exe");
        let link_to = |path: &Path| {
            fs::remove_file(&exe).unwrap();
            symlink(path, &exe).unwrap();
        };
        link_to(Path::new("/bin/sh"));
        assert!(!is_found(), "the process has the name of a link");
        let deleted = proc.path().join("kubelet (deleted)");
        symlink("/bin/sh", &deleted).unwrap();
        link_to(&deleted);
        assert!(is_found(), "the program was replaced");
    }

    #[test]
    fn a_program_that_others_than_root_can_change_is_ignored() {
        assert!(is_of_root_only(0, 0o100_755));
        for (uid, mode) in [(1000, 0o755), (0, 0o775), (0, 0o757), (0, 0o4755), (0, 0o2755)] {
            assert!(!is_of_root_only(uid, mode), "{uid} {mode:o}");
        }
    }

    #[test]
    fn a_relative_kubeconfig_is_below_the_working_directory_of_the_kubelet() {
        let proc = FakeProc::new();
        proc.add(23, "kubelet", 0, "pid:[1]", &["kubelet", "--kubeconfig=a/kubelet.conf"]);
        let (path, opened) = KubeletProcess::find(proc.path(), 1).remove(0).kubeconfig().unwrap();
        assert_eq!(path, Path::new("/a/kubelet.conf"));
        assert_eq!(opened, proc.path().join("23/cwd/a/kubelet.conf"));
    }

    #[test]
    fn flags_after_a_double_dash_are_no_flags() {
        let proc = FakeProc::new();
        let arguments = ["kubelet", "--pod-manifest-path", "", "--", "--pod-manifest-path=/tmp/evil"];
        proc.add(23, "kubelet", 0, "pid:[1]", &arguments);
        let found = KubeletProcess::find(proc.path(), 1).remove(0);
        assert_eq!(found.configuration().unwrap().static_pod_path, None);
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
