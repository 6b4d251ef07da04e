//! Priority of threads.

use rustix::process::{getpriority_process, setpriority_process};

/// Gives this thread at least this niceness, so that threads with less go first where both want the
/// same core. On Linux, the niceness is that of one thread, and not of the process.
pub(crate) fn give_way(least: i32) {
    if getpriority_process(None).is_ok_and(|nice| nice < least) {
        // A thread may always become nicer.
        let _ = setpriority_process(None, least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_that_is_less_nice_becomes_nicer() {
        let nice = || getpriority_process(None).unwrap();
        let (before, in_thread) = (
            nice(),
            std::thread::spawn(move || {
                let before = nice();
                give_way(before + 3);
                let after = nice();
                give_way(before + 1);
                [after - before, nice() - before]
            }),
        );
        assert_eq!(in_thread.join().unwrap(), [3, 3]);
        assert_eq!(nice(), before, "another thread");
    }
}
