//! Remedies that `explain` and lints share: parts of sentences that begin with a lower-case verb.

use super::exec_failure::{ExecFailure, FailedProgram};
use super::limits::cpu_limit;
use crate::execsync::evidence::PidsScope;
use crate::terminal::format;

/// Names in the remedy against a program that cannot be executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecNames<'a> {
    /// The container, such as `container main`.
    pub(crate) container: &'a str,
    /// The command, such as `the command of the liveness probe`.
    pub(crate) command: &'a str,
    /// The program of the command, as it is written there; `None` if it is not known.
    pub(crate) program: Option<&'a str>,
    /// Whether the command is that of a probe, which may have another handler.
    pub(crate) is_probe: bool,
    /// Whether output is kept that may name the reason.
    pub(crate) has_output: bool,
}

impl ExecFailure {
    /// Returns the remedy if a program could not be executed for this reason.
    pub(crate) fn remedy(self, failed: FailedProgram, names: ExecNames<'_>) -> String {
        let ExecNames { container, command, .. } = names;
        let program = names.failed_program(failed);
        match self {
            Self::NoProgram => names.without_program(failed),
            Self::NoProgramOrInterpreter => format!(
                "{}; if it is there as a script, add the interpreter that its first line names (`#!`)",
                names.without_program(failed)
            ),
            Self::NoInterpreter => format!(
                "add the interpreter that the first line of {program} names (`#!`), or the dynamic loader of that program, \
                 to the image of {container}; the program itself exists, but with Windows line ends (CRLF) the name of its \
                 interpreter ends with a carriage return"
            ),
            Self::NoLibrary => format!("add the library that the output names to the image of {container}"),
            Self::UnknownFormat => {
                format!("replace {program}: it is built for another processor, or is a script without `#!`")
            }
            Self::NoPermission if failed == FailedProgram::Called => format!(
                "correct {command}, if it names a directory, or make the program that it calls executable for the user of \
                 {container}"
            ),
            Self::NoPermission => format!(
                "make {program} executable for the user of {container}, or correct {command}, if it names a directory"
            ),
            Self::Unknown if names.has_output => named_in_output(command),
            Self::Unknown => {
                format!("run {command} in {container} to see why a program could not be executed")
            }
        }
    }
}

impl ExecNames<'_> {
    /// Returns a name of the program that could not be executed.
    fn failed_program(&self, failed: FailedProgram) -> String {
        let command = self.command;
        match (failed, self.program) {
            (FailedProgram::Own, Some(program)) => quoted(program),
            (FailedProgram::Own, None) => format!("the program of {command}"),
            (FailedProgram::Called, _) => format!("the program that {command} calls"),
            (FailedProgram::Unknown, _) => format!("the program of {command}, or the one that it calls,"),
        }
    }

    /// Returns the remedy if a program does not exist.
    fn without_program(&self, failed: FailedProgram) -> String {
        let Self { container, command, .. } = self;
        let (place, program) = match (failed, self.program) {
            (FailedProgram::Own, Some(program)) => (search_path(program), quoted(program)),
            (FailedProgram::Own, None) => (String::new(), "its program".to_owned()),
            (FailedProgram::Called, _) => (String::new(), "the program that it calls".to_owned()),
            (FailedProgram::Unknown, _) => {
                (String::new(), "its program, or the one that it calls,".to_owned())
            }
        };
        if failed == FailedProgram::Own && self.is_probe {
            return format!(
                "correct {command}{place}, add {program} to the image of {container}, or use an httpGet, tcpSocket or grpc \
                 probe"
            );
        }
        format!("correct {command}{place}, or add {program} to the image of {container}")
    }
}

/// Returns where the runtime looks for the program of a command, unless its path is absolute.
fn search_path(program: &str) -> String {
    match program {
        _ if program.starts_with('/') => String::new(),
        _ if program.contains('/') => format!(" (the path {} begins at workingDir)", quoted(program)),
        _ => format!(" ({} is looked for in $PATH)", quoted(program)),
    }
}

fn quoted(program: &str) -> String {
    format::command(&[program.to_owned()])
}

/// Returns the remedy against a failure whose reason the output of the command may name.
pub(crate) fn named_in_output(command: &str) -> String {
    format!("fix the cause that the output names, or correct {command}")
}

