//! Exit codes of commands and containers.

/// Exit code of a shell for a program that cannot be executed.
pub const NOT_EXECUTABLE: i32 = 126;

/// Exit code of a shell for a program that does not exist.
pub const NOT_FOUND: i32 = 127;

/// Exit code of a process that SIGKILL ended.
pub const KILLED: i32 = 128 + 9;

/// Returns the name of the signal that an exit code stands for: 128 plus the signal's number. A
/// program may also exit with such a code by itself.
#[must_use]
pub fn signal_name(exit_code: i32) -> Option<&'static str> {
    Some(match exit_code - 128 {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_above_128_stands_for_a_signal() {
        let names = [KILLED, 139, 143, 128, 0, 255].map(signal_name);
        assert_eq!(names, [Some("SIGKILL"), Some("SIGSEGV"), Some("SIGTERM"), None, None, None]);
    }
}
