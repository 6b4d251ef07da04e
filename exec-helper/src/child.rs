//! The child: created in the container, it takes the attributes of a command and executes it. The
//! order is that of runc (`libcontainer/setns_init_linux.go`: `Init`, `finalizeNamespace`).

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use prost::Message as _;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, accessat, fchown, fcntl_setfl,
    fstat, makedev, openat, openat2,
};
use rustix::process::{
    DumpableBehavior, Signal, chdir, getcwd, set_dumpable_behavior, set_parent_process_death_signal, setsid,
    umask,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};

use crate::namespaces::enter_cgroup_namespace;
use crate::pidfd::has_exited;
use crate::protocol::{Attributes, Capabilities, ChildStatus, LAUNCH_DESCRIPTORS, now};
use crate::sandbox::new_mount;
use crate::sys;
use crate::text::shortened;

/// Files of a process that set the AppArmor profile of its next exec. Kernels before 5.1 have the
/// second only.
const APPARMOR_EXEC: [&str; 2] = ["self/attr/apparmor/exec", "self/attr/exec"];

/// Maximum length of an `/etc/passwd` that is read, in bytes.
const MAX_PASSWD_BYTES: u64 = 1 << 20;

/// Maximum length of the error in a report, in bytes. The container determines some of it.
const MAX_ERROR_BYTES: usize = 400;

/// Maximum length of a home directory in an error, in bytes.
const MAX_HOME_BYTES: usize = 100;

/// Path of the null device, and its number.
const NULL_DEVICE: (&str, (u32, u32)) = ("/dev/null", (1, 3));

/// Step that failed, with its error.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {error}")]
struct StepError {
    step: &'static str,
    error: io::Error,
}

/// Adds the step to an error.
trait FailedStep<T> {
    fn step(self, step: &'static str) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> FailedStep<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, StepError> {
        self.map_err(|error| StepError { step, error: error.into() })
    }
}

/// A new process of the helper, with what it needs for a launch.
#[derive(Debug)]
pub(crate) struct Child<'a> {
    pub(crate) argv: &'a [Vec<u8>],
    pub(crate) attributes: &'a Attributes,
    pub(crate) descriptors: &'a [OwnedFd; LAUNCH_DESCRIPTORS],
    /// Pidfd of the helper.
    pub(crate) helper: BorrowedFd<'a>,
    /// Pipe that gets a byte once the process is traced, if it must be.
    pub(crate) gate: Option<OwnedFd>,
    /// The capabilities that the kernel knows. It refuses the others.
    pub(crate) known_capabilities: CapabilitySet,
}

impl Child<'_> {
    /// Runs the command in place of this process. Ends the process if a step fails, and reports the
    /// step on the status socket.
    pub(crate) fn run(mut self) -> ! {
        let [_, _, status, ..] = self.descriptors;
        let Err(error) = self.leave_helper().and_then(|()| self.execute());
        let error = shortened(error.to_string().as_bytes(), MAX_ERROR_BYTES);
        let _ = report(status, &ChildStatus { executed_at: 0, error });
        sys::exit_now()
    }

    /// Leaves what this process still shares with the helper: the namespace of cgroups and the
    /// descriptors. Waits until the helper traces this process, if it must.
    fn leave_helper(&mut self) -> Result<(), StepError> {
        let [stdout, stderr, status, init, _] = self.descriptors;
        enter_cgroup_namespace(init.as_fd()).step("namespace of cgroups")?;
        // If the helper is killed, a child that has not executed its command ends too.
        set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")?;
        // The helper may have been killed before.
        if has_exited(&self.helper).step("helper")? {
            sys::exit_now();
        }
        let gate = self.gate.as_ref().unwrap_or(status);
        let kept = [stdout, stderr, status, gate];
        sys::close_all_but(kept.map(OwnedFd::as_fd)).step("descriptors")?;
        // Without a byte, the helper has ended, and the process would not be compared.
        if let Some(gate) = &self.gate
            && rustix::io::read(gate, &mut [0]) != Ok(1)
        {
            sys::exit_now();
        }
        Ok(())
    }

    fn execute(&self) -> Result<Infallible, StepError> {
        let Self { attributes, descriptors: [stdout, stderr, status, ..], .. } = *self;
        let argv = c_strings(self.argv).step("arguments")?;
        let env = c_strings(&attributes.env).step("environment")?;

        if let Some(home) = &attributes.home {
            check_home(home, attributes.uid, &attributes.unknown_home).step("HOME")?;
        }
        let apparmor = attributes.apparmor_profile.as_ref();
        let apparmor = apparmor.map(|profile| apparmor_exec().map(|file| (file, profile)));
        let apparmor = apparmor.transpose().step("AppArmor profile")?;
        // crun leaves the process in a session of its own. A child must not be in that of the
        // helper, where it could send signals to the helper and to other commands.
        setsid().step("session")?;
        dup2_stdin(null_device().step("standard input")?).step("standard input")?;
        dup2_stdout(stdout).step("standard output")?;
        dup2_stderr(stderr).step("standard error")?;
        set_signals(attributes.ignored_signals);

        if let Some(name) = &attributes.keyring {
            let name = CString::new(name.as_str()).map_err(io::Error::from).step("session keyring")?;
            sys::join_session_keyring(&name).step("session keyring")?;
        }
        if attributes.no_new_privs {
            set_no_new_privs(true).step("no_new_privs")?;
        }
        umask(Mode::from_raw_mode(attributes.umask));
        for limit in &attributes.rlimits {
            sys::set_rlimit(limit.resource, limit.soft, limit.hard).step("resource limits")?;
        }
        // Without no_new_privs, a filter needs a capability that the process drops below.
        if !attributes.no_new_privs {
            install_filters(attributes)?;
        }
        become_user(attributes, self.known_capabilities)?;
        // The kernel resets both when a process changes its user. The command keeps the first,
        // unless it changes its privileges by its exec: it must not outlive the helper.
        set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable).step("dumpable")?;
        if let Some((mut file, profile)) = apparmor {
            file.write_all(format!("exec {profile}").as_bytes()).step("AppArmor profile")?;
        }
        let program = self.argv.first().ok_or(io::ErrorKind::InvalidData).step("arguments")?;
        let path = look_path(OsStr::from_bytes(program), &attributes.env).step("program")?;
        let path = CString::new(path.into_os_string().as_bytes()).map_err(io::Error::from).step("program")?;

        // The command must not find a descriptor of the host (CVE-2024-21626). The status socket
        // closes at the exec.
        sys::close_all_but([status.as_fd()]).step("descriptors")?;
        let announcement = ChildStatus { executed_at: now(), error: String::new() };
        report(status, &announcement).step("status")?;
        if attributes.no_new_privs {
            install_filters(attributes)?;
        }
        Err(sys::execute(&path, &argv, &env)).step("exec")
    }
}

