//! Stop and removal of containers.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::timeout;

use super::Engine;
use crate::cri::v1::ContainerEventType as Event;
use crate::gofmt::system_error;
use crate::procrun::clock;
use crate::procrun::container::{ContainerBackend, ContainerExit, ProcrunContainer};
use crate::procrun::error::CriError;
use crate::procrun::monitor::SignalTarget;
use crate::procrun::{root_dir, signal};

impl Engine {
    /// Stops a container: sends the stop signal to the process group of the first process, and
    /// SIGKILL to all processes after `grace` seconds. If `grace` is not positive, SIGKILL is sent
    /// immediately. Does nothing if the container does not run.
    pub(in crate::procrun) async fn stop(
        &self,
        container: &ProcrunContainer,
        grace: i64,
    ) -> Result<(), CriError> {
        if !container.stage().is_running() {
            return Ok(());
        }
        let Some(ContainerBackend::Processes { monitor, first, .. }) = container.backend.get() else {
            self.end_synthetic(container, grace);
            return Ok(());
        };
        if let Some(grace) = u64::try_from(grace).ok().filter(|grace| *grace > 0) {
            // A second stop waits but does not send the signal again, as in containerd.
            if container.takes_stop_signal() {
                let number = signal::number(container.config.stop_signal)?;
                monitor.signal(first.number, number, SignalTarget::Group);
            }
            if timeout(Duration::from_secs(grace), container.ended()).await.is_ok() {
                return Ok(());
            }
        }
        monitor.kill_all();
        container.ended().await;
        Ok(())
    }

    /// Ends a synthetic container, which needs no signal.
    fn end_synthetic(&self, container: &ProcrunContainer, grace: i64) {
        let ended_by = if grace > 0 { Signal::TERM } else { Signal::KILL };
        container.mark_exited(clock::now(), ContainerExit::Code(signal::exit_code(ended_by.as_raw())));
        self.publish(&container.id, &container.sandbox, Event::ContainerStoppedEvent);
    }

    /// Removes a container, which is killed first if it runs.
    pub(in crate::procrun) async fn remove(&self, container: &ProcrunContainer) -> Result<(), CriError> {
        let id = &container.id;
        let stopped = self.stop(container, 0).await;
        stopped.map_err(|error| error.context(format!("failed to forcibly stop container {id:?}")))?;
        container
            .begin_removal()
            .map_err(|error| error.context(format!("failed to set removing state for container {id:?}")))?;
        if let Some(ContainerBackend::Processes { monitor, .. }) = container.backend.get() {
            monitor.wait_exit().await;
        }
        if let Err(error) = root_dir::remove(container.dir.clone()).await {
            container.has_not_been_removed();
            let (dir, error_text) = (container.dir.display(), system_error(&error));
            return Err(CriError::unknown(format!(
                "failed to remove container root directory \"{dir}\": {error_text}"
            )));
        }
        if self.containers.remove(container) {
            self.publish(id, &container.sandbox, Event::ContainerDeletedEvent);
        }
        Ok(())
    }
}
