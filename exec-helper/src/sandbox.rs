//! Takes from the helper what its work does not need, before it reads its first request.
//!
//! Children inherit capabilities, seccomp filters and Landlock rules of the helper, and processes
//! in containers must not have others than the runtime's. So the helper keeps these, and is
//! confined by namespaces, which a child does not get.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{CWD, Mode, mkdirat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsmount, fsopen, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{
    DumpableBehavior, Signal, chdir, fchdir, pivot_root, set_dumpable_behavior,
    set_parent_process_death_signal, setsid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::set_name;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::{PROCESS_NAME, sys};

/// Signals that end a process and that users send to probeshim. A handler without effect keeps the
/// helper alive until probeshim has ended, and does not outlive an exec.
const HANDLED_SIGNALS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Confines this process. `socket` stays open, and no other descriptor.
pub(crate) fn enter(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_name(&CString::new(PROCESS_NAME)?)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // If probeshim ends while the helper is stopped, the helper continues, so that it ends too. The
    // kernel sends the signal at the end of each thread of probeshim that was its parent.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    // A signal of probeshim's terminal does not reach the helper. A process that already leads a
    // session has no such terminal.
    let _ = setsid();
    for signal in 1..=64 {
        sys::set_ignored(signal, false);
    }
    for signal in HANDLED_SIGNALS {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    drop(null);
    sys::close_all_but([socket])?;
    sys::leave_namespaces()?;
    see_only_proc()
}

/// Replaces the file system by an empty one with `/proc`.
fn see_only_proc() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let proc = open_tree(CWD, "/proc", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let root = new_mount("tmpfs")?;
    mkdirat(&root, "proc", Mode::from_raw_mode(0o555))?;
    let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(root.as_fd(), "", CWD, "/proc", by_descriptor)?;
    move_mount(proc.as_fd(), "", root.as_fd(), "proc", by_descriptor)?;
    // With "." for both, the old root is mounted above the new one, and is unmounted there.
    fchdir(&root)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

/// Creates a file system of a type, without programs and devices. It is mounted nowhere yet.
pub(crate) fn new_mount(file_system: &str) -> io::Result<OwnedFd> {
    let context = fsopen(file_system, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
