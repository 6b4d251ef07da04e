//! A server that a test started: its log, its end.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Looks that are taken at something before it is taken never to happen: two minutes of them.
const LOOKS: usize = 2400;

/// Lines of a log that are shown with a test that failed.
const TAIL: usize = 15;

/// A process that is killed when dropped. What it prints goes into a file.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    process: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it. Its log is written behind what is there already.
    pub(crate) fn start(name: &'static str, command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        // Else it would report to the service manager of whoever runs the tests.
        command.env_remove("NOTIFY_SOCKET").stdout(file.try_clone().unwrap()).stderr(file);
        let process = command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Self { name, process, log: log.to_owned() }
    }

    /// Waits until it is ready.
    pub(crate) fn wait_until(&mut self, is_ready: impl Fn(&Self) -> bool) {
        for () in looks() {
            if is_ready(self) {
                return;
            }
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended: {ended:?}", self.name);
        }
        panic!("{} does not come up", self.name);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        self.process.wait().unwrap()
    }

    /// Kills it, as a crash would.
    pub(crate) fn crash(mut self) {
        self.process.kill().unwrap();
        assert_eq!(
            self.process.wait().unwrap().signal(),
            Some(Signal::KILL.as_raw()),
            "{} had ended",
            self.name
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(TAIL).collect();
            eprintln!("the last lines of {}, newest first:\n{}", self.name, tail.join("\n"));
        }
    }
}

/// Waits for what is bound to happen.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for () in looks() {
        if let Some(seen) = look() {
            return seen;
        }
    }
    panic!("{what}: it never happened");
}

/// Times to look at something that no event tells of, with a pause after each.
pub(crate) fn looks() -> impl Iterator<Item = ()> {
    #[expect(clippy::disallowed_methods, reason = "another process is awaited")]
    let pause = || std::thread::sleep(Duration::from_millis(50));
    (0..LOOKS)
        .inspect(move |look| {
            if *look > 0 {
                pause();
            }
        })
        .map(|_| ())
}