fn c_strings(texts: &[Vec<u8>]) -> io::Result<Vec<CString>> {
    texts.iter().map(|text| CString::new(&text[..]).map_err(io::Error::from)).collect()
}

/// Sends a report to probeshim. Seccomp filters of a container seldom refuse `write`.
fn report(status: &OwnedFd, message: &ChildStatus) -> io::Result<()> {
    rustix::io::write(status, &message.encode_to_vec())?;
    Ok(())
}

/// Opens the null device of the container. The runtime gives its processes that of the node, of
/// which a command of root could change the mode. Fails if the container has another file there.
fn null_device() -> io::Result<OwnedFd> {
    let (path, (major, minor)) = NULL_DEVICE;
    let open = |flags| {
        // No link is followed. `NOFOLLOW` would be seen among the flags of the open file.
        openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
    };
    let checked = |file: OwnedFd| {
        let found = fstat(&file)?;
        let is_null = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
            && found.st_rdev == makedev(major, minor);
        is_null.then_some(file).ok_or_else(|| io::Error::other("/dev/null of the container is another file"))
    };
    // The open of another device may have an effect, and that of a FIFO waits.
    checked(open(OFlags::PATH)?)?;
    let null = checked(open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?)?;
    fcntl_setfl(&null, OFlags::empty())?;
    Ok(null)
}

/// Opens the file that sets the AppArmor profile of the next exec, in a new `/proc`: a container
/// may have replaced that in its file system.
fn apparmor_exec() -> io::Result<File> {
    let proc = new_mount("proc")?;
    let open = |path: &str| openat(&proc, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    Ok(open(APPARMOR_EXEC[0]).or_else(|_| open(APPARMOR_EXEC[1]))?.into())
}

/// Fails if the home directory of a user in `/etc/passwd` is another than that of the record.
fn check_home(recorded: &[u8], uid: u32, unknown_home: &[u8]) -> io::Result<()> {
    let mut passwd = Vec::new();
    match File::open("/etc/passwd") {
        Ok(file) => file.take(MAX_PASSWD_BYTES).read_to_end(&mut passwd).map(drop)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let found = home_dir(&passwd, uid).unwrap_or(unknown_home);
    if found != recorded {
        let [found, recorded] = [found, recorded].map(|home| shortened(home, MAX_HOME_BYTES));
        return Err(io::Error::other(format!("{found:?} in /etc/passwd, and {recorded:?} at the record")));
    }
    Ok(())
}

/// Returns the home directory of a user; `None` for an unknown one.
fn home_dir(passwd: &[u8], uid: u32) -> Option<&[u8]> {
    let uid = uid.to_string();
    let mut users = passwd.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':'));
    let user = users.find(|user| user.clone().nth(2) == Some(uid.as_bytes()));
    user.and_then(|mut user| user.nth(5))
}