/// Returns the remedy if the working directory of a container does not exist.
pub(crate) fn missing_directory(container: &str) -> String {
    format!(
        "correct workingDir of {container}, or keep that directory: the runtime starts each command in it"
    )
}

/// Returns the remedy if a container is frozen.
pub(crate) fn frozen(container: &str) -> String {
    format!("resume {container}, which was paused, and find out what paused it")
}

/// Returns the remedy if the kernel killed processes of a container for lack of memory.
pub(crate) fn out_of_memory(container: &str) -> String {
    format!(
        "raise the memory limit of {container}, or reduce the memory that its processes use; the command of an exec probe \
         counts too"
    )
}

/// Returns the remedy if a container reached its CPU limit, which is in processors.
pub(crate) fn throttled(container: &str, limit: Option<f64>) -> String {
    let now = limit.map(|limit| format!(" (now {})", cpu_limit(limit))).unwrap_or_default();
    format!("raise the CPU limit of {container}{now}")
}

/// Returns the remedy if an object has as many processes as it may have; `None` if it is not known
/// which one. A kubelet sets the limit of a pod to `podPidsLimit`, and that of all pods to the
/// number of the node less its reservations (`pkg/kubelet/cm/node_container_manager_linux.go`:
/// `getCgroupConfig`).
pub(crate) fn pids_limit(container: &str, scope: Option<PidsScope>) -> String {
    match scope {
        Some(PidsScope::Container) => {
            format!("find out which processes {container} leaves behind, or raise its limit of processes")
        }
        Some(PidsScope::Pod) => {
            "look for the container of the pod that leaves processes behind, or raise podPidsLimit of the kubelet"
                .to_owned()
        }
        Some(PidsScope::Pods) => {
            "look in all pods of the group for the container that leaves processes behind, or lower pid in kubeReserved and \
             systemReserved of the kubelet"
                .to_owned()
        }
        None => format!(
            "find out which processes {container} leaves behind, or raise the limit of processes that it, its pod or its \
             node has reached"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: ExecNames<'_> = ExecNames {
        container: "container main",
        command: "the command",
        program: Some("check"),
        is_probe: true,
        has_output: false,
    };

    #[test]
    fn a_missing_program_of_a_probe_is_named_with_the_place_where_it_is_looked_for() {
        let own = |program, is_probe| {
            let names = ExecNames { program: Some(program), is_probe, ..NAMES };
            ExecFailure::NoProgram.remedy(FailedProgram::Own, names)
        };
        assert_eq!(
            own("check", true),
            "correct the command (check is looked for in $PATH), add check to the image of container main, or use an \
             httpGet, tcpSocket or grpc probe"
        );
        assert_eq!(
            own("bin/check", false),
            "correct the command (the path bin/check begins at workingDir), or add bin/check to the image of container main"
        );
        assert_eq!(own("/check", false), "correct the command, or add /check to the image of container main");
    }

    #[test]
    fn a_program_that_a_command_calls_is_not_named_like_that_of_the_command() {
        let called = |failure: ExecFailure| failure.remedy(FailedProgram::Called, NAMES);
        assert_eq!(
            called(ExecFailure::NoProgram),
            "correct the command, or add the program that it calls to the image of container main"
        );
        assert_eq!(
            called(ExecFailure::NoPermission),
            "correct the command, if it names a directory, or make the program that it calls executable for the user of \
             container main"
        );
        let unknown = ExecFailure::Unknown.remedy(FailedProgram::Unknown, NAMES);
        assert_eq!(unknown, "run the command in container main to see why a program could not be executed");
    }

    #[test]
    fn a_limit_of_processes_has_the_remedy_of_its_object() {
        let remedy = |scope| pids_limit("container main", scope);
        assert!(remedy(Some(PidsScope::Container)).ends_with("or raise its limit of processes"));
        assert!(remedy(Some(PidsScope::Pod)).ends_with("or raise podPidsLimit of the kubelet"));
        assert!(remedy(Some(PidsScope::Pods)).starts_with("look in all pods of the group"));
        assert!(remedy(None).ends_with("that it, its pod or its node has reached"));
    }
}
