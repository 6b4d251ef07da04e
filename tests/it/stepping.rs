//! Steps of the machine's clock, backward and forward, while containers are in back-off.

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::need;
use rustix::process::Signal;

use crate::admin::until_shown;
use crate::client_pods::{Owner, SHORT, attempt};
use crate::playing::{play, pod};
use crate::program::{Place, Running};

/// Offsets of the clock from the true time, in seconds. A test sets one after the other.
const STEPS: [i32; 2] = [-3600, 3600];

/// A faked clock, shared by all processes that are started with it.
struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    fn new(place: &Place) -> Result<Self, String> {
        let library = PathBuf::from(format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketimeMT.so.1"));
        if !library.exists() {
            return Err(format!("{} does not exist (apt install faketime)", library.display()));
        }
        let clock = Self { library, file: place.at("clock") };
        clock.step(0);
        Ok(clock)
    }

    fn step(&self, seconds: i32) {
        // A rename lets readers see either the old or the new offset.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{seconds:+}")).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// Starts a process with the faked clock, and waits for `message` in its log. Intervals are not
    /// faked.
    async fn start(&self, mut command: Command, log: PathBuf, message: &str) -> Running {
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", &self.file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let process = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let running = Running { process, socket: PathBuf::new(), log };
        running.logged(message).await;
        running
    }

    async fn runtime(&self, place: &Place) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command
            .arg("runtime")
            .arg("--listen")
            .arg(place.at("runtime.sock"))
            .arg("--root")
            .arg(place.at("root"));
        self.start(command, place.at("runtime.log"), "procrun started").await
    }
}

/// Checks that the container of pod `a` is restarted in spite of the steps, both while probeshim
/// runs and while it is killed. Returns the last probeshim.
async fn lives_on(
    clock: &Clock,
    direct: &mut Owner,
    mut running: Running,
    start: impl AsyncFn(&Place) -> Running,
) -> Running {
    let mut seen = BTreeSet::new();
    for is_killed in [false, true] {
        for seconds in STEPS {
            until_shown(&direct.place, &["status"], |status| {
                let pod = status["pods"].as_array()?.iter().find(|pod| pod["name"] == "a")?;
                (pod["containers"][0]["reason"] == "CrashLoopBackOff").then_some(())
            })
            .await;
            let ended = direct.containers("a").await.pop().unwrap();
            if is_killed {
                running.signal(Signal::KILL);
                running.ended().await;
            }
            clock.step(seconds);
            if is_killed {
                running = start(&direct.place).await;
            }
            let next = direct.has_started("a", attempt(&ended) + 1).await;
            assert_eq!(attempt(&next), attempt(&ended) + 1, "no attempt may be skipped");
            seen.insert(next.id);
        }
    }
    assert_eq!(seen.len(), 4);
    running
}

#[tokio::test]
async fn client_containers_are_restarted_despite_clock_steps() {
    let place = Place::new();
    let clock = need!(Clock::new(&place));
    let mut runtime = clock.runtime(&place).await;
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
    let start = async |place: &Place| {
        let mut command = place.watching_command_of(program, "shim.sock");
        command.args(["--http", "off", "--enforce", "restart"]);
        clock.start(command, place.at("log"), "probeshim started").await
    };
    let running = start(&place).await;
    let mut owner = Owner::of(place);
    owner.pod("a", SHORT, &[]).await;
    let mut direct = owner.direct();
    let mut running = lives_on(&clock, &mut direct, running, start).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0));
    direct.remove_all().await;
    runtime.signal(Signal::TERM);
    assert_eq!(runtime.ended().await, Some(0));
}

#[tokio::test]
async fn played_containers_are_restarted_despite_clock_steps() {
    let place = Place::new();
    let clock = need!(Clock::new(&place));
    let mut runtime = clock.runtime(&place).await;
    let manifest = place.at("a.yaml");
    fs::write(&manifest, pod("a", SHORT, "", "")).unwrap();
    let start = async |place: &Place| {
        let command = play(place, &[manifest.to_str().unwrap()]);
        clock.start(command, place.at("log"), "playing").await
    };
    let running = start(&place).await;
    let mut direct = Owner::of(place).direct();
    let mut running = lives_on(&clock, &mut direct, running, start).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    assert_eq!(direct.sandboxes().await, Vec::new());
    runtime.signal(Signal::TERM);
    assert_eq!(runtime.ended().await, Some(0));
}
