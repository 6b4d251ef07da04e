//! `probeshim top` in tmux, with real keys, and its end in different ways.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use fixtures::need;
use rustix::process::{Pid, Signal, kill_process};

use crate::probing::{FAILING, run, told};
use crate::procrun::{Runtime, until};
use crate::program::{Answer, Place};

/// A terminal of tmux in which a shell runs. Its server ends when this is dropped.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// Starts a terminal of 80 columns and 24 rows. The error is the reason why it cannot.
    fn start(place: &Place) -> Result<Self, String> {
        let tmux = Self { socket: place.at("tmux.sock") };
        let shell = ["env", "PS1=ready ", "LC_ALL=C.UTF-8", "sh"];
        let mut start = tmux.command(&["new-session", "-d", "-x", "80", "-y", "24"]);
        match start.args(shell).env("LC_ALL", "C.UTF-8").stderr(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(tmux),
            Ok(status) => Err(format!("tmux cannot start a session: {status}")),
            Err(error) => Err(format!("no tmux: {error}")),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        // `-f` and not the configuration of the user.
        command.arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(args);
        command.env_remove("TMUX").env("TERM", "xterm");
        command
    }

    /// Sends keys, each by its name for tmux.
    async fn press(&self, keys: &[&str]) {
        let answer = Answer::to(self.command(&[&["send-keys"], keys].concat())).await;
        assert_eq!(answer.code, Some(0), "{answer:?}");
    }

    /// Sends a command line.
    async fn enter(&self, line: &str) {
        self.press(&[line, "Enter"]).await;
    }

    async fn resize(&self, columns: u16, rows: u16) {
        let [columns, rows] = [columns, rows].map(|size| size.to_string());
        let answer = Answer::to(self.command(&["resize-window", "-x", &columns, "-y", &rows])).await;
        assert_eq!(answer.code, Some(0), "{answer:?}");
    }

    async fn screen(&self) -> String {
        Answer::to(self.command(&["capture-pane", "-p"])).await.stdout
    }

    /// Waits until the screen has a text. Returns the screen.
    async fn shows(&self, text: &str) -> String {
        until(|| async {
            let screen = self.screen().await;
            screen.contains(text).then_some(screen)
        })
        .await
    }

    /// Returns whether the alternate screen is shown, and whether the cursor is visible.
    async fn modes(&self) -> String {
        let format = "#{alternate_on} #{cursor_flag}";
        Answer::to(self.command(&["display-message", "-p", format])).await.stdout.trim().to_owned()
    }

    /// Waits until the terminal is as it was before `top`: its content, its cursor and its mode, in
    /// which keys are echoed and lines are edited. `marker` is a new text.
    async fn is_restored(&self, marker: &str) {
        until(|| async { (self.modes().await == "0 1").then_some(()) }).await;
        // Until the shell has its terminal back, `top` may still read keys.
        until(|| async {
            let screen = self.screen().await;
            (screen.lines().rfind(|line| !line.is_empty()).map(str::trim) == Some("ready")).then_some(())
        })
        .await;
        self.enter(&format!("stty -a | tr ' ;' '\\n\\n' | grep -xE 'icanon|echo|isig' | sort | paste -sd, | sed s/^/{marker}-/")).await;
        self.shows(&format!("{marker}-echo,icanon,isig")).await;
    }

    /// Starts `top`, and waits for its table.
    async fn top(&self, place: &Place, environment: &str) -> String {
        let admin = place.at("admin.sock");
        let program = env!("CARGO_BIN_EXE_probeshim");
        self.enter(&format!("clear; {environment} {program} top --admin {}", admin.display())).await;
        self.shows("it/web").await
    }

    /// Returns the process id of `top`.
    async fn pid(&self) -> Pid {
        let shell = Answer::to(self.command(&["display-message", "-p", "#{pane_pid}"])).await.stdout;
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).stderr(Stdio::null()).status();
    }
}

/// Starts a runtime with a pod, and configures a probe of it that fails.
async fn failing_pod(place: &Place) -> Runtime {
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "web").await;
    place.configure(FAILING);
    runtime
}

