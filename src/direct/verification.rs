//! Verification of a container: which of its commands the helper may run.
//!
//! ```text
//! Unverified ──recorded──► Recorded ──no difference──► Verified
//!      ▲    └──────────────────┴──unsupported, or a difference──► Forwarded
//!      └──────after an interval, if the reason is repeated failures──┘
//! ```

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use exec_helper::protocol::{Attributes, Difference, Snapshot};
use exec_helper::text::shortened;
use tokio::time::Instant;

use crate::file_id::FileId;
use crate::policy::ForwardKind;

/// Maximum number of commands of a container whose records are kept. The oldest make room.
const MAX_RECORDS: usize = 8;

/// Number of failures in a row after which the runtime runs all commands of a container.
const MAX_FAILURES: u32 = 100;

/// Time after which a container with too many failures is verified again.
const RETRY_INTERVAL: Duration = Duration::from_secs(300);

/// Maximum length of a reason, in bytes. Each call of the container has it in its record.
pub(super) const MAX_REASON_BYTES: usize = 1000;

/// Begin of the reason for which a command of a container is not executed yet.
pub(super) const UNVERIFIED: &str = "unverified: ";

/// Arguments of a command.
pub(super) type Argv = Vec<Vec<u8>>;

/// Verification of a container.
#[derive(Clone, Debug)]
pub(super) struct Verification {
    pub(super) state: VerificationState,
    /// Number of commands in a row that were neither recorded nor started.
    failures: u32,
    /// Reason for which the last of them was not.
    last_failure: Option<String>,
    /// Time of the next verification, after too many failures.
    retry_at: Option<Instant>,
}

/// State of a [`Verification`].
#[derive(Clone, Debug)]
pub(super) enum VerificationState {
    /// No process of the runtime has been recorded.
    Unverified {
        /// Number of attempts to record one.
        attempts: u32,
    },
    /// Processes of the runtime have been recorded, by their commands. None of the helper's has
    /// been compared with one.
    Recorded(VecDeque<(Argv, Arc<Record>)>),
    /// A process of the helper did not differ from the runtime's.
    Verified(Arc<Record>),
    /// The runtime runs all commands.
    Forwarded(Arc<ForwardReason>),
}

/// Record of a process that the runtime has started in the container.
#[derive(Debug)]
pub(super) struct Record {
    /// Its fields at its exec.
    pub(super) snapshot: Snapshot,
    /// The attributes that give a process of the helper the same fields.
    pub(super) attributes: Attributes,
    /// Directory of its cgroup.
    pub(super) cgroup: OwnedFd,
    /// Path of the OCI runtime's program; empty if it is unknown.
    pub(super) program: String,
    /// Identity of that program.
    pub(super) program_id: Option<FileId>,
}

/// Reason for which the runtime runs all commands of a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForwardReason {
    /// The container needs a feature that the helper lacks.
    #[error("{0}")]
    Unsupported(String),
    /// The helper could neither record nor start a number of commands in a row.
    #[error("{MAX_FAILURES} commands in a row could be neither recorded nor started: {0}")]
    Failed(String),
    /// A process of the helper differed from the runtime's.
    #[error("a process would differ from the runtime's in {}", fields(.0))]
    Differs(Vec<Difference>),
}

/// Way in which a command is run.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// The runtime runs it, and its process is recorded.
    Record,
    /// The helper runs it, and compares its process with this record.
    Compare(Arc<Record>),
    /// The helper runs it.
    Direct(Arc<Record>),
    /// The runtime runs it, for a reason.
    Forward(ForwardKind, String),
}

impl Default for Verification {
    fn default() -> Self {
        Self {
            state: VerificationState::Unverified { attempts: 0 },
            failures: 0,
            last_failure: None,
            retry_at: None,
        }
    }
}

impl Verification {
    /// Returns the way in which a command is run.
    pub(super) fn route(&self, argv: &Argv) -> Route {
        match &self.state {
            VerificationState::Unverified { .. } => Route::Record,
            VerificationState::Recorded(records) => {
                match records.iter().find(|(recorded, _)| recorded == argv) {
                    Some((_, record)) => Route::Compare(record.clone()),
                    None => Route::Record,
                }
            }
            VerificationState::Verified(record) => Route::Direct(record.clone()),
            VerificationState::Forwarded(reason) => {
                Route::Forward(ForwardKind::Unsupported, reason.to_string())
            }
        }
    }

    /// Returns whether the container must be verified again.
    pub(super) fn is_outdated(&self) -> bool {
        self.retry_at.is_some_and(|at| at <= Instant::now())
    }

    /// Returns the reason for which the runtime runs all commands, or for which the container is
    /// not verified yet: why the last command was neither recorded nor started.
    pub(super) fn reason(&self) -> Option<String> {
        match &self.state {
            VerificationState::Forwarded(reason) => Some(reason.to_string()),
            VerificationState::Verified(_) => None,
            _ => self.last_failure.clone(),
        }
    }

    /// Counts an attempt to record a process.
    pub(super) fn on_attempt(&mut self) {
        if let VerificationState::Unverified { attempts } = &mut self.state {
            *attempts += 1;
        }
    }

