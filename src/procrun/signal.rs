//! Stop signals, and exit codes of signals.

use rustix::process::Signal as System;

use super::error::CriError;
use crate::cri::v1::Signal;

/// Returns the system's number of a stop signal, which is SIGTERM if the config names none. Fails
/// for real-time signals.
pub(super) fn number(stop_signal: i32) -> Result<i32, CriError> {
    let unknown =
        || CriError::unknown(format!("failed to parse stop signal \"{stop_signal}\": invalid signal"));
    let signal = match Signal::try_from(stop_signal).map_err(|_| unknown())? {
        Signal::RuntimeDefault | Signal::Sigterm => System::TERM,
        Signal::Sigabrt | Signal::Sigiot => System::ABORT,
        Signal::Sigalrm => System::ALARM,
        Signal::Sigbus => System::BUS,
        Signal::Sigchld | Signal::Sigcld => System::CHILD,
        Signal::Sigcont => System::CONT,
        Signal::Sigfpe => System::FPE,
        Signal::Sighup => System::HUP,
        Signal::Sigill => System::ILL,
        Signal::Sigint => System::INT,
        Signal::Sigio | Signal::Sigpoll => System::IO,
        Signal::Sigkill => System::KILL,
        Signal::Sigpipe => System::PIPE,
        Signal::Sigprof => System::PROF,
        Signal::Sigpwr => System::POWER,
        Signal::Sigquit => System::QUIT,
        Signal::Sigsegv => System::SEGV,
        Signal::Sigstkflt => System::STKFLT,
        Signal::Sigstop => System::STOP,
        Signal::Sigsys => System::SYS,
        Signal::Sigtrap => System::TRAP,
        Signal::Sigtstp => System::TSTP,
        Signal::Sigttin => System::TTIN,
        Signal::Sigttou => System::TTOU,
        Signal::Sigurg => System::URG,
        Signal::Sigusr1 => System::USR1,
        Signal::Sigusr2 => System::USR2,
        Signal::Sigvtalrm => System::VTALARM,
        Signal::Sigwinch => System::WINCH,
        Signal::Sigxcpu => System::XCPU,
        Signal::Sigxfsz => System::XFSZ,
        real_time => {
            return Err(CriError::invalid(format!(
                "stop signal {} is a real-time signal, which procrun does not send; choose another",
                real_time.as_str_name()
            )));
        }
    };
    Ok(signal.as_raw())
}

/// Returns the exit code of a process that a signal has ended, as a shell and the CRI give it.
pub(super) const fn exit_code(number: i32) -> i32 {
    128 + number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_the_cri_are_mapped_to_signal_numbers_of_the_system() {
        assert_eq!(number(0), Ok(15));
        assert_eq!(number(Signal::Sigusr1.into()), Ok(10));
        assert_eq!(number(Signal::Sigint.into()), Ok(2));
        assert!(number(Signal::Sigrtminplus3.into()).unwrap_err().to_string().contains("SIGRTMINPLUS3"));
        assert!(number(99).is_err());
    }
}
