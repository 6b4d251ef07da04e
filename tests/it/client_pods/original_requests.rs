//! Containers are recreated from the original bytes of the requests of their client.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::v1::*;
use probeshim::cri::{MethodName, unary_message};
use probeshim::relay::{
    self, CallIds, Capture, CaptureBudget, CaptureMode, CapturePlan, CompletedCall, Observer, Relay,
};
use probeshim::socket::{BindMode, BoundPath, SocketPath, bind};
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use super::{Owner, SHORT, end, kill_and_restart, start};
use crate::admin::until_shown;
use crate::procrun::Runtime;
use crate::program::Place;

/// An observer that captures the requests of `RunPodSandbox` and `CreateContainer`.
#[derive(Debug)]
struct Witness {
    budget: CaptureBudget,
    created: Mutex<Vec<Vec<u8>>>,
}

impl Observer for Witness {
    fn capture_plan(&self, method: &MethodName) -> CapturePlan {
        let request = match method.label() {
            "CreateContainer" | "RunPodSandbox" => CaptureMode::Prefix(Capture::new(1 << 20, &self.budget)),
            _ => CaptureMode::None,
        };
        CapturePlan { request, ..CapturePlan::default() }
    }

    fn on_end(&self, call: CompletedCall) {
        if let Some(capture) = call.request.capture {
            self.created.lock().unwrap().push(unary_message(capture.bytes().unwrap()).unwrap().to_vec());
        }
    }
}

impl Witness {
    /// Starts a relay in front of a runtime, and returns it with its observer.
    fn between(listen: &Path, upstream: &Path) -> (Arc<Self>, Option<BoundPath>) {
        let witness = Arc::new(Self { budget: CaptureBudget::new(8 << 20), created: Mutex::default() });
        let upstream = SocketPath::new(upstream).unwrap();
        let listening = bind(&SocketPath::new(listen).unwrap(), BindMode::InheritFrom(&upstream)).unwrap();
        let settings = relay::RelayConfig { upstream, drain_timeout: Duration::ZERO };
        let (numbers, drain) = (CallIds::starting_at(1), CancellationToken::new());
        Relay::start(
            listening.listener,
            settings,
            witness.clone(),
            Arc::new(relay::NoPolicy),
            relay::RelayMetrics::default(),
            numbers,
            drain,
        )
        .unwrap();
        (witness, listening.claim)
    }

    /// Waits until `count` requests have been captured.
    async fn made(&self, count: usize) -> Vec<Vec<u8>> {
        soon(async {
            loop {
                let made = self.created.lock().unwrap().clone();
                if made.len() >= count {
                    return made;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }
}

/// Returns field 1000 of a message, which no schema defines.
fn unknown(content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::bytes::encode(1000, &content.to_vec(), &mut field);
    field
}

/// probeshim is killed while a container is in back-off. Its successor has the original request,
/// the restart count and the back-off.
#[tokio::test]
async fn unknown_fields_and_restart_counts_survive_a_kill_of_probeshim() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("procrun.sock"));
    let (witness, _claim) = Witness::between(&place.at("runtime.sock"), &place.at("procrun.sock"));
    let running = start(&place).await;
    let mut owner = Owner::of(place);
    let pod = owner.run("a", &[]).await;
    let mut config = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(ImageSpec { image: "image".to_owned(), ..ImageSpec::default() }),
        command: ["sh", "-c", SHORT].map(str::to_owned).into(),
        ..ContainerConfig::default()
    }
    .encode_to_vec();
    config.extend(unknown(b"of the container"));
    let mut request = CreateContainerRequest {
        pod_sandbox_id: pod.id.clone(),
        config: None,
        sandbox_config: Some(pod.config.clone()),
    }
    .encode_to_vec();
    prost::encoding::bytes::encode(2, &config, &mut request);
    request.extend(unknown(b"of the request"));
    let id = owner.create_raw(request).await;
    owner.start(id).await;
    let seen = witness.made(3).await;
    // The restarted container has ended and is in back-off.
    until_shown(&owner.place, &["status"], |status| {
        (status["pods"][0]["containers"][0]["reason"] == "CrashLoopBackOff").then_some(())
    })
    .await;
    let (running, owner) = kill_and_restart(running, owner).await;
    until_shown(&owner.place, &["status"], |status| {
        let container = &status["pods"][0]["containers"][0];
        (container["reason"] == "CrashLoopBackOff").then(|| assert_eq!(container["restarts"], 1))
    })
    .await;
    let again = witness.made(seen.len() + 1).await.pop().unwrap();
    for content in [&b"of the container"[..], b"of the request"] {
        let field = unknown(content);
        assert_eq!(again.windows(field.len()).filter(|bytes| *bytes == field).count(), 1);
    }
    let read = CreateContainerRequest::decode(&*again).unwrap();
    assert_eq!(read.config.unwrap().metadata.unwrap().attempt, 2);
    end(running, owner, runtime).await;
}
