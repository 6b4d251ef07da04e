//! Exec probes as a kubelet sends them: a client of its own, to show what comes through the relay.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::account::{Account, Tone};
use super::pods::{Client, Pod, Spec};
use super::tally::Tally;
use crate::cri::v1::ExecSyncRequest;

/// How often a pod is probed.
const PERIOD: Duration = Duration::from_secs(1);

/// Seconds that a probe may take: the kubelet's default.
const TIMEOUT: i64 = 1;

/// Failures in a row after which a kubelet restarts a container: its default.
const THRESHOLD: u32 = 3;

/// Probes that pass before another is told of.
const PASSES_TOLD: u32 = 5;

/// Probes one container.
pub(super) struct Prober {
    spec: Spec,
    container: String,
    client: Client,
    account: Account,
    tally: Tally,
    failures: u32,
    passes: u32,
}

impl Prober {
    pub(super) fn of(pod: &Pod, client: Client, account: Account) -> Self {
        let tally = Tally { pod: pod.spec.name, ..Tally::default() };
        Self {
            spec: pod.spec,
            container: pod.container.clone(),
            client,
            account,
            tally,
            failures: 0,
            passes: 0,
        }
    }

    /// Probes until `stop` is cancelled.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<Tally, Status> {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(self.tally),
                _ = ticks.tick() => self.probe().await?,
            }
        }
    }

    async fn probe(&mut self) -> Result<(), Status> {
        let request = ExecSyncRequest {
            container_id: self.container.clone(),
            cmd: ["sh", "-c", self.spec.probe].map(str::to_owned).into(),
            timeout: TIMEOUT,
        };
        let start = Instant::now();
        let answer = self.client.exec_sync(request).await;
        let took = start.elapsed();
        self.tally.slowest = self.tally.slowest.max(took);
        match answer.map(tonic::Response::into_inner) {
            Ok(answer) if answer.exit_code == 0 => self.passed(took),
            Ok(answer) => {
                let said = [answer.stdout, answer.stderr].concat();
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                self.failed(&format!("exit code {}: {said}", answer.exit_code));
            }
            Err(late) if late.code() == Code::DeadlineExceeded => {
                self.failed(&format!("it took longer than {TIMEOUT}s"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn passed(&mut self, took: Duration) {
        let recovered = std::mem::take(&mut self.failures);
        if recovered > 0 {
            self.passes = 0;
            let failures = if recovered == 1 { "failure" } else { "failures" };
            let text = format!("probe passed: well again after {recovered} {failures}");
            self.account.say(self.spec.name, &text, Tone::Good);
        } else if self.passes.is_multiple_of(PASSES_TOLD) {
            let took = Account::duration(took);
            let text = match self.passes {
                0 => format!("probe passed in {took}"),
                passes => format!("probe passed in {took}, {} in a row", passes + 1),
            };
            self.account.say(self.spec.name, &text, Tone::Good);
        }
        self.passes += 1;
        self.tally.passed += 1;
    }

    fn failed(&mut self, why: &str) {
        self.passes = 0;
        self.failures += 1;
        self.tally.failed += 1;
        let text = match self.failures {
            failures @ ..THRESHOLD => format!("probe failed, {failures} of {THRESHOLD}: {why}"),
            THRESHOLD => {
                format!(
                    "probe failed, {THRESHOLD} of {THRESHOLD}: {why}; a kubelet would restart the container now"
                )
            }
            failures => format!("probe failed, {failures} in a row: {why}"),
        };
        self.account.say(self.spec.name, &text, Tone::Bad);
    }
}
