//! Finds the process of a kubelet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::configuration::{ConfigurationError, KubeletConfiguration, flag};
use super::ignored::{IgnoreReason, IgnoredKubelet, PROGRAM};
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read};

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
    /// Returns the kubelets of root below `proc`, which is `/proc`, and the other processes with
    /// the name of a kubelet, by process id. `own` is the process id of probeshim: a kubelet in
    /// another pid namespace is that of another node.
    pub(crate) fn find(proc: &Path, own: u32) -> (Vec<Self>, Vec<IgnoredKubelet>) {
        let entries = fs::read_dir(proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_named = |pid: &u32| {
            fs::read_to_string(proc.join(pid.to_string()).join("comm"))
                .is_ok_and(|name| name.trim() == PROGRAM)
        };
        let mut pids: Vec<u32> = pids.filter(is_named).collect();
        pids.sort_unstable();
        let (mut found, mut ignored) = (Vec::new(), Vec::new());
        for pid in pids {
            match Self::from_pid(proc, pid, own) {
                Ok(kubelet) => found.push(kubelet),
                Err(reason) if reason.is_end() => {}
                Err(reason) => ignored.push(IgnoredKubelet { pid, reason }),
            }
        }
        (found, ignored)
    }

    fn from_pid(proc: &Path, pid: u32, own: u32) -> Result<Self, IgnoreReason> {
        let dir = proc.join(pid.to_string());
        let namespace = |pid: u32, name: &str| fs::read_link(proc.join(format!("{pid}/ns/{name}")));
        let is_same = |name| Ok::<_, io::Error>(namespace(pid, name)? == namespace(own, name)?);
        IgnoreReason::check_user(&dir)?;
        if !is_same("pid")? {
            return Err(IgnoreReason::OtherPidNamespace);
        }
        let started = start_time(&dir)?;
        // The paths of a kubelet in another mount namespace are below its own root.
        let root = if is_same("mnt")? { PathBuf::from("/") } else { dir.join("root") };
        let arguments = read(&dir.join("cmdline"), MAX_SMALL_FILE_BYTES)?;
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
        found.verify(&dir)?;
        Ok(found)
    }

    /// Returns whether the process still runs, and is a kubelet of root.
    pub(crate) fn is_alive(&self, proc: &Path) -> bool {
        self.verify(&proc.join(self.pid.to_string())).is_ok()
    }

    /// Fails unless the process with this directory is this one, and a kubelet of root.
    fn verify(&self, dir: &Path) -> Result<(), IgnoreReason> {
        IgnoreReason::check_user(dir)?;
        IgnoreReason::check_program(dir)?;
        let is_same = start_time(dir)? == self.started;
        if is_same { Ok(()) } else { Err(io::Error::from(io::ErrorKind::NotFound).into()) }
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

/// Returns the start time of a process. The name of its program, in parentheses, may contain
/// spaces.
fn start_time(dir: &Path) -> io::Result<u64> {
    let stat = fs::read_to_string(dir.join("stat"))?;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let started = fields.and_then(|fields| fields.split_whitespace().nth(19)?.parse().ok());
    started.ok_or_else(|| io::ErrorKind::InvalidData.into())
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
        let (found, ignored) = KubeletProcess::find(proc.path(), 1);
        assert_eq!(found, []);
        let shown: Vec<String> = ignored.iter().map(ToString::to_string).collect();
        let expected = [
            "the process kubelet (pid 20) is ignored, because root has not started it",
            "the process kubelet (pid 21) is ignored, because it is in another pid namespace than probeshim",
        ];
        assert_eq!(shown, expected);
        let arguments = ["/usr/bin/kubelet", "--kubeconfig=/etc/kubernetes/kubelet.conf"];
        proc.add(23, "kubelet", 0, "pid:[1]", &arguments);
        let found = KubeletProcess::find(proc.path(), 1).0;
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
        let is_found = || !KubeletProcess::find(proc.path(), 1).0.is_empty();
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
    fn a_process_that_ends_during_the_search_is_not_mentioned() {
        let proc = FakeProc::new();
        proc.add(23, "kubelet", 0, "pid:[1]", &["kubelet"]);
        for file in ["exe", "ns/pid", "stat", "status"] {
            fs::remove_file(proc.path().join("23").join(file)).unwrap();
            assert_eq!(KubeletProcess::find(proc.path(), 1).1.len(), 0, "{file}");
        }
    }

    #[test]
    fn a_relative_kubeconfig_is_below_the_working_directory_of_the_kubelet() {
        let proc = FakeProc::new();
        proc.add(23, "kubelet", 0, "pid:[1]", &["kubelet", "--kubeconfig=a/kubelet.conf"]);
        let (path, opened) = KubeletProcess::find(proc.path(), 1).0.remove(0).kubeconfig().unwrap();
        assert_eq!(path, Path::new("/a/kubelet.conf"));
        assert_eq!(opened, proc.path().join("23/cwd/a/kubelet.conf"));
    }

    #[test]
    fn flags_after_a_double_dash_are_no_flags() {
        let proc = FakeProc::new();
        let arguments = ["kubelet", "--pod-manifest-path", "", "--", "--pod-manifest-path=/tmp/evil"];
        proc.add(23, "kubelet", 0, "pid:[1]", &arguments);
        let found = KubeletProcess::find(proc.path(), 1).0.remove(0);
        assert_eq!(found.configuration().unwrap().static_pod_path, None);
    }

    #[test]
    fn a_later_process_with_the_same_id_is_another_kubelet() {
        let proc = FakeProc::new();
        proc.add(23, "kubelet", 0, "pid:[1]", &["kubelet"]);
        let found = KubeletProcess::find(proc.path(), 1).0.remove(0);
        assert!(found.is_alive(proc.path()));
        let stat = proc.path().join("23/stat");
        let text = fs::read_to_string(&stat).unwrap().replace("1023", "2000");
        fs::write(stat, text).unwrap();
        assert!(!found.is_alive(proc.path()));
    }
}
