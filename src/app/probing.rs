//! The prober on a thread of its own, joined to what it needs and to what it tells.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cri::Own;
use crate::probe::Specs;
use crate::prober::handler::Executor;
use crate::prober::{Metrics, Notice, Parts, Prober, Witness};
use crate::record::{Event, Events};
use crate::socket::SocketPath;
use crate::tap::OwnExecs;
use crate::world::Enquiry;

/// Questions about pods and containers that may wait to be asked; more are asked again later.
pub(super) const ENQUIRIES: usize = 32_768;

/// A prober that works until this is dropped.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) prober: Prober,
    _end: DropGuard,
}

/// Keeps what the prober tells among the events.
#[derive(Debug)]
struct Told(Arc<Events>);

impl Probing {
    pub(super) fn start(
        own: &Own,
        upstream: &SocketPath,
        (told, redacts): (OwnExecs, bool),
        specs: Specs,
        metrics: Metrics,
        events: Arc<Events>,
        enquiries: mpsc::Sender<Enquiry>,
    ) -> io::Result<Self> {
        let (runtime, end) = thread_of_probes()?;
        // Its connection is driven where it is used.
        let client = {
            let _entered = runtime.enter();
            own.fresh_client(upstream)
        };
        let (executor, witness) = (Executor::new(client, Some(told), redacts), Arc::new(Told(events)));
        let prober = Prober::start(Parts { specs, executor, metrics, witness, enquiries, runtime });
        Ok(Self { prober, _end: end })
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.prober.stop();
    }
}

impl Witness for Told {
    fn notice(&self, notice: Notice) {
        self.0.push(Event::of_probe(notice));
    }
}

/// A thread on which probes are made: nothing else that this process does delays them.
fn thread_of_probes() -> io::Result<(Handle, DropGuard)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, over) = (runtime.handle().clone(), CancellationToken::new());
    let end = over.clone().drop_guard();
    thread::Builder::new().name("prober".to_owned()).spawn(move || runtime.block_on(over.cancelled()))?;
    Ok((handle, end))
}
