//! Decides whether a process that is stopped at its exec executes a command.
//!
//! If the program of the command is a script, the kernel executes the interpreter in the first line
//! of the script, and puts it in front of the command: `/p.sh x` becomes `/bin/sh -e /p.sh x`. An
//! interpreter may be a script itself. The kernel keeps the path of the executed file in the
//! process, so no file of the container has to be read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

/// Entry of the auxiliary vector with the address of the path of the executed file.
const EXECUTED_FILE: u64 = libc::AT_EXECFN;

/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = libc::PATH_MAX as usize;

/// Returns whether a process executes a command, as itself or by an interpreter.
pub(crate) fn is_executed_by(pid: i32, argv: &[Vec<u8>]) -> bool {
    let Some(line) = command_line(pid) else { return false };
    line == argv || executed_file(pid).is_some_and(|file| is_interpreted(&line, &file, argv))
}

/// Returns the arguments of a process.
pub(crate) fn command_line(pid: i32) -> Option<Vec<Vec<u8>>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let bytes = bytes.strip_suffix(b"\0")?;
    Some(bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
}

/// Returns whether `line` are the arguments of an interpreter that executes the file `file` for a
/// command.
fn is_interpreted(line: &[Vec<u8>], file: &[u8], argv: &[Vec<u8>]) -> bool {
    let Some((program, arguments)) = argv.split_first() else { return false };
    let Some(before) = line.strip_suffix(arguments) else { return false };
    // The kernel replaces the first argument by the path of the script. The interpreter is before.
    before.len() > 1 && before.last().is_some_and(|script| script == file) && is_found_as(program, file)
}

/// Returns whether a runtime may find a program at this path. A program without a slash is found
/// in a directory of PATH. crun begins the path of one that begins with a dot with the working
/// directory.
fn is_found_as(program: &[u8], path: &[u8]) -> bool {
    if program.starts_with(b"/") {
        return path == program;
    }
    path == program || path.strip_suffix(program).is_some_and(|dir| dir.ends_with(b"/"))
}

/// Returns the path of the file that a process executes, as it was given to the kernel. For a
/// script, it is the path of the script.
fn executed_file(pid: i32) -> Option<Vec<u8>> {
    let auxiliary = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    // The entries of a program with 32 bits have half the size.
    let address = entry::<8>(&auxiliary).or_else(|| entry::<4>(&auxiliary))?;
    let mut text = [0; MAX_PATH_BYTES];
    // The path is near the end of the stack, so fewer bytes may follow.
    let length = File::open(format!("/proc/{pid}/mem")).ok()?.read_at(&mut text, address).ok()?;
    let end = text[..length].iter().position(|byte| *byte == 0)?;
    Some(text[..end].to_vec())
}

