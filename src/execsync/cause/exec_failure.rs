//! Commands that could not be started, and shells that could not start a program of theirs.

use super::super::analysis::CallRecord;
use crate::cri::{NOT_EXECUTABLE, NOT_FOUND};
use crate::tap::Call;

/// Texts with which runc and crun begin an error about the program of a command, in lower case
/// (runc: Go's `exec.Error`; crun: `find_executable` and `libcrun_run_linux_container`).
const ABOUT_PROGRAM: [&str; 4] = ["exec: \"", "executable file", "open executable", "exec container process"];

/// Reason why a program cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecFailure {
    /// The program does not exist.
    NoProgram,
    /// A shell did not find a program at a path. Shells write the same about a script whose
    /// interpreter does not exist.
    NoProgramOrInterpreter,
    /// The interpreter of a script, or the dynamic loader of a program, does not exist.
    NoInterpreter,
    /// A shared library of the program does not exist.
    NoLibrary,
    /// The file is no program for this processor, and no script with an interpreter.
    UnknownFormat,
    /// The user may not execute the file, or it is a directory.
    NoPermission,
    /// The exit code is that of a shell which cannot execute a program, and no output that is kept
    /// names the reason.
    Unknown,
}

/// The program that could not be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedProgram {
    /// The program of the command.
    Own,
    /// A program that the command calls. The program of the command, such as a shell or a script,
    /// ran.
    Called,
    /// The program of the command, or one that it calls.
    Unknown,
}

impl ExecFailure {
    /// Returns the reason, if the runtime reported one in its error message, or the runtime or a
    /// shell in the output of the command.
    #[must_use]
    pub fn from_record(record: &CallRecord) -> Option<Self> {
        Self::with_program(&record.call).map(|(failure, _)| failure)
    }

    /// Returns the reason, with the program that could not be executed. An error of the runtime is
    /// about the program of the command: runc has already reported the start of the command when it
    /// replaces itself by the program, so it writes the error to stderr and exits with 1 or 255. An
    /// error of a shell or a script is about a program that it calls, because it ran itself.
    #[must_use]
    pub fn with_program(call: &Call) -> Option<(Self, FailedProgram)> {
        let exec = call.exec.as_deref()?;
        let program = exec.command.first().map_or("", String::as_str);
        let own = |failure| (failure, FailedProgram::Own);
        if let Some(message) = call.message.as_deref() {
            return Self::from_exec_error(message, program).or_else(|| Self::from_message(message)).map(own);
        }
        let code = exec.result?.exit_code;
        let output = exec.output.as_deref().unwrap_or_default();
        let from_shell = || {
            let failure = Self::from_shell(output, code)?;
            let failed = match failure {
                Self::NoLibrary => FailedProgram::from_loader(output, program),
                Self::Unknown => FailedProgram::Unknown,
                _ => FailedProgram::Called,
            };
            Some((failure, failed))
        };
        Self::from_exec_error(output, program).map(own).or_else(from_shell)
    }

    /// Returns the reason in an error of runc (`exec /check: no such file or directory`) or crun
    /// (``exec container process `/check`: No such file or directory``) about a program that
    /// exists.
    fn from_exec_error(text: &str, program: &str) -> Option<Self> {
        let after_exec = text.match_indices("exec ").map(|(at, found)| &text[at + found.len()..]);
        after_exec.into_iter().find_map(|rest| {
            let rest = rest.strip_prefix("container process ").unwrap_or(rest);
            let rest = rest.strip_prefix("(missing dynamic library?) ").unwrap_or(rest);
            let (path, reason) = rest.split_once(": ")?;
            let reason = reason.to_ascii_lowercase();
            match reason {
                _ if !is_path_of(path.trim_matches('`'), program) => None,
                _ if reason.starts_with("no such file or directory") => Some(Self::NoInterpreter),
                _ if reason.starts_with("exec format error") => Some(Self::UnknownFormat),
                _ => None,
            }
        })
    }

    /// Returns the reason in the message with which a runtime rejected a command. Errors about
    /// other files, such as the socket of a shim, have the same last words.
    fn from_message(message: &str) -> Option<Self> {
        let message = message.to_ascii_lowercase();
        let about_program = ABOUT_PROGRAM.iter().filter_map(|text| message.find(text)).min()?;
        let error = &message[about_program..];
        let has = |text: &str| error.contains(text);
        if has("permission denied") || has("is a directory") {
            Some(Self::NoPermission)
        } else if has("exec format error") {
            Some(Self::UnknownFormat)
        } else if has("not found") || has("no such file or directory") {
            Some(Self::NoProgram)
        } else {
            None
        }
    }

    /// Returns the reason for which a command exited with a shell's code: what the shell or the
    /// dynamic loader wrote decides, because the codes are the same for several reasons. `output`
    /// is empty if it is not kept. A program may also exit with 127 for a reason of its own, which
    /// its output then names.
    fn from_shell(output: &str, code: i32) -> Option<Self> {
        if code != NOT_EXECUTABLE && code != NOT_FOUND {
            return None;
        }
        let output = output.to_ascii_lowercase();
        let has = |text: &str| output.contains(text);
        if has("bad interpreter") || has("cannot execute: required file not found") {
            Some(Self::NoInterpreter)
        } else if has("loading shared librar") {
            Some(Self::NoLibrary)
        } else if has("exec format error") {
            Some(Self::UnknownFormat)
        } else if code == NOT_EXECUTABLE {
            let is_denied = has("permission denied") || has("is a directory");
            Some(if is_denied { Self::NoPermission } else { Self::Unknown })
        } else if output.lines().any(is_path_not_found) {
            Some(Self::NoProgramOrInterpreter)
        } else if output.lines().any(is_not_found) {
            Some(Self::NoProgram)
        } else {
            output.trim().is_empty().then_some(Self::Unknown)
        }
    }
}

impl FailedProgram {
    /// Returns the program that lacks a library, by the line of the dynamic loader. glibc begins it
    /// with the path of the program, and musl names at its end the file that needs the library:
    /// `(needed by /check)`. That file may be another library.
    fn from_loader(output: &str, program: &str) -> Self {
        let path = output.lines().find_map(|line| {
            let of_musl = || Some(line.split_once("(needed by ")?.1.trim_end().trim_end_matches(')'));
            line.split_once(": error while loading").map(|(path, _)| path).or_else(of_musl)
        });
        match path {
            Some(path) if is_path_of(path, program) => Self::Own,
            Some(path) if !path.contains(".so") => Self::Called,
            _ => Self::Unknown,
        }
    }
}

/// Returns whether a path is that of a program, which may be a name that is looked for in `$PATH`.
fn is_path_of(path: &str, program: &str) -> bool {
    path == program || path.rsplit_once('/').is_some_and(|(_, name)| name == program)
}

/// Returns whether a line of a shell says that there is no program at a path: `sh: 1: /check: not
/// found`, or `sh: line 1: /check: No such file or directory`. `line` is in lower case.
fn is_path_not_found(line: &str) -> bool {
    let line = line.trim_end();
    let Some(before) =
        line.strip_suffix(": not found").or_else(|| line.strip_suffix(": no such file or directory"))
    else {
        return false;
    };
    before.rsplit(": ").next().is_some_and(|name| name.contains('/'))
}

/// Returns whether a line says that something was not found. musl's dynamic loader writes about
/// symbols of libraries. `line` is in lower case.
fn is_not_found(line: &str) -> bool {
    let is_symbol = line.contains("symbol not found");
    !is_symbol && (line.contains("not found") || line.contains("no such file or directory"))
}

#[cfg(test)]
mod tests;
