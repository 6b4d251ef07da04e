//! The namespaces of the helper, which it leaves for a moment to create a child in a container.
//!
//! A child must not be in a container's namespace of processes with other namespaces of the helper:
//! a process of the container with `CAP_SYS_PTRACE` would find the node's `/proc` through it. The
//! namespace of cgroups is the exception, because the kernel refuses to create a child in a cgroup
//! from a namespace that does not have the parent's (mount option `nsdelegate` of cgroup2). The
//! child enters that itself.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::thread::{ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces};

/// The namespaces in which the helper creates a child, with their names in `/proc/PID/ns`.
const NAMESPACES: [(ThreadNameSpaceType, &str); 5] = [
    (ThreadNameSpaceType::PROCESS_ID, "pid"),
    (ThreadNameSpaceType::NETWORK, "net"),
    (ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION, "ipc"),
    (ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME, "uts"),
    (ThreadNameSpaceType::MOUNT, "mnt"),
];

/// Moves this process, a child of the helper, into the namespace of cgroups of a container.
pub(crate) fn enter_cgroup_namespace(init: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_thread_name_spaces(init, ThreadNameSpaceType::CONTROL_GROUP)?)
}

/// The namespaces and the `oom_score_adj` of the helper.
#[derive(Debug)]
pub(crate) struct OwnNamespaces {
    namespaces: Vec<File>,
    oom_score_adj: File,
    own_oom_score_adj: i32,
}

impl OwnNamespaces {
    /// Opens the namespaces in which this process is.
    pub(crate) fn open() -> io::Result<Self> {
        let path = "/proc/self/oom_score_adj";
        let own = fs::read_to_string(path)?;
        let namespaces = NAMESPACES.iter().map(|(_, name)| File::open(format!("/proc/self/ns/{name}")));
        Ok(Self {
            namespaces: namespaces.collect::<io::Result<_>>()?,
            oom_score_adj: File::options().write(true).open(path)?,
            own_oom_score_adj: own.trim().parse().map_err(io::Error::other)?,
        })
    }

    /// Moves this process into the namespaces of a container, and gives it the `oom_score_adj` of a
    /// command. It stays in its own namespace of processes; only its children are in the other.
    /// Changes nothing if it fails.
    pub(crate) fn enter(&self, init: BorrowedFd<'_>, oom_score_adj: i32) -> io::Result<()> {
        self.set_oom_score_adj(oom_score_adj)?;
        let namespaces = NAMESPACES.iter().map(|(namespace, _)| *namespace).collect();
        let entered = move_into_thread_name_spaces(init, namespaces);
        if entered.is_err() {
            self.set_oom_score_adj(self.own_oom_score_adj)?;
        }
        Ok(entered?)
    }

    /// Moves this process back into its own namespaces.
    pub(crate) fn restore(&self) -> io::Result<()> {
        for namespace in &self.namespaces {
            move_into_link_name_space(namespace.as_fd(), None)?;
        }
        self.set_oom_score_adj(self.own_oom_score_adj)
    }

    fn set_oom_score_adj(&self, value: i32) -> io::Result<()> {
        (&self.oom_score_adj).write_all(value.to_string().as_bytes())
    }
}
