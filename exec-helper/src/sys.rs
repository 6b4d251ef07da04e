//! System calls of the helper for which no library has a safe function.
//!
//! The helper has a single thread, and its children are copies of it, so no call here can run at
//! the same time as another.
#![allow(unsafe_code, reason = "see above")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

use rustix::process::Pid;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::protocol::SeccompFilter;

/// Result of [`fork_into_cgroup`].
#[derive(Debug)]
pub(crate) enum Forked {
    /// The caller is the child.
    Child,
    /// The caller is the parent of the child.
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// State of a child or of a traced process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitStatus {
    /// The process has exited: its exit code, or 128 and the number of the signal.
    Exited(i32),
    /// The traced process has stopped at its exec.
    StoppedAtExec,
    /// The traced process has created another one, which is traced too, and has stopped.
    StoppedAtFork,
    /// The traced process has stopped with its process group.
    StoppedWithGroup,
    /// The traced process has stopped before it receives this signal; 0 for no signal.
    StoppedBeforeSignal(i32),
}

/// Request that reads a seccomp filter of a stopped process: `PTRACE_SECCOMP_GET_FILTER`.
const GET_FILTER: libc::c_uint = 0x420c;

/// Request that reads the flags of a seccomp filter: `PTRACE_SECCOMP_GET_METADATA`.
const GET_METADATA: libc::c_uint = 0x420d;

/// Flag that gives a child the default action of each signal that its parent handles:
/// `CLONE_CLEAR_SIGHAND`. A signal to the child must end it as it would end the command.
const CLEAR_SIGHAND: u64 = 1 << 32;

/// Flag that creates a child in another cgroup: `CLONE_INTO_CGROUP`.
const INTO_CGROUP: u64 = 1 << 33;

/// Size of an instruction of a filter, in bytes.
const INSTRUCTION_BYTES: usize = 8;

/// Creates a child, as `fork` does, in the cgroup whose directory is open. Its exit is signalled by
/// SIGCHLD.
pub(crate) fn fork_into_cgroup(cgroup: BorrowedFd<'_>) -> io::Result<Forked> {
    let mut pidfd: i32 = -1;
    // SAFETY: all fields of the structure are integers, and zero is valid for each.
    let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
    arguments.flags = libc::CLONE_PIDFD as u64 | CLEAR_SIGHAND | INTO_CGROUP;
    arguments.pidfd = ptr::from_mut(&mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.cgroup = u64::try_from(cgroup.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: the structure outlives the call. Without CLONE_VM the child gets a copy of the
    // memory, whose locks are free because this process has a single thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) if pid > 0 => {
            let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
            // SAFETY: the kernel has created this descriptor for the caller, and no one else owns
            // it.
            Ok(Forked::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the next state of a child or a traced process; `None` if none has changed.
pub(crate) fn next_wait_status() -> Option<(Pid, WaitStatus)> {
    let mut status = 0;
    // SAFETY: the pointer is valid for the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
    let pid = Pid::from_raw(pid.max(0))?;
    let event = status >> 16;
    let state = if libc::WIFEXITED(status) {
        WaitStatus::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        WaitStatus::Exited(128 + libc::WTERMSIG(status))
    } else if event == libc::PTRACE_EVENT_EXEC {
        WaitStatus::StoppedAtExec
    } else if event == libc::PTRACE_EVENT_FORK {
        WaitStatus::StoppedAtFork
    } else if event == libc::PTRACE_EVENT_STOP {
        match libc::WSTOPSIG(status) {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => WaitStatus::StoppedWithGroup,
            _ => WaitStatus::StoppedBeforeSignal(0),
        }
    } else {
        WaitStatus::StoppedBeforeSignal(libc::WSTOPSIG(status))
    };
    Some((pid, state))
}

/// Traces a child of this process, up to its next exec. It does not outlive this process meanwhile.
pub(crate) fn trace_child(pid: Pid) -> io::Result<()> {
    seize(pid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL)
}

/// Traces a process of the runtime and those that it creates, up to their next exec.
pub(crate) fn trace_runtime(pid: Pid) -> io::Result<()> {
    seize(pid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACEFORK)
}

fn seize(pid: Pid, options: libc::c_int) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE takes no pointers.
    let traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid.as_raw_nonzero().get(), 0, options) };
    result(traced).map(drop)
}

/// Returns the process that a traced process has created, which has stopped because of that.
pub(crate) fn created_process(pid: Pid) -> Option<Pid> {
    let mut created: libc::c_ulong = 0;
    // SAFETY: the pointer is valid for the call.
    let read = unsafe {
        libc::ptrace(libc::PTRACE_GETEVENTMSG, pid.as_raw_nonzero().get(), 0, ptr::from_mut(&mut created))
    };
    result(read).ok()?;
    Pid::from_raw(i32::try_from(created).ok()?)
}

/// Continues a stopped process, and gives it a signal unless that is 0.
pub(crate) fn continue_traced(pid: Pid, signal: i32) {
    // SAFETY: PTRACE_CONT takes no pointers. It fails if the process has been killed meanwhile.
    let _ = unsafe { libc::ptrace(libc::PTRACE_CONT, pid.as_raw_nonzero().get(), 0, signal) };
}

/// Stops a traced process, which is reported as stopped before signal 0.
pub(crate) fn interrupt_traced(pid: Pid) {
    // SAFETY: PTRACE_INTERRUPT takes no pointers. It fails if the process has exited meanwhile.
    let _ = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid.as_raw_nonzero().get(), 0, 0) };
}