    /// Adds the record of a command.
    pub(super) fn on_recorded(&mut self, argv: Argv, record: Record) {
        self.forget_failures();
        match &mut self.state {
            VerificationState::Unverified { .. } => {
                self.state = VerificationState::Recorded([(argv, Arc::new(record))].into());
            }
            VerificationState::Recorded(records) => {
                records.retain(|(recorded, _)| *recorded != argv);
                if records.len() >= MAX_RECORDS {
                    records.pop_front();
                }
                records.push_back((argv, Arc::new(record)));
            }
            VerificationState::Verified(_) | VerificationState::Forwarded(_) => {}
        }
    }

    /// Notes that the helper has run a command.
    pub(super) fn on_executed(&mut self) {
        self.forget_failures();
    }

    fn forget_failures(&mut self) {
        self.failures = 0;
        self.last_failure = None;
    }

    /// Notes that a process of the helper did not differ from this record.
    pub(super) fn on_equal(&mut self, record: &Arc<Record>) {
        if let VerificationState::Recorded(_) = self.state {
            self.state = VerificationState::Verified(record.clone());
        }
    }

    /// Notes that a command was neither recorded nor started. After too many of them, the runtime
    /// runs all commands for a while, since each attempt takes time.
    pub(super) fn on_failure(&mut self, reason: &str) {
        let reason = shortened(reason.as_bytes(), MAX_REASON_BYTES);
        self.failures += 1;
        self.last_failure = Some(reason.clone());
        if self.failures >= MAX_FAILURES && self.retry_at.is_none() {
            self.forward(ForwardReason::Failed(reason));
            self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
        }
    }

    /// Leaves all commands to the runtime from now on.
    pub(super) fn forward(&mut self, reason: ForwardReason) {
        self.state = VerificationState::Forwarded(Arc::new(reason));
    }
}

/// Returns the fields that differ, of which a container can make many and long ones.
fn fields(differences: &[Difference]) -> String {
    let named = differences.iter().map(|difference| {
        let Difference { field, runtime, direct } = difference;
        format!("{field} ({direct:?}, not {runtime:?})")
    });
    shortened(named.collect::<Vec<_>>().join(", ").as_bytes(), MAX_REASON_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(command: &str) -> Argv {
        vec![command.as_bytes().to_vec()]
    }

    fn record() -> Record {
        Record {
            snapshot: Snapshot::default(),
            attributes: Attributes::default(),
            cgroup: std::fs::File::open("/").unwrap().into(),
            program: String::new(),
            program_id: None,
        }
    }

    fn compared(verification: &Verification, command: &str) -> Arc<Record> {
        match verification.route(&argv(command)) {
            Route::Compare(record) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_container_is_verified_by_a_command_that_the_runtime_has_run_before() {
        let mut verification = Verification::default();
        assert!(matches!(verification.route(&argv("true")), Route::Record));
        verification.on_attempt();
        assert!(matches!(verification.state, VerificationState::Unverified { attempts: 1 }));
        verification.on_recorded(argv("true"), record());
        assert!(matches!(verification.route(&argv("cat")), Route::Record), "cat was not recorded");
        let record = compared(&verification, "true");
        verification.on_equal(&record);
        assert!(matches!(verification.route(&argv("cat")), Route::Direct(_)));
    }

    #[test]
    fn a_difference_leaves_all_commands_to_the_runtime_and_is_named() {
        let mut verification = Verification::default();
        let difference =
            Difference { field: "Umask".to_owned(), runtime: "0022".to_owned(), direct: "0077".to_owned() };
        verification.forward(ForwardReason::Differs(vec![difference]));
        verification.on_recorded(argv("true"), record());
        verification.on_equal(&Arc::new(record()));
        let Route::Forward(ForwardKind::Unsupported, reason) = verification.route(&argv("true")) else {
            panic!("{verification:?}")
        };
        assert_eq!(reason, "a process would differ from the runtime's in Umask (\"0077\", not \"0022\")");
    }

    #[test]
    fn the_oldest_record_makes_room_for_another_command() {
        let mut verification = Verification::default();
        for number in 0..=MAX_RECORDS {
            verification.on_recorded(argv(&number.to_string()), record());
        }
        assert!(matches!(verification.route(&argv("0")), Route::Record));
        compared(&verification, "1");
        compared(&verification, &MAX_RECORDS.to_string());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_leave_all_commands_to_the_runtime_for_a_while() {
        let mut verification = Verification::default();
        let fail = |verification: &mut Verification, count: u32| {
            (0..count).for_each(|_| verification.on_failure("program: not found"));
        };
        assert_eq!(verification.reason(), None);
        fail(&mut verification, MAX_FAILURES - 1);
        assert_eq!(verification.reason().as_deref(), Some("program: not found"));
        verification.on_recorded(argv("true"), record());
        assert_eq!(verification.reason(), None);
        fail(&mut verification, MAX_FAILURES - 1);
        let record = compared(&verification, "true");
        verification.on_equal(&record);
        verification.on_executed();
        fail(&mut verification, MAX_FAILURES - 1);
        assert!(matches!(verification.route(&argv("true")), Route::Direct(_)), "not in a row");
        fail(&mut verification, 1);
        let Route::Forward(ForwardKind::Unsupported, reason) = verification.route(&argv("true")) else {
            panic!("{verification:?}")
        };
        assert_eq!(reason, "100 commands in a row could be neither recorded nor started: program: not found");
        assert!(!verification.is_outdated());
        tokio::time::advance(RETRY_INTERVAL).await;
        assert!(verification.is_outdated());
    }
}
