//! The calls of one step of a storm.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::{Code, Status};

use crate::cri;
use crate::execsync::CRIO_TIMEOUT;

/// Kind of a call that was not sent, because the maximum number of calls was in flight.
const NOT_SENT: &str = "not-sent";

/// Kind of a call that ended at its timeout. Other kinds are the names of gRPC codes.
const TIMEOUT: &str = "timeout";

/// The calls of one step and their results.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StormCalls {
    /// Times from the offers of the served calls to their responses.
    pub(super) latencies: Vec<Duration>,
    /// Number of served calls whose command exited with another code than 0.
    pub(super) nonzero_exits: usize,
    /// Number of failed calls of each kind.
    pub(super) failures: BTreeMap<String, usize>,
}

/// A call of a storm that has ended.
#[derive(Debug)]
pub(super) struct StormCall {
    /// Time from the offer of the call to its end.
    pub(super) latency: Duration,
    /// Exit code of the command, or the error of the call.
    pub(super) result: Result<i32, Status>,
}

impl StormCalls {
    /// Adds a call that has ended. `deadline` is the time after which the call was given up.
    pub(super) fn record(&mut self, call: &StormCall, deadline: Duration) {
        let latency = call.latency;
        match &call.result {
            // CRI-O reports a timeout in this way. The exit code of a command is not negative.
            Ok(CRIO_TIMEOUT) => self.add_failure(TIMEOUT),
            Ok(exit_code) => {
                self.latencies.push(latency);
                self.nonzero_exits += usize::from(*exit_code != 0);
            }
            // The client library reports an expired deadline as a cancellation.
            Err(status) if status.code() == Code::DeadlineExceeded || latency >= deadline => {
                self.add_failure(TIMEOUT);
            }
            Err(status) => self.add_failure(&cri::Code::from(status.code()).to_string()),
        }
    }

    /// Adds a call that was not sent.
    pub(super) fn record_not_sent(&mut self) {
        self.add_failure(NOT_SENT);
    }

    fn add_failure(&mut self, kind: &str) {
        *self.failures.entry(kind.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_storm_are_counted_by_their_results() {
        let (fast, deadline) = (Duration::from_millis(5), Duration::from_secs(3));
        let mut calls = StormCalls::default();
        for (latency, result) in [
            (fast, Ok(0)),
            (fast * 2, Ok(1)),
            (fast, Ok(-1)),
            (fast, Err(Status::deadline_exceeded("timeout 1s exceeded"))),
            (deadline, Err(Status::cancelled("Timeout expired"))),
            (fast, Err(Status::cancelled("by the relay"))),
            (fast, Err(Status::resource_exhausted("too many"))),
            (fast, Err(Status::resource_exhausted("too many"))),
        ] {
            calls.record(&StormCall { latency, result }, deadline);
        }
        calls.record_not_sent();
        let failures = [("timeout", 3), ("CANCELLED", 1), ("RESOURCE_EXHAUSTED", 2), ("not-sent", 1)];
        let expected = StormCalls {
            latencies: vec![fast, fast * 2],
            nonzero_exits: 1,
            failures: failures.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        };
        assert_eq!(calls, expected);
    }
}
