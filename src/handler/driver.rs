//! Tasks that drive the connections of an attempt. Their time counts as time of the attempt.

use hyper::rt::Executor;
use tokio_util::task::AbortOnDropHandle;

use crate::handler::meter::metered;

/// Spawns the tasks of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeteredExecutor;

impl<F> Executor<F> for MeteredExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(metered(task));
    }
}

/// Drives a connection until it ends or the handle is dropped.
pub(super) fn drive(connection: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(metered(connection)))
}
