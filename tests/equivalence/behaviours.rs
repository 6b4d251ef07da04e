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
}

const fn runs(name: &'static str, argv: &'static [&'static str]) -> Behaviour {
    Behaviour { name, argv, timeout: 60, fails_to_start: false }
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

/// All behaviours.
pub(crate) const BEHAVIOURS: [Behaviour; 32] = [
    runs("attributes", &["/bin/attributes"]),
    runs("success", &["true"]),
    shell("exit code", &["sh", "-c", "exit 3"]),
    shell("exit code of a missing program", &["sh", "-c", "no-such-program"]),
    shell("SIGTERM", &["sh", "-c", "kill -TERM $$"]),
    shell("SIGKILL", &["sh", "-c", "kill -KILL $$"]),
    shell("SIGSEGV", &["sh", "-c", "kill -SEGV $$"]),
    shell("SIGPIPE", &["sh", "-c", "kill -PIPE $$; echo alive"]),
    shell("both streams", &["sh", "-c", "echo out; echo err >&2"]),
    shell("binary output", &["sh", "-c", "printf '\\000\\377\\n\\r'"]),
    shell("a megabyte", &["sh", "-c", "dd if=/dev/zero bs=1024 count=1024 2>/dev/null"]),
    shell("output beyond the limit", &["sh", "-c", "dd if=/dev/zero bs=65536 count=272 2>/dev/null"]),
    runs("standard input", &["cat"]),
    shell("terminal", &["sh", "-c", "tty; test -t 1; echo $?"]),
    shell(
        "streams by path",
        &["sh", "-c", "echo out >/dev/stdout; echo err >/dev/stderr; echo 1 >/proc/self/fd/1"],
    ),
    shell("orphan without streams", &["sh", "-c", "sleep 3 <&- >&- 2>&- & echo started"]),
    shell("orphan that holds the streams", &["sh", "-c", "sleep 1 & echo started"]),
    ends_after(1, shell("timeout", &["sh", "-c", "echo before; exec sleep 60"])),
    ends_after(1, shell("timeout with a handler", &["sh", "-c", "trap 'echo handled' TERM; sleep 3 & wait"])),
    ends_after(1, shell("timeout with a held stream", &["sh", "-c", "sleep 3 & exec sleep 60"])),
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
    shell("network", &["sh", "-c", "cat /proc/net/dev | cut -d : -f 1 | sort; hostname"]),
    fails("missing program", &["no-such-program"]),
    fails("missing path", &["/no/such/program"]),
    fails("directory", &["/tmp"]),
    fails("not executable", &["/etc/passwd"]),
    fails("relative path", &["no/such"]),
];