/// Returns the value of [`EXECUTED_FILE`] in an auxiliary vector of numbers with this size.
fn entry<const SIZE: usize>(auxiliary: &[u8]) -> Option<u64> {
    let number = |bytes: &[u8]| {
        let mut number = [0; 8];
        let start = if cfg!(target_endian = "little") { 0 } else { 8 - SIZE };
        number[start..start + SIZE].copy_from_slice(bytes);
        u64::from_ne_bytes(number)
    };
    let entries = auxiliary.chunks_exact(2 * SIZE).map(|entry| entry.split_at(SIZE));
    let mut known =
        entries.map(|(kind, value)| (number(kind), number(value))).take_while(|(kind, _)| *kind != 0);
    known.find(|(kind, _)| *kind == EXECUTED_FILE).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn arguments(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|argument| argument.as_bytes().to_vec()).collect()
    }

    #[test]
    fn an_interpreter_executes_the_command_of_the_file_that_it_got_from_the_kernel() {
        for (line, file, command) in [
            ("/bin/sh /p.sh", "/p.sh", "/p.sh"),
            ("/bin/sh -e /p.sh a b", "/p.sh", "/p.sh a b"),
            ("/usr/bin/env bash /p.sh", "/p.sh", "/p.sh"),
            ("/bin/sh /usr/bin/inner -x /opt/p a", "/opt/p", "/opt/p a"),
            ("/bin/sh /usr/local/bin/p.sh a", "/usr/local/bin/p.sh", "p.sh a"),
            ("/bin/sh ./p.sh", "./p.sh", "./p.sh"),
            ("/bin/sh /work/./p.sh", "/work/./p.sh", "./p.sh"),
        ] {
            let is = is_interpreted(&arguments(line), file.as_bytes(), &arguments(command));
            assert!(is, "{line} executes {command}");
        }
    }

    #[test]
    fn another_command_is_not_taken_for_a_script() {
        for (line, file, command, reason) in [
            ("sh /p.sh", "/bin/sh", "/p.sh", "a shell that was started with the script"),
            ("/bin/sh /p.sh b", "/p.sh", "/p.sh a", "other arguments"),
            ("/bin/sh /p.sh", "/p.sh", "/p.sh a", "no arguments"),
            ("/bin/sh /p.sh a", "/p.sh", "/p.sh", "more arguments"),
            ("/bin/sh /other/p.sh", "/other/p.sh", "/p.sh", "another path"),
            ("/bin/sh /bin/xp.sh", "/bin/xp.sh", "p.sh", "another name"),
            ("/bin/sh /p.sh", "/q.sh", "/p.sh", "another file"),
            ("/p.sh", "/p.sh", "/p.sh", "no interpreter"),
        ] {
            let is = is_interpreted(&arguments(line), file.as_bytes(), &arguments(command));
            assert!(!is, "{reason}: {line} does not execute {command}");
        }
        assert!(!is_interpreted(&arguments("/bin/sh /p.sh"), b"/p.sh", &[]));
    }

    /// Writes an executable script.
    fn script(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Starts a command that writes a text and then reads its input. A script may be open for
    /// writing in a process that another test has just created.
    fn start(command: &mut Command) -> Child {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = loop {
            match command.spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                started => break started.unwrap(),
            }
        };
        // A process without output may still be in its exec.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    #[test]
    fn a_process_has_the_path_of_its_script_or_its_program() {
        let dir = tempfile::tempdir().unwrap();
        let [inner, outer] = ["inner", "outer"].map(|name| dir.path().join(name));
        script(&inner, "#!/bin/cat\n");
        script(&outer, &format!("#!{} -\n", inner.display()));
        let path = |path: &Path| path.to_str().unwrap().as_bytes().to_vec();
        let [executed, by_shell] = [vec![path(&outer), b"-".to_vec()], vec![path(&inner), b"-".to_vec()]];
        let mut child = start(Command::new(&outer).arg("-"));
        let pid = child.id().cast_signed();
        let found = (executed_file(pid), is_executed_by(pid, &executed), is_executed_by(pid, &by_shell));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(found, (Some(path(&outer)), true, false));

        let mut child = start(Command::new("cat").arg(&inner).arg("-"));
        let pid = child.id().cast_signed();
        let file = executed_file(pid).unwrap();
        let found = (is_executed_by(pid, &by_shell), is_executed_by(pid, &executed));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(file.ends_with(b"/cat"), "{}", String::from_utf8_lossy(&file));
        assert_eq!(found, (false, false), "cat was started with the script as an argument");
    }

    #[test]
    fn an_auxiliary_vector_has_numbers_of_either_size() {
        let vector = [6_u64, 4096, EXECUTED_FILE, 0x7fff_1234, 0, 0];
        let long: Vec<u8> = vector.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let short = vector.iter().flat_map(|number| u32::try_from(*number).unwrap().to_ne_bytes());
        let short: Vec<u8> = short.collect();
        assert_eq!((entry::<8>(&long), entry::<4>(&short)), (Some(0x7fff_1234), Some(0x7fff_1234)));
        assert_eq!(entry::<8>(&short), None);
    }
}
