//! Stages of a container and the transitions between them.

use rustix::process::Signal;

use crate::cri::v1::ContainerState;
use crate::procrun::error::CriError;
use crate::procrun::signal::exit_code;

/// Exit code of a container that could not be started, as in containerd.
const START_ERROR: i32 = 128;

/// Stage of a container, and the operations that have begun on it.
#[derive(Debug, Default)]
pub(in crate::procrun) struct ContainerFsm {
    pub(in crate::procrun) stage: ContainerStage,
    is_removing: bool,
    is_stop_signal_sent: bool,
}

/// Stage of a container. Times are nanoseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::procrun) enum ContainerStage {
    #[default]
    Created,
    /// The start has begun: the container can neither be started again nor removed.
    Starting,
    Running {
        started_at: i64,
    },
    Exited {
        /// 0 if the container never ran.
        started_at: i64,
        finished_at: i64,
        outcome: ContainerExit,
    },
}

/// Cause of a container's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::procrun) enum ContainerExit {
    /// The first process exited with this code, which is 128 and the signal's number if a signal
    /// ended it.
    Code(i32),
    /// The container could not be started, for this reason.
    StartError(String),
    /// The monitor of the container's processes was killed.
    MonitorKilled,
}

impl ContainerFsm {
    /// Marks the container as starting. Fails unless its stage is `Created`, or if it is being
    /// removed.
    pub(super) fn start_started(&mut self) -> Result<(), CriError> {
        if self.is_removing {
            return Err(CriError::unknown("container is in removing state, can't be started"));
        }
        match self.stage {
            ContainerStage::Created => {
                self.stage = ContainerStage::Starting;
                Ok(())
            }
            ContainerStage::Starting => Err(CriError::unknown("container is already in starting state")),
            ContainerStage::Running { .. } | ContainerStage::Exited { .. } => {
                Err(CriError::unknown(format!("container is in {} state", self.stage.name())))
            }
        }
    }

    /// Sets the stage `Running`.
    pub(super) fn run(&mut self, started_at: i64) {
        self.stage = ContainerStage::Running { started_at };
    }

    /// Sets the stage `Exited`. Has no effect on a container that has already exited.
    pub(super) fn end(&mut self, finished_at: i64, outcome: ContainerExit) {
        let started_at = match self.stage {
            ContainerStage::Running { started_at } => started_at,
            ContainerStage::Created | ContainerStage::Starting => 0,
            ContainerStage::Exited { .. } => return,
        };
        self.stage = ContainerStage::Exited { started_at, finished_at, outcome };
    }

    /// Marks the container as being removed. Fails while the container starts or runs, or if it is
    /// already being removed.
    pub(super) fn begin_removal(&mut self) -> Result<(), CriError> {
        if self.is_removing {
            return Err(CriError::unknown("container is already in removing state"));
        }
        match self.stage {
            ContainerStage::Running { .. } => {
                Err(CriError::unknown("container is still running, to stop first"))
            }
            ContainerStage::Starting => {
                Err(CriError::unknown("container is in starting state, can't be removed"))
            }
            ContainerStage::Created | ContainerStage::Exited { .. } => {
                self.is_removing = true;
                Ok(())
            }
        }
    }

    /// Removes the mark of [`Self::begin_removal`] after the removal has failed.
    pub(super) fn abort_removal(&mut self) {
        self.is_removing = false;
    }

    pub(super) fn is_removing(&self) -> bool {
        self.is_removing
    }

    /// Whether the stop signal is still to be sent. Returns true once, as containerd sends the
    /// signal once.
    pub(super) fn takes_stop_signal(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stop_signal_sent, true)
    }
}

impl ContainerStage {
    /// Returns the state that the CRI has for the stage.
    pub(in crate::procrun) fn to_cri(&self) -> ContainerState {
        match self {
            Self::Created | Self::Starting => ContainerState::ContainerCreated,
            Self::Running { .. } => ContainerState::ContainerRunning,
            Self::Exited { .. } => ContainerState::ContainerExited,
        }
    }

    /// Returns the stage's name in the CRI, such as `CONTAINER_RUNNING`.
    pub(in crate::procrun) fn name(&self) -> &'static str {
        self.to_cri().as_str_name()
    }

    pub(in crate::procrun) fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

impl ContainerExit {
    pub(in crate::procrun) fn exit_code(&self) -> i32 {
        match self {
            Self::Code(code) => *code,
            Self::StartError(_) => START_ERROR,
            Self::MonitorKilled => exit_code(Signal::KILL.as_raw()),
        }
    }

    /// Returns containerd's reason for the exit.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Code(0) => "Completed",
            Self::Code(_) | Self::MonitorKilled => "Error",
            Self::StartError(_) => "StartError",
        }
    }

    pub(super) fn message(&self) -> &str {
        match self {
            Self::Code(_) => "",
            Self::StartError(why) => why,
            Self::MonitorKilled => {
                "the container's monitor was killed, and with it the processes of the monitor's session"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_started_once_and_not_removed_while_it_starts_or_runs() {
        let mut life = ContainerFsm::default();
        life.start_started().unwrap();
        assert!(life.start_started().unwrap_err().message().contains("already in starting state"));
        assert!(life.begin_removal().unwrap_err().message().contains("starting state"));
        life.run(1);
        assert!(life.start_started().unwrap_err().message().contains("CONTAINER_RUNNING"));
        assert!(life.begin_removal().unwrap_err().message().contains("still running"));
        life.end(2, ContainerExit::Code(0));
        assert_eq!(
            life.stage,
            ContainerStage::Exited { started_at: 1, finished_at: 2, outcome: ContainerExit::Code(0) }
        );
        life.begin_removal().unwrap();
        assert!(life.begin_removal().unwrap_err().message().contains("already in removing state"));
        life.abort_removal();
        life.begin_removal().unwrap();
    }

    #[test]
    fn the_stop_signal_is_sent_once() {
        let mut life = ContainerFsm::default();
        assert_eq!([life.takes_stop_signal(), life.takes_stop_signal()], [true, false]);
    }
}
