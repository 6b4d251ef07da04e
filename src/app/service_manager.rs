//! Notifies systemd of the state of the process (`sd_notify(3)`), and answers its watchdog.
//! Without `NOTIFY_SOCKET`, nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

/// Variables by which systemd addresses one process.
const VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Time that systemd gives to each part of the start, like that to the whole start in the unit.
const START_EXTENSION: Duration = Duration::from_secs(60);

/// Notifies systemd that a part of the start has ended. On a slow node each part has the time that
/// the unit gives to the start: only a hang reaches the limit.
pub(super) fn starting() {
    let extension = u32::try_from(START_EXTENSION.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::ExtendTimeoutUsec(extension)]);
}

/// Notifies systemd that clients are served. `status` is shown by `systemctl status`.
pub(super) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies systemd that the process ends.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// Notifies systemd that another process serves clients from now on. systemd accepts nothing from
/// this process afterwards. The answer to the watchdog gives the other process the whole interval
/// for its first one.
pub(super) fn main_process(pid: u32) {
    notify(&[NotifyState::MainPid(pid), NotifyState::Watchdog]);
}

/// Removes the variables by which systemd addresses this process from the environment of a command.
pub(super) fn without_service_manager(command: &mut Command) -> &mut Command {
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// Starts to answer the watchdog, if systemd expects that. A hang of one of the threads ends the
/// answers, and then systemd ends the process.
pub(super) fn start_watchdog(threads: Vec<Handle>) -> Option<AbortOnDropHandle<()>> {
    let timeout = sd_notify::watchdog_enabled()?;
    info!(?timeout, "systemd watches this process");
    let task = answer(timeout / 2, threads, || notify(&[NotifyState::Watchdog]));
    Some(AbortOnDropHandle::new(tokio::spawn(task)))
}

/// Answers as long as each thread runs tasks, and this one too.
async fn answer(interval: Duration, threads: Vec<Handle>, answer: impl Fn()) {
    loop {
        for thread in &threads {
            // The error of a runtime that has ended: a drain ends the prober.
            let _ = thread.spawn(async {}).await;
        }
        answer();
        sleep(interval).await;
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "systemd cannot be notified");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::Builder;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_answered_until_a_thread_hangs() {
        let (release, released) = mpsc::channel::<()>();
        let runtime = Builder::new_current_thread().build().unwrap();
        let observed = runtime.handle().clone();
        let ended = std::sync::Arc::new(Notify::new());
        let end = ended.clone();
        let thread = thread::spawn(move || runtime.block_on(end.notified()));
        let (answers, mut answered) = tokio::sync::mpsc::unbounded_channel();
        let threads = vec![observed.clone()];
        let task = tokio::spawn(answer(Duration::from_secs(5), threads, move || answers.send(()).unwrap()));
        for _ in 0..3 {
            answered.recv().await.unwrap();
        }
        // From here on the thread runs no task until the channel is dropped.
        let (hangs, hanging) = tokio::sync::oneshot::channel();
        observed.spawn(async move {
            hangs.send(()).unwrap();
            let _ = released.recv();
        });
        hanging.await.unwrap();
        while answered.try_recv().is_ok() {}
        // An answer that was due before the hang may still arrive, and none after it.
        sleep(Duration::from_secs(60)).await;
        while answered.try_recv().is_ok() {}
        sleep(Duration::from_secs(600)).await;
        assert!(answered.try_recv().is_err());
        drop(release);
        answered.recv().await.unwrap();
        task.abort();
        ended.notify_one();
        thread.join().unwrap();
    }
}
