//! A container of which commands were requested, and the records of its processes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use exec_helper::packet::MAX_PACKET_BYTES;
use exec_helper::protocol::{Attributes, Launch, Recorded, Snapshot};
use prost::Message as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::attributes::attributes_for_container;
use super::helper_process::PendingWatch;
use super::init_process::unified;
use super::inspection::Inspected;
use super::verification::{Argv, ForwardReason, Record, Verification, VerificationState};
use crate::file_id::FileId;
use crate::policy::DirectContainer;

/// Time after which a container without a known init process is inspected again.
const INSPECT_INTERVAL: Duration = Duration::from_secs(30);

/// Time after which a container without a known init process is forgotten.
const UNINSPECTED_LIMIT: Duration = Duration::from_secs(600);

/// Time for which a record may arrive after the runtime has answered.
const RECORD_GRACE: Duration = Duration::from_millis(100);

/// A container of which commands were requested.
#[derive(Debug)]
pub(super) struct RequestedContainer {
    pub(super) id: Arc<str>,
    /// Identity of the runtime's socket when the container was inspected.
    socket: Option<FileId>,
    inspected_at: Instant,
    /// The specification and the init process; `None` until they are known.
    pub(super) inspected: OnceLock<Inspected>,
    verification: Mutex<Verification>,
    /// Whether a command is being recorded.
    pub(super) recording: AtomicBool,
    /// Ends the wait for the exit of the init process.
    _wait: DropGuard,
}

impl RequestedContainer {
    /// Creates a container that has yet to be inspected. `dropped` is cancelled when it is dropped.
    pub(super) fn new(id: Arc<str>, socket: Option<FileId>, dropped: CancellationToken) -> Self {
        Self {
            id,
            socket,
            inspected_at: Instant::now(),
            inspected: OnceLock::new(),
            verification: Mutex::default(),
            recording: AtomicBool::new(false),
            _wait: dropped.drop_guard(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Verification> {
        self.verification.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the container need not be inspected again. `socket` is the identity of the
    /// runtime's socket, which changes when the runtime is restarted.
    pub(super) fn is_current(&self, socket: Option<FileId>) -> bool {
        self.socket == socket && self.was_inspected_within(INSPECT_INTERVAL) && !self.lock().is_outdated()
    }

    /// Returns whether the container may be kept. The exit of a container without a known init
    /// process is not noticed.
    pub(super) fn may_be_kept(&self) -> bool {
        self.was_inspected_within(UNINSPECTED_LIMIT)
    }

    /// Returns whether the init process is known, or the container is younger than `limit`.
    fn was_inspected_within(&self, limit: Duration) -> bool {
        self.inspected.get().is_some() || self.inspected_at.elapsed() < limit
    }

    /// Returns the state of the verification.
    pub(super) fn state(&self) -> DirectContainer {
        let verification = self.lock();
        let (state, attempts) = match &verification.state {
            VerificationState::Unverified { attempts } => ("unverified", *attempts),
            VerificationState::Recorded(_) => ("recorded", 0),
            VerificationState::Verified(_) => ("verified", 0),
            VerificationState::Forwarded(_) => ("forwarded", 0),
        };
        DirectContainer { id: self.id.clone(), state, attempts, reason: verification.reason() }
    }

    /// Waits for a record, until shortly after the runtime has answered, and adds it to the
    /// verification.
    pub(super) async fn finish_record(
        self: Arc<Self>,
        mut watch: PendingWatch,
        argv: Argv,
        answered: CancellationToken,
    ) {
        let late = async {
            answered.cancelled().await;
            sleep(RECORD_GRACE).await;
        };
        let recorded = tokio::select! {
            recorded = &mut watch.end => recorded.ok(),
            () = late => None,
        };
        let ended = watch.helper_has_ended();
        let failure = |reason: &str| {
            debug!(container = %self.id, reason, "no process was recorded");
            if !ended {
                self.lock().on_failure(reason);
            }
        };
        match (recorded, self.inspected.get()) {
            (Some(Ok(recorded)), Some(inspected)) => match Record::new(inspected, recorded) {
                Ok(record) => self.lock().on_recorded(argv, record),
                Err(reason) => self.lock().forward(ForwardReason::Unsupported(reason)),
            },
            (Some(Err(failed)), _) if failed.is_lasting => {
                self.lock().forward(ForwardReason::Unsupported(failed.reason));
            }
            (Some(Err(failed)), _) => failure(&failed.reason),
            _ => failure("no process of the runtime was recorded for the command"),
        }
        self.recording.store(false, Ordering::Relaxed);
    }
}

impl Record {
    /// Creates a record from that of the helper. The error is the reason for which the container
    /// needs the runtime.
    fn new(inspected: &Inspected, recorded: Recorded) -> Result<Self, String> {
        let attributes = attributes_for_container(&inspected.id, &inspected.spec, &recorded)
            .map_err(|error| error.to_string())?;
        let snapshot = recorded.snapshot.unwrap_or_default();
        let cgroup = snapshot.text("cgroup").and_then(unified).unwrap_or_default();
        let cgroup = inspected.init.open_cgroup(cgroup).map_err(|error| error.to_string())?;
        let program_id = program_id(&recorded.program);
        let length = launch(Argv::new(), &attributes, Some(&snapshot)).encoded_len();
        if length > MAX_PACKET_BYTES {
            return Err(format!("the attributes of its processes have more than {MAX_PACKET_BYTES} bytes"));
        }
        Ok(Self { snapshot, attributes, cgroup, program: recorded.program, program_id })
    }

    /// Returns the launch of a command, whose process is compared with the record if `compares`.
    pub(super) fn launch(&self, argv: Argv, compares: bool) -> Launch {
        launch(argv, &self.attributes, compares.then_some(&self.snapshot))
    }

    /// Returns whether the OCI runtime is the same as when the process was recorded.
    pub(super) fn has_same_runtime(&self) -> bool {
        self.program_id == program_id(&self.program)
    }
}

fn launch(argv: Argv, attributes: &Attributes, expected: Option<&Snapshot>) -> Launch {
    let attributes = Some(attributes.clone());
    let mut launch = Launch { exec: 0, argv, attributes, expected: None };
    if let Some(expected) = expected {
        launch.expect(expected);
    }
    launch
}

/// Returns the identity of the program of an OCI runtime.
fn program_id(program: &str) -> Option<FileId> {
    FileId::from_path(Path::new(program)).ok()
}
