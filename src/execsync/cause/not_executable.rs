//! Programs that exist and cannot be executed.

use super::super::analysis::CallRecord;

/// Reason why a program that exists cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecFailure {
    /// The interpreter of a script, or the dynamic loader of a program, does not exist.
    NoInterpreter,
    /// The file is no program for this processor, and no script with an interpreter.
    UnknownFormat,
}

impl ExecFailure {
    /// Returns the reason, if the runtime reported one: in its error message, or in the output of
    /// the command. runc has already reported the start of the command when it replaces itself by
    /// the program, so it writes the error to stderr and exits with 1.
    pub(crate) fn from_record(record: &CallRecord) -> Option<Self> {
        let exec = record.call.exec.as_deref()?;
        let program = exec.command.first()?;
        let texts = [record.call.message.as_deref(), exec.output.as_deref()];
        texts.into_iter().flatten().find_map(|text| Self::from_text(text, program))
    }

    /// Returns the reason in an error of runc (`exec /check: no such file or directory`) or crun
    /// (``exec container process `/check`: No such file or directory``) about a program. The text
    /// about a program that does not exist differs: `exec: "/check": stat /check: …`.
    fn from_text(text: &str, program: &str) -> Option<Self> {
        let after_exec = text.match_indices("exec ").map(|(at, found)| &text[at + found.len()..]);
        after_exec.into_iter().find_map(|rest| {
            let rest = rest.strip_prefix("container process ").unwrap_or(rest);
            let rest = rest.strip_prefix("(missing dynamic library?) ").unwrap_or(rest);
            let (path, reason) = rest.split_once(": ")?;
            let path = path.trim_matches('`');
            let is_it = path == program || path.rsplit_once('/').is_some_and(|(_, name)| name == program);
            let reason = reason.to_ascii_lowercase();
            match reason {
                _ if !is_it => None,
                _ if reason.starts_with("no such file or directory") => Some(Self::NoInterpreter),
                _ if reason.starts_with("exec format error") => Some(Self::UnknownFormat),
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_its_interpreter_is_known_by_the_texts_of_runc_and_crun() {
        for (text, program, expected) in [
            ("exec /tmp/check: no such file or directory", "/tmp/check", Some(ExecFailure::NoInterpreter)),
            ("exec /bin/check: exec format error\n", "check", Some(ExecFailure::UnknownFormat)),
            (
                "OCI runtime exec failed: exec failed: unable to start container process: exec /tmp/check: no such file or directory: unknown",
                "/tmp/check",
                Some(ExecFailure::NoInterpreter),
            ),
            (
                "exec container process (missing dynamic library?) `/check`: No such file or directory",
                "/check",
                Some(ExecFailure::NoInterpreter),
            ),
            (
                "exec container process `/check`: Exec format error",
                "/check",
                Some(ExecFailure::UnknownFormat),
            ),
            ("exec: \"/check\": stat /check: no such file or directory: unknown", "/check", None),
            ("exec: \"check\": executable file not found in $PATH", "check", None),
            ("exec /other: no such file or directory", "/check", None),
            ("cat: can't open '/tmp/ok': No such file or directory", "cat", None),
            ("exec /check: permission denied", "/check", None),
        ] {
            assert_eq!(ExecFailure::from_text(text, program), expected, "{text}");
        }
    }
}
