//! Returns memory to the system after clients, or the start of the program, have freed it.
//!
//! glibc keeps freed memory that lies below an allocation still in use. The allocator therefore
//! counts allocations, and a thread has glibc return free memory (`malloc_trim`) when the count has
//! fallen far below its peak. The thread sleeps until then.

mod counter;
mod system;

use std::io;
use std::sync::OnceLock;
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::time::Instant;

use counter::{COUNTER, MIN_DROP_BYTES};
pub use system::CountingAllocator;

/// Time after which the start of the program is over.
const START_DURATION: Duration = Duration::from_secs(5);

/// Interval between checks whether memory is still being freed, and maximum number of intervals
/// before a trim.
const SETTLE_DELAY: Duration = Duration::from_secs(1);
const MAX_SETTLE_DELAYS: u32 = 5;

/// Minimum time between two trims, in absolute terms and as a multiple of the duration of the last
/// trim. A trim blocks threads that allocate meanwhile.
const MIN_TRIM_INTERVAL: Duration = Duration::from_secs(5);
const TRIM_INTERVAL_FACTOR: u32 = 20;

/// The thread that trims, once it has been started.
static TRIMMER: OnceLock<Thread> = OnceLock::new();

/// Starts the thread that returns memory to the system. The thread runs as long as the process.
/// Fails if the thread cannot be created.
pub fn start_trimming() -> io::Result<()> {
    system::limit_free_memory();
    let trimmer = thread::Builder::new().name("trimmer".to_owned()).spawn(return_memory)?;
    let _ = TRIMMER.set(trimmer.thread().clone());
    Ok(())
}

/// Wakes the thread that trims. The allocator calls this function, so it must not allocate.
fn wake_trimmer() {
    if let Some(trimmer) = TRIMMER.get() {
        trimmer.unpark();
    }
}

fn return_memory() {
    pause(START_DURATION);
    system::trim();
    // If the program's code is not found, it merely stays in memory.
    let _ = system::release_code();
    while cfg!(target_env = "gnu") {
        while !COUNTER.has_dropped() {
            thread::park();
        }
        settle();
        COUNTER.reset_peak();
        let start = Instant::now();
        system::trim();
        pause(MIN_TRIM_INTERVAL.max(start.elapsed() * TRIM_INTERVAL_FACTOR));
    }
}

/// Waits until memory is no longer being freed fast.
fn settle() {
    let mut before = COUNTER.allocated();
    for _ in 0..MAX_SETTLE_DELAYS {
        pause(SETTLE_DELAY);
        let now = COUNTER.allocated();
        if before - now < MIN_DROP_BYTES {
            break;
        }
        before = now;
    }
}

/// Sleeps for the whole duration, even if the thread is woken meanwhile.
fn pause(duration: Duration) {
    let end = Instant::now() + duration;
    while let left = end.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        thread::park_timeout(left);
    }
}
