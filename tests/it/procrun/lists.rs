//! The lists of sandboxes and containers with their filters, compared with the streaming calls.

use std::collections::HashMap;

use probeshim::cri::v1::*;

use super::{Runtime, shell};

/// Creates two pods with two containers each, one running and one created.
async fn four_containers(runtime: &mut Runtime) -> Vec<(String, Vec<String>)> {
    let mut pods = Vec::new();
    for name in ["red", "blue"] {
        let pod = runtime.run_pod(name).await;
        let mut ids = Vec::new();
        for (container, starts) in [("running", true), ("waiting", false)] {
            let id = runtime.create((name, &pod), shell(container, "sleep 1000")).await.unwrap();
            if starts {
                runtime.start_container(&id).await.unwrap();
            }
            ids.push(id);
        }
        pods.push((pod, ids));
    }
    pods
}

fn labels(app: &str) -> HashMap<String, String> {
    [("app".to_owned(), app.to_owned())].into()
}

async fn listed(runtime: &mut Runtime, filter: ContainerFilter) -> Vec<String> {
    let filter = Some(filter);
    let request = ListContainersRequest { filter: filter.clone() };
    let listed = runtime.client.list_containers(request).await.unwrap().into_inner().containers;
    let mut stream =
        runtime.client.stream_containers(StreamContainersRequest { filter }).await.unwrap().into_inner();
    let mut streamed = Vec::new();
    while let Some(batch) = stream.message().await.unwrap() {
        streamed.extend(batch.containers);
    }
    assert_eq!(listed, streamed);
    sorted(listed.into_iter().map(|container| container.id))
}

fn sorted(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut ids: Vec<String> = ids.into_iter().collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn containers_are_listed_by_id_sandbox_state_and_labels() {
    let mut runtime = Runtime::start();
    let pods = four_containers(&mut runtime).await;
    let (red, of_red) = &pods[0];
    let of = |picked: &[&String]| sorted(picked.iter().map(|id| (*id).clone()));
    let all: Vec<&String> = pods.iter().flat_map(|(_, ids)| ids).collect();
    let running = || Some(ContainerStateValue { state: ContainerState::ContainerRunning.into() });
    for (filter, expected) in [
        (ContainerFilter::default(), of(&all)),
        (ContainerFilter { id: of_red[0].clone(), ..Default::default() }, of(&[&of_red[0]])),
        (ContainerFilter { id: of_red[0][..20].to_owned(), ..Default::default() }, of(&[&of_red[0]])),
        (ContainerFilter { id: "nobody".into(), ..Default::default() }, Vec::new()),
        (
            ContainerFilter { pod_sandbox_id: red.clone(), ..Default::default() },
            of(&[&of_red[0], &of_red[1]]),
        ),
        (
            ContainerFilter { pod_sandbox_id: red[..20].to_owned(), state: running(), ..Default::default() },
            of(&[&of_red[0]]),
        ),
        (ContainerFilter { state: running(), ..Default::default() }, of(&[&pods[0].1[0], &pods[1].1[0]])),
        (
            ContainerFilter { label_selector: labels("waiting"), ..Default::default() },
            of(&[&pods[0].1[1], &pods[1].1[1]]),
        ),
        (
            ContainerFilter { label_selector: labels("waiting"), state: running(), ..Default::default() },
            Vec::new(),
        ),
    ] {
        assert_eq!(listed(&mut runtime, filter.clone()).await, expected, "{filter:?}");
    }
    runtime.end().await;
}

#[tokio::test]
async fn sandboxes_are_listed_by_id_state_and_labels() {
    let mut runtime = Runtime::start();
    let pods = four_containers(&mut runtime).await;
    let [(red, _), (blue, _)] = &pods[..] else { unreachable!("four_containers returns two pods") };
    runtime.client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: red.clone() }).await.unwrap();
    let state = |state: PodSandboxState| Some(PodSandboxStateValue { state: state.into() });
    for (filter, expected) in [
        (PodSandboxFilter::default(), vec![red, blue]),
        (PodSandboxFilter { id: red[..20].to_owned(), ..Default::default() }, vec![red]),
        (PodSandboxFilter { state: state(PodSandboxState::SandboxReady), ..Default::default() }, vec![blue]),
        (
            PodSandboxFilter { state: state(PodSandboxState::SandboxNotready), ..Default::default() },
            vec![red],
        ),
        (PodSandboxFilter { label_selector: labels("blue"), ..Default::default() }, vec![blue]),
        (PodSandboxFilter { label_selector: labels("green"), ..Default::default() }, vec![]),
    ] {
        let filter = Some(filter);
        let request = ListPodSandboxRequest { filter: filter.clone() };
        let listed = runtime.client.list_pod_sandbox(request).await.unwrap().into_inner().items;
        let request = StreamPodSandboxesRequest { filter: filter.clone() };
        let mut stream = runtime.client.stream_pod_sandboxes(request).await.unwrap().into_inner();
        let mut streamed = Vec::new();
        while let Some(batch) = stream.message().await.unwrap() {
            streamed.extend(batch.pod_sandboxes);
        }
        assert_eq!(listed, streamed);
        let ids = sorted(listed.into_iter().map(|sandbox| sandbox.id));
        assert_eq!(ids, sorted(expected.into_iter().cloned()), "{filter:?}");
    }
    runtime.end().await;
}