/// Leaves a process stopped with its group, as it would be without a tracer.
pub(crate) fn listen_traced(pid: Pid) {
    // SAFETY: PTRACE_LISTEN takes no pointers.
    let _ = unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid.as_raw_nonzero().get(), 0, 0) };
}

/// Ends the tracing of a stopped process, which continues and gets a signal unless that is 0.
pub(crate) fn detach(pid: Pid, signal: i32) {
    // SAFETY: PTRACE_DETACH takes no pointers.
    let _ = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid.as_raw_nonzero().get(), 0, signal) };
}

/// Returns the seccomp filters of a stopped process, the oldest first.
pub(crate) fn seccomp_filters(pid: Pid) -> io::Result<Vec<SeccompFilter>> {
    let pid = pid.as_raw_nonzero().get();
    let mut filters = Vec::new();
    loop {
        let nth = filters.len();
        // SAFETY: without a buffer, the request returns the number of instructions.
        let length = unsafe { libc::ptrace(GET_FILTER, pid, nth, ptr::null_mut::<u8>()) };
        let length = match result(length) {
            Ok(length) => usize::try_from(length).map_err(io::Error::other)?,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(filters),
            // A process without seccomp.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && nth == 0 => return Ok(filters),
            Err(error) => return Err(error),
        };
        let mut program = vec![0_u8; length * INSTRUCTION_BYTES];
        // SAFETY: the buffer has room for the number of instructions that the kernel has returned.
        // A filter cannot change.
        let read = unsafe { libc::ptrace(GET_FILTER, pid, nth, program.as_mut_ptr()) };
        result(read)?;
        filters.push(SeccompFilter { program, flags: filter_flags(pid, nth)? });
    }
}

fn filter_flags(pid: i32, nth: usize) -> io::Result<u64> {
    /// `struct seccomp_metadata` of the kernel.
    #[repr(C)]
    struct Metadata {
        filter: u64,
        flags: u64,
    }
    let mut metadata = Metadata { filter: nth as u64, flags: 0 };
    // SAFETY: the structure has the size that the request names, and outlives the call.
    let read =
        unsafe { libc::ptrace(GET_METADATA, pid, size_of::<Metadata>(), ptr::from_mut(&mut metadata)) };
    result(read).map(|_| metadata.flags)
}

/// Installs a seccomp filter. It needs `CAP_SYS_ADMIN` or `no_new_privs`.
pub(crate) fn install_filter(program: &[u8], flags: u64) -> io::Result<()> {
    let instructions: Vec<libc::sock_filter> = program
        .chunks_exact(INSTRUCTION_BYTES)
        .map(|bytes| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let length = u16::try_from(instructions.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len: length, filter: instructions.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the instructions, which outlive the call, and does not change them.
    let installed = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, ptr::from_ref(&filter))
    };
    result(installed).map(drop)
}

/// Joins the session keyring with this name, or creates it. Kernels without keyrings have none to
/// join.
pub(crate) fn join_session_keyring(name: &CStr) -> io::Result<()> {
    // SAFETY: the name ends with a zero byte and outlives the call.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, name.as_ptr()) };
    match result(joined) {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => Err(error),
        _ => Ok(()),
    }
}

/// Sets a resource limit of this process.
pub(crate) fn set_rlimit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the structure outlives the call.
    let set = unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, ptr::from_ref(&limit), ptr::null_mut::<u8>())
    };
    result(set).map(drop)
}

/// Returns the I/O priority of a process.
pub(crate) fn io_priority(pid: Pid) -> io::Result<i64> {
    /// `IOPRIO_WHO_PROCESS` of the kernel.
    const WHO_PROCESS: i32 = 1;
    // SAFETY: the call takes no pointers.
    result(unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, pid.as_raw_nonzero().get()) })
}

/// Ignores a signal, or restores its default action.
pub(crate) fn set_ignored(signal: i32, ignored: bool) {
    /// `struct sigaction` of the kernel.
    #[repr(C)]
    struct Action {
        handler: usize,
        flags: u64,
        restorer: usize,
        mask: u64,
    }
    let handler = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    let action = Action { handler, flags: 0, restorer: 0, mask: 0 };
    // The C library refuses to change the signals 32 and 33, which it uses itself.
    // SAFETY: the structure outlives the call, and neither action is a function. The call fails for
    // SIGKILL and SIGSTOP, which cannot be ignored.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::from_ref(&action),
            ptr::null_mut::<u8>(),
            size_of::<u64>(),
        )
    };
}

/// Closes all descriptors except the standard streams and `kept`. The caller must own none of the
/// closed ones any more, except those that it never drops.
pub(crate) fn close_all_but<const N: usize>(kept: [BorrowedFd<'_>; N]) -> io::Result<()> {
    let mut kept = kept.map(|descriptor| descriptor.as_raw_fd().cast_unsigned());
    kept.sort_unstable();
    let mut first = 3;
    for kept in kept {
        if first < kept {
            close_range(first, kept - 1)?;
        }
        first = first.max(kept + 1);
    }
    close_range(first, u32::MAX)
}

/// Closes the descriptors from `first` to `last`.
fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: as the caller of `close_all_but` promises, no one uses these descriptors.
    result(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Moves this process into new namespaces of mounts, networks, IPC objects and host names.
pub(crate) fn leave_namespaces() -> io::Result<()> {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    // SAFETY: none of the flags affects descriptors.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Executes a program in place of this one. Returns only if that fails.
pub(crate) fn execute(path: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both lists end with a null pointer, and their strings outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process without the work that a process does at its exit.
pub(crate) fn exit_now() -> ! {
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(1) }
}

fn result(returned: libc::c_long) -> io::Result<i64> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