#[tokio::test]
async fn top_in_tmux_follows_keys_pauses_and_restores_the_terminal_however_it_ends() {
    let place = Place::new();
    let tmux = need!(Tmux::start(&place));
    let _runtime = failing_pod(&place).await;
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    told(&place, "web", "WouldKill", "Container main failed liveness probe, will be restarted", 1).await;
    tmux.shows("ready").await;

    let screen = tmux.top(&place, "").await;
    assert_eq!(tmux.modes().await, "1 0", "{screen}");
    tmux.shows("mode dry-run").await;
    tmux.shows("fail").await;
    tmux.press(&["/", "n", "o", "t", "h", "i", "n", "g"]).await;
    tmux.shows("no probe matches the filter").await;
    tmux.press(&["Escape"]).await;
    tmux.shows("1 of 1 probes").await;
    tmux.press(&["s"]).await;
    tmux.shows("sort: POD").await;
    tmux.press(&["Enter"]).await;
    tmux.shows("it/web main liveness (probeshim)").await;
    tmux.press(&["G"]).await;
    tmux.shows("probeshim calls --pod it/web --container main --probe liveness").await;
    tmux.press(&["p"]).await;
    tmux.shows("for: 5m").await;
    tmux.press(&["Enter"]).await;
    tmux.shows("for 5m?").await;
    tmux.press(&["y"]).await;
    tmux.shows("1 pause,").await;
    let pauses = place.ask(&["pause", "-o", "json"]).await.json();
    assert_eq!(pauses[0]["selector"], "namespace=it,pod=web,container=main");
    tmux.press(&["r"]).await;
    tmux.shows("End this pause?").await;
    tmux.press(&["y"]).await;
    until(|| async { (place.ask(&["pause", "-o", "json"]).await.stdout == "[]\n").then_some(()) }).await;
    tmux.press(&["l"]).await;
    tmux.shows("Findings, the worst first").await;
    tmux.press(&["?"]).await;
    tmux.shows("sort by: W worst first").await;
    tmux.press(&["q"]).await;
    tmux.is_restored("quit").await;

    tmux.top(&place, "NO_COLOR=1 LC_ALL=C").await;
    kill_process(tmux.pid().await, Signal::TERM).unwrap();
    tmux.is_restored("terminated").await;
    tmux.top(&place, "").await;
    kill_process(tmux.pid().await, Signal::HUP).unwrap();
    tmux.is_restored("hangup").await;

    tmux.top(&place, "").await;
    kill_process(tmux.pid().await, Signal::TSTP).unwrap();
    tmux.is_restored("suspended").await;
    tmux.enter("fg").await;
    tmux.shows("it/web").await;
    assert_eq!(tmux.modes().await, "1 0");
    tmux.press(&["C-z"]).await;
    tmux.is_restored("stopped").await;
    tmux.enter("fg").await;
    tmux.shows("it/web").await;
    tmux.press(&["C-c"]).await;
    tmux.is_restored("interrupted").await;

    tmux.top(&place, "RUST_BACKTRACE=0 PROBESHIM_TOP_PANIC=1").await;
    tmux.press(&["j"]).await;
    tmux.shows("PROBESHIM_TOP_PANIC is set").await;
    tmux.is_restored("panicked").await;
}

#[tokio::test]
async fn top_shows_more_columns_on_a_terminal_that_becomes_wider() {
    let place = Place::new();
    let tmux = need!(Tmux::start(&place));
    let _runtime = failing_pod(&place).await;
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    tmux.shows("ready").await;
    let narrow = tmux.top(&place, "").await;
    assert!(!narrow.contains("PROBER"), "{narrow}");
    tmux.resize(160, 40).await;
    tmux.shows("PROBER").await;
    tmux.resize(60, 12).await;
    until(|| async {
        let screen = tmux.screen().await;
        (screen.contains("it/web") && !screen.contains("PROBER")).then_some(())
    })
    .await;
    tmux.press(&["q"]).await;
    tmux.is_restored("quit").await;
}

#[tokio::test]
async fn top_reconnects_to_a_probeshim_that_was_restarted() {
    let place = Place::new();
    let tmux = need!(Tmux::start(&place));
    let _runtime = failing_pod(&place).await;
    let shim = place.start_watching(&["--enforce", "dry-run"]).await;
    tmux.shows("ready").await;
    tmux.top(&place, "").await;
    drop(shim);
    tmux.shows("disconnected, trying again: no probeshim listens").await;
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    tmux.shows("mode dry-run").await;
    tmux.press(&["q"]).await;
    tmux.is_restored("quit").await;
}

#[tokio::test]
async fn top_without_a_terminal_names_the_command_that_prints_a_table() {
    let place = Place::new();
    let answer = Answer::to(place.asking(&["top"])).await;
    assert_eq!(answer.code, Some(2), "{answer:?}");
    let expected =
        "error: top needs a terminal: standard output is not a terminal; `probeshim probes` prints a table\n";
    assert_eq!(answer.stderr, expected);
}
