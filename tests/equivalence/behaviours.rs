//! Commands, and what they do.

/// A command that both executions run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    pub(crate) name: &'static str,
    pub(crate) argv: &'static [&'static str],
    /// Timeout in seconds; 0 for none.
    pub(crate) timeout: i64,
    /// Whether the command cannot be started, so that the runtime has to return the error.
    pub(crate) fails_to_start: bool,
    /// Whether the runtime's own result varies, so that results are not compared.
    pub(crate) result_varies: bool,
}

const fn runs(name: &'static str, argv: &'static [&'static str]) -> Behaviour {
    Behaviour { name, argv, timeout: 60, fails_to_start: false, result_varies: false }
}

const fn shell(name: &'static str, argv: &'static [&'static str; 3]) -> Behaviour {
    runs(name, argv)
}

const fn ends_after(timeout: i64, behaviour: Behaviour) -> Behaviour {
    Behaviour { timeout, ..behaviour }
}

const fn fails(name: &'static str, argv: &'static [&'static str]) -> Behaviour {
    Behaviour { fails_to_start: true, ..runs(name, argv) }
}

pub(crate) const ATTRIBUTES: Behaviour = runs("attributes", &["/bin/attributes"]);
pub(crate) const SUCCESS: Behaviour = runs("success", &["true"]);
const EXIT_CODE: Behaviour = shell("exit code", &["sh", "-c", "exit 3"]);

const BOTH_STREAMS: Behaviour = shell("both streams", &["sh", "-c", "echo out; echo err >&2"]);
const STANDARD_INPUT: Behaviour = runs("standard input", &["cat"]);
const MISSING_PROGRAM: Behaviour = fails("missing program", &["no-such-program"]);

/// Behaviours that need little processor time.
pub(crate) const LIGHT: [Behaviour; 5] = [ATTRIBUTES, SUCCESS, EXIT_CODE, BOTH_STREAMS, STANDARD_INPUT];

/// Behaviours at a memory limit. The container has to have reached its limit before, or reaches it
/// by these.
pub(crate) const AT_MEMORY_LIMIT: [Behaviour; 6] = [
    shell("beyond the memory limit", &["sh", "-c", "exec tail /dev/zero"]),
    shell("a child beyond the memory limit", &["sh", "-c", "tail /dev/zero; echo $?"]),
    shell("memory limit reached", &["sh", "-c", "grep -c '^max [1-9]' /sys/fs/cgroup/memory.events"]),
    ATTRIBUTES,
    SUCCESS,
    EXIT_CODE,
];

/// Behaviours in a container that may have no more processes. The threads of
/// the runtime's process count too, so the runtime starts a command by chance, or fails with one of
/// several errors.
pub(crate) const AT_PIDS_LIMIT: [Behaviour; 3] = [
    Behaviour { fails_to_start: true, result_varies: true, ..SUCCESS },
    Behaviour { fails_to_start: true, result_varies: true, ..EXIT_CODE },
    Behaviour { result_varies: true, ..MISSING_PROGRAM },
];

/// Behaviours in all kinds of containers.
pub(crate) const BEHAVIOURS: [Behaviour; 20] = [
    ATTRIBUTES,
    SUCCESS,
    EXIT_CODE,
    shell("SIGKILL", &["sh", "-c", "kill -KILL $$"]),
    BOTH_STREAMS,
    shell("binary output", &["sh", "-c", "printf '\\000\\377\\n\\r'"]),
    STANDARD_INPUT,
    shell("terminal", &["sh", "-c", "tty; test -t 1; echo $?"]),
    shell(
        "streams by path",
        &["sh", "-c", "echo out >/dev/stdout; echo err >/dev/stderr; echo 1 >/proc/self/fd/1"],
    ),
    shell("orphan without streams", &["sh", "-c", "sleep 3 <&- >&- 2>&- & echo started"]),
    shell("orphan that holds the streams", &["sh", "-c", "sleep 1 & echo started"]),
    ends_after(1, shell("timeout", &["sh", "-c", "echo before; exec sleep 600"])),
    shell("environment", &["sh", "-c", "env | sort; echo HOME=$HOME"]),
    shell("working directory", &["sh", "-c", "pwd; stat -c '%a %u %g' ."]),
    shell(
        "files",
        &[
            "sh",
            "-c",
            "for dir in /tmp /etc /; do f=$(mktemp $dir/XXXXXX 2>/dev/null) && stat -c '%u %g %a' $f && rm $f; echo $?; done",
        ],
    ),
    shell(
        "privileges",
        &[
            "sh",
            "-c",
            "chroot / true; mount -t tmpfs x /mnt; unshare -U true; nice -n -5 true; mknod /tmp/n c 1 3 && rm /tmp/n; dmesg >/dev/null; \
         echo 500 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj",
        ],
    ),
    shell("limits", &["sh", "-c", "ulimit -a; ulimit -Ha"]),
    shell("processes", &["sh", "-c", "test -d /proc/1 && cat /proc/1/comm; cat /proc/self/cgroup"]),
    MISSING_PROGRAM,
    fails("not executable", &["/etc/passwd"]),
];

/// Further behaviours. An emulated machine needs a minute for them in one container.
pub(crate) const MORE_BEHAVIOURS: [Behaviour; 12] = [
    shell("exit code of a missing program", &["sh", "-c", "no-such-program"]),
    shell("SIGTERM", &["sh", "-c", "kill -TERM $$"]),
    shell("SIGSEGV", &["sh", "-c", "kill -SEGV $$"]),
    shell("SIGPIPE", &["sh", "-c", "kill -PIPE $$; echo alive"]),
    shell("a megabyte", &["sh", "-c", "dd if=/dev/zero bs=1024 count=1024 2>/dev/null"]),
    shell("output beyond the limit", &["sh", "-c", "dd if=/dev/zero bs=65536 count=272 2>/dev/null"]),
    ends_after(
        1,
        shell(
            "timeout with a handler",
            &["sh", "-c", "trap 'echo handled' TERM; sleep 600 <&- >&- 2>&- & wait"],
        ),
    ),
    ends_after(1, shell("timeout with a held stream", &["sh", "-c", "sleep 3 & exec sleep 600"])),
    shell("network", &["sh", "-c", "cat /proc/net/dev | cut -d : -f 1 | sort; hostname"]),
    fails("missing path", &["/no/such/program"]),
    fails("directory", &["/tmp"]),
    fails("relative path", &["no/such"]),
];
