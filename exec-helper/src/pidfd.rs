//! Descriptors that refer to a process, and never to another one with the same pid.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io;

/// Returns whether a process has exited. Its pidfd is readable then.
pub fn has_exited(pidfd: &impl AsFd) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now))? > 0)
}
