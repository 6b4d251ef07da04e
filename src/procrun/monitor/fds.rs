//! Descriptors that came from whoever started procrun.
//!
//! A shell that starts procrun may leave descriptors open in it, and no container must get them. There is no safe way to name a
//! descriptor that is known only by its number, so this is the one place that does it by hand: the numbers come from /proc/self/fd, the
//! process has one thread yet, and nothing is done with them but setting a flag.
#![allow(unsafe_code, reason = "see above")]

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::{FdFlags, fcntl_setfd};

/// The first descriptor that is not a standard stream.
const FIRST: i32 = 3;

/// Lets no program that is executed from here on have them.
pub(super) fn close_on_exec() -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number >= FIRST)
        .collect();
    for number in open {
        // SAFETY: the descriptor is borrowed for one call that neither closes nor uses it. The one that read the folder is closed by
        // now, and the call says so.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
    Ok(())
}