/// Sets the signals that the command ignores. The helper ignores none.
fn set_signals(ignored: u64) {
    for signal in (1..=64).filter(|signal| ignored & (1 << (signal - 1)) != 0) {
        sys::set_ignored(signal, true);
    }
}

fn install_filters(attributes: &Attributes) -> Result<(), StepError> {
    for filter in &attributes.filters {
        sys::install_filter(&filter.program, filter.flags).step("seccomp filter")?;
    }
    Ok(())
}

/// Takes the working directory, the user and the capabilities of the command.
fn become_user(attributes: &Attributes, known_capabilities: CapabilitySet) -> Result<(), StepError> {
    let cwd = Path::new(OsStr::from_bytes(&attributes.cwd));
    // The user of the helper may have access to the directory, or the user of the command.
    let changed = match chdir(cwd) {
        Err(rustix::io::Errno::ACCESS) => false,
        result => result.map(|()| true).step("working directory")?,
    };
    let Capabilities { bounding, effective, permitted, inheritable, ambient } =
        attributes.capabilities.unwrap_or_default();
    let dropped = known_capabilities.bits() & !bounding;
    for capability in each_capability(dropped) {
        remove_capability_from_bounding_set(capability).step("bounding set")?;
    }
    set_keep_capabilities(true).step("capabilities")?;
    own_streams(attributes.uid, attributes.stream_gid).step("owner of the standard streams")?;
    let groups: Vec<Gid> = attributes.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups).step("groups")?;
    set_thread_gid(Gid::from_raw(attributes.gid)).step("group")?;
    set_thread_uid(Uid::from_raw(attributes.uid)).step("user")?;
    if !changed {
        chdir(cwd).step("working directory")?;
    }
    // The kernel begins the path of a directory outside of the container with "(unreachable)".
    let is_inside = getcwd(Vec::new()).step("working directory")?.as_bytes().starts_with(b"/");
    is_inside.then_some(()).ok_or(io::ErrorKind::NotFound).step("working directory")?;
    set_keep_capabilities(false).step("capabilities")?;
    let sets = CapabilitySets {
        effective: CapabilitySet::from_bits_retain(effective),
        permitted: CapabilitySet::from_bits_retain(permitted),
        inheritable: CapabilitySet::from_bits_retain(inheritable),
    };
    set_capabilities(None, sets).step("capabilities")?;
    clear_ambient_capability_set().step("ambient set")?;
    for capability in each_capability(ambient) {
        configure_capability_in_ambient_set(capability, true).step("ambient set")?;
    }
    Ok(())
}

/// Returns the capabilities that the kernel knows.
pub(crate) fn known_capabilities() -> CapabilitySet {
    each_capability(u64::MAX)
        .take_while(|capability| capability_is_in_bounding_set(*capability).is_ok())
        .collect()
}

/// Returns each capability of a set as a set of its own.
fn each_capability(set: u64) -> impl Iterator<Item = CapabilitySet> {
    let bits = (0..u64::BITS).map(|number| 1 << number).filter(move |bit| set & bit != 0);
    bits.map(CapabilitySet::from_bits_retain)
}

/// Makes the user of the command the owner of its pipes, so that it can open `/dev/stdout`
/// (`libcontainer/init_linux.go`: `fixStdioPermissions`). crun sets its group too. The owner
/// of the null device stays.
fn own_streams(uid: u32, gid: Option<u32>) -> io::Result<()> {
    for stream in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let found = fstat(stream)?;
        if found.st_uid != uid || gid.is_some_and(|gid| found.st_gid != gid) {
            fchown(stream, Some(Uid::from_raw(uid)), gid.map(Gid::from_raw))?;
        }
    }
    Ok(())
}

/// Returns the path of a program, as Go's `exec.LookPath` finds it in the container's PATH.
fn look_path(program: &OsStr, env: &[Vec<u8>]) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return executable(Path::new(program)).map(|()| program.into());
    }
    let path = env.iter().find_map(|variable| variable.strip_prefix(b"PATH=")).unwrap_or_default();
    let dirs = path.split(|byte| *byte == b':').map(|dir| Path::new(OsStr::from_bytes(dir)));
    let found = dirs.map(|dir| dir.join(program)).find(|file| executable(file).is_ok());
    // Go refuses a program that it finds below the working directory.
    found.filter(|file| file.is_absolute()).ok_or(io::ErrorKind::NotFound.into())
}

/// Fails if the user of this process cannot execute a file.
fn executable(file: &Path) -> io::Result<()> {
    if fs::metadata(file)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_directory_of_a_user_is_found_in_a_passwd_file() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n\n# comment\napp:x:33:33::/srv/app:\nshort:x:44\n";
        assert_eq!(home_dir(passwd, 0), Some(&b"/root"[..]));
        assert_eq!(home_dir(passwd, 33), Some(&b"/srv/app"[..]));
        for unknown in [44, 3, 1000] {
            assert_eq!(home_dir(passwd, unknown), None);
        }
    }
}
