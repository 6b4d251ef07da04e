//! The call GetContainerEvents.

use fixtures::wait::soon;
use probeshim::cri::v1::*;
use tonic::Streaming;

use super::{Client, Runtime, shell};

async fn subscribe(client: &Client) -> Streaming<ContainerEventResponse> {
    client.clone().get_container_events(GetEventsRequest {}).await.unwrap().into_inner()
}

async fn next(events: &mut Streaming<ContainerEventResponse>) -> ContainerEventResponse {
    soon(events.message()).await.unwrap().unwrap()
}

#[tokio::test]
async fn every_subscriber_receives_the_events_of_a_pods_whole_life() {
    use ContainerEventType::{ContainerCreatedEvent as Created, ContainerDeletedEvent as Deleted};
    use ContainerEventType::{ContainerStartedEvent as Started, ContainerStoppedEvent as Stopped};

    let mut runtime = Runtime::start();
    let mut subscribers = [subscribe(&runtime.client).await, subscribe(&runtime.client).await];
    let pod = runtime.run_pod("pod").await;
    let id = runtime.create(("pod", &pod), shell("main", "exit 3")).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    runtime.ended(&id).await;
    runtime.client.remove_container(RemoveContainerRequest { container_id: id.clone() }).await.unwrap();
    let request = RemovePodSandboxRequest { pod_sandbox_id: pod.clone() };
    runtime.client.remove_pod_sandbox(request).await.unwrap();
    for events in &mut subscribers {
        let mut last = 0;
        for (whose, kind) in [
            (&pod, Created),
            (&pod, Started),
            (&id, Created),
            (&id, Started),
            (&id, Stopped),
            (&id, Deleted),
            (&pod, Stopped),
            (&pod, Deleted),
        ] {
            let event = next(events).await;
            assert_eq!((&event.container_id, event.container_event_type()), (whose, kind));
            assert!(event.created_at >= last);
            last = event.created_at;
            let states: Vec<_> =
                event.containers_statuses.iter().map(|status| (status.state(), status.exit_code)).collect();
            match kind {
                Stopped if *whose == id => assert_eq!(states, [(ContainerState::ContainerExited, 3)]),
                Deleted => assert!(states.is_empty()),
                _ => {}
            }
            // A removed sandbox has no status.
            assert_eq!(event.pod_sandbox_status.is_some(), (whose, kind) != (&pod, Deleted));
        }
    }
    runtime.end().await;
}
