use std::time::{Duration, SystemTime};

use super::*;
use crate::tap::{Call, ExecCall, ExecResult};

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
        ("exec container process `/check`: Exec format error", "/check", Some(ExecFailure::UnknownFormat)),
        ("exec: \"/check\": stat /check: no such file or directory: unknown", "/check", None),
        ("exec: \"check\": executable file not found in $PATH", "check", None),
        ("exec /other: no such file or directory", "/check", None),
        ("cat: can't open '/tmp/ok': No such file or directory", "cat", None),
        ("exec /check: permission denied", "/check", None),
    ] {
        assert_eq!(ExecFailure::from_exec_error(text, program), expected, "{text}");
    }
}

#[test]
fn a_rejected_command_has_a_reason_only_if_the_message_is_about_its_program() {
    use ExecFailure::{NoPermission, NoProgram, UnknownFormat};
    for (message, expected) in [
        (
            "exec failed: unable to start container process: exec: \"curl\": executable file not found in $PATH: unknown",
            Some(NoProgram),
        ),
        ("exec: \"/check\": stat /check: no such file or directory: unknown", Some(NoProgram)),
        ("executable file `curl` not found in $PATH: No such file or directory", Some(NoProgram)),
        ("exec: \"/etc\": permission denied: unknown", Some(NoPermission)),
        ("exec: \"/etc\": is a directory: unknown", Some(NoPermission)),
        ("open executable: Permission denied", Some(NoPermission)),
        ("exec: \"/check\": exec format error", Some(UnknownFormat)),
        ("dial unix /run/containerd/s/1: connect: no such file or directory", None),
        ("fork/exec /usr/bin/runc: no such file or directory", None),
        ("chdir to cwd (\"/work\") set in config.json failed: permission denied", None),
    ] {
        assert_eq!(ExecFailure::from_message(message), expected, "{message}");
    }
}

/// Returns a call whose command exited with a code, and wrote an output that is kept or not.
fn exited(command: &[&str], exit_code: i32, output: Option<&str>) -> Call {
    let stderr_bytes = output.map_or(0, str::len);
    let exec = ExecCall {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        result: Some(ExecResult { exit_code, stdout_bytes: 0, stderr_bytes }),
        output: output.map(Into::into),
        ..ExecCall::default()
    };
    let call = Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::ZERO);
    Call { exec: Some(Box::new(exec)), ..call }
}

#[test]
fn the_output_of_a_shell_or_loader_decides_and_not_only_its_exit_code() {
    use ExecFailure::{
        NoInterpreter, NoLibrary, NoPermission, NoProgram, NoProgramOrInterpreter, UnknownFormat,
    };
    for (code, output, expected) in [
        (127, "sh: 1: curl: not found", NoProgram),
        (127, "bash: line 1: curl: command not found", NoProgram),
        (127, "env: 'python9': No such file or directory", NoProgram),
        (127, "sh: 1: /check: not found", NoProgramOrInterpreter),
        (127, "bash: line 1: /check: No such file or directory", NoProgramOrInterpreter),
        (127, "/check: error while loading shared libraries: libssl.so.1.1: cannot open", NoLibrary),
        (127, "Error loading shared library libz.so.1: No such file or directory", NoLibrary),
        (126, "bash: /check: /usr/bin/python3: bad interpreter: No such file or directory", NoInterpreter),
        (127, "bash: line 1: /check: cannot execute: required file not found", NoInterpreter),
        (126, "bash: /check: cannot execute binary file: Exec format error", UnknownFormat),
        (126, "sh: /check: Permission denied", NoPermission),
        (126, "bash: line 1: /etc: Is a directory", NoPermission),
    ] {
        let record = CallRecord::unanalyzed(exited(&["sh"], code, Some(output)), None, None);
        assert_eq!(ExecFailure::from_record(&record), Some(expected), "{code} {output}");
    }
}

#[test]
fn an_exit_code_has_no_known_reason_if_no_kept_output_names_it() {
    let unknown = Some((ExecFailure::Unknown, FailedProgram::Unknown));
    for (code, output, expected) in [
        (126, None, unknown),
        (127, None, unknown),
        (126, Some(""), unknown),
        (127, Some("\n"), unknown),
        (126, Some("bash: /bin/ls: Argument list too long"), unknown),
        (126, Some("sh: 1: /check: Text file busy"), unknown),
        (127, Some("Error relocating /check: foo: symbol not found"), None),
        (127, Some("the check has a code of its own"), None),
        (1, Some("curl: not found"), None),
        (1, None, None),
    ] {
        let call = exited(&["sh", "-c", "check"], code, output);
        assert_eq!(ExecFailure::with_program(&call), expected, "{code} {output:?}");
    }
}

#[test]
fn a_command_that_ran_calls_the_program_that_a_shell_or_script_could_not_execute() {
    use FailedProgram::{Called, Own, Unknown};
    let glibc = "/check: error while loading shared libraries: libz.so.1: cannot open shared object file";
    let musl = "Error loading shared library libz.so.1: No such file or directory (needed by /check)";
    let needed =
        "Error loading shared library libz.so.1: No such file or directory (needed by /lib/libpq.so.5)";
    for (command, code, output, expected) in [
        (&["sh", "-c", "curl x"][..], 127, "sh: 1: curl: not found", Called),
        (&["/probe.sh"], 127, "/probe.sh: line 2: curl: command not found", Called),
        (&["/probe.sh"], 126, "/probe.sh: line 2: /check: Permission denied", Called),
        (
            &["timeout", "5", "/check"],
            126,
            "timeout: failed to run command '/check': Permission denied",
            Called,
        ),
        (&["env", "check"], 127, "env: 'check': No such file or directory", Called),
        (&["/bin/sh", "-c", "check"], 255, "exec /bin/sh: no such file or directory", Own),
        (&["/bin/sh", "-c", "check"], 1, "exec /bin/sh: exec format error", Own),
        (&["/check"], 127, glibc, Own),
        (&["check"], 127, musl, Own),
        (&["sh", "-c", "/check"], 127, glibc, Called),
        (&["/probe.sh"], 127, musl, Called),
        (&["/check"], 127, needed, Unknown),
    ] {
        let failed = ExecFailure::with_program(&exited(command, code, Some(output)));
        assert_eq!(failed.map(|(_, program)| program), Some(expected), "{command:?} {output}");
    }
    let message = Some("exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown".into());
    let rejected = Call { message, ..exited(&["/bin/sh"], 0, None) };
    assert_eq!(ExecFailure::with_program(&rejected), Some((ExecFailure::NoProgram, Own)));
}
