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

#[test]
fn the_output_of_a_shell_or_loader_decides_and_not_only_its_exit_code() {
    use ExecFailure::{
        NoInterpreter, NoLibrary, NoPermission, NoProgram, NoProgramOrInterpreter, UnknownFormat,
    };
    for (code, output, expected) in [
        (127, "sh: 1: curl: not found", Some(NoProgram)),
        (127, "bash: line 1: curl: command not found", Some(NoProgram)),
        (127, "sh: 1: /check: not found", Some(NoProgramOrInterpreter)),
        (127, "bash: line 1: /check: No such file or directory", Some(NoProgramOrInterpreter)),
        (127, "/check: error while loading shared libraries: libssl.so.1.1: cannot open", Some(NoLibrary)),
        (127, "Error loading shared library libz.so.1: No such file or directory", Some(NoLibrary)),
        (
            126,
            "bash: /check: /usr/bin/python3: bad interpreter: No such file or directory",
            Some(NoInterpreter),
        ),
        (127, "bash: line 1: /check: cannot execute: required file not found", Some(NoInterpreter)),
        (126, "bash: /check: cannot execute binary file: Exec format error", Some(UnknownFormat)),
        (126, "sh: /check: Permission denied", Some(NoPermission)),
        (127, "", Some(NoProgram)),
        (1, "curl: not found", None),
    ] {
        let exec = ExecCall {
            command: vec!["sh".to_owned()],
            result: Some(ExecResult { exit_code: code, stdout_bytes: 0, stderr_bytes: output.len() }),
            output: Some(output.into()),
            ..ExecCall::default()
        };
        let call = Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::ZERO);
        let call = Call { exec: Some(Box::new(exec)), ..call };
        let record = CallRecord::unanalyzed(call, None, None);
        assert_eq!(ExecFailure::from_record(&record), expected, "{code} {output}");
    }
}
