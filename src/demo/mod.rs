//! The demo: two pods made and probed through the relay, and an account of what happens to them.

mod account;
mod pods;
mod prober;
mod tally;

use std::path::Path;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::cri::runtime_service;
use crate::socket::SocketPath;

pub use account::{Account, DemoEnd, Where};
pub use tally::Tally;

use pods::{PODS, Pod};

/// Makes the pods, probes them until `stop` is cancelled, and removes them.
pub async fn run(
    socket: &SocketPath,
    folder: &Path,
    account: &Account,
    stop: CancellationToken,
) -> Result<Vec<Tally>, Status> {
    let mut client = runtime_service(socket);
    let mut running = Vec::new();
    for spec in &PODS {
        running.push(Pod::run(&mut client, spec, folder).await?);
        account.tell(spec.name, "runs: its sandbox and its container were made through the relay");
    }
    let mut probing = JoinSet::new();
    for pod in &running {
        let prober = prober::Prober::of(pod, client.clone(), account.clone());
        probing.spawn(prober.run(stop.clone()));
    }
    let mut tallies = Vec::new();
    while let Some(tally) = probing.join_next().await {
        tallies.push(tally.map_err(|fault| Status::internal(fault.to_string()))??);
    }
    tallies.sort_by_key(|tally| PODS.iter().position(|spec| spec.name == tally.pod));
    for pod in running {
        pod.remove(&mut client).await?;
    }
    Ok(tallies)
}
