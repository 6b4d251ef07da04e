//! Refused requests, which change nothing. The tests in tests/e2e compare the messages with those
//! of containerd.

use std::fs;

use probeshim::cri::image_client;
use probeshim::cri::v1::*;
use tonic::Code;

use super::{Runtime, refused, shell};

#[tokio::test]
async fn an_invalid_container_config_is_refused_and_changes_nothing() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let good = || shell("main", "true");
    let command_less = ContainerConfig { command: Vec::new(), args: Vec::new(), ..good() };
    let image_volume =
        Mount { container_path: "/data".into(), image: Some(ImageSpec::default()), ..Mount::default() };
    for (config, code, told) in [
        (
            ContainerConfig { log_path: "../../escaped.log".into(), ..good() },
            Code::InvalidArgument,
            "escapes the sandbox log directory",
        ),
        (command_less, Code::Unknown, "no command specified"),
        (
            ContainerConfig { mounts: vec![image_volume], ..good() },
            Code::Unknown,
            "procrun has no files of images to mount at \"/data\"",
        ),
        (
            ContainerConfig { stop_signal: Signal::Sigrtmin.into(), ..good() },
            Code::InvalidArgument,
            "SIGRTMIN is a real-time signal",
        ),
        (ContainerConfig { stop_signal: 99, ..good() }, Code::Unknown, "invalid signal"),
        (ContainerConfig { image: None, ..good() }, Code::Unknown, "failed to resolve image"),
        (ContainerConfig { metadata: None, ..good() }, Code::Unknown, "must include metadata"),
    ] {
        let (given, words) = refused(runtime.create(("pod", &pod), config).await);
        assert!(given == code && words.contains(told), "{given:?} {words}");
    }
    assert_eq!(runtime.containers().await, []);
    let images = image_client(&runtime.socket).list_images(ListImagesRequest::default()).await.unwrap();
    assert!(images.into_inner().images.is_empty());
    assert_eq!(fs::read_dir(runtime.path("root/procrun-containers")).unwrap().count(), 0);
    // The refused requests did not reserve the name.
    runtime.create(("pod", &pod), good()).await.unwrap();
    let (code, words) = refused(runtime.create(("pod", &pod), good()).await);
    assert!(code == Code::Unknown && words.contains("is reserved for"), "{words}");
    runtime.end().await;
}

#[tokio::test]
async fn a_container_that_cannot_start_is_exited_and_can_be_removed() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let config = ContainerConfig { command: vec!["no-such-program".into()], ..shell("main", "") };
    let id = runtime.create(("pod", &pod), config).await.unwrap();
    let (code, words) = refused(runtime.start_container(&id).await);
    assert_eq!(code, Code::Unknown);
    assert!(words.contains("exec: \"no-such-program\": executable file not found in $PATH"), "{words}");
    let status = runtime.status(&id).await;
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 128));
    assert_eq!((status.reason.as_str(), status.message), ("StartError", words));
    runtime.client.remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    runtime.end().await;
}

#[tokio::test]
async fn an_ambiguous_or_unknown_id_prefix_is_refused() {
    let mut runtime = Runtime::start_with(|settings| settings.synthetic = 20);
    // Twenty ids begin with sixteen possible digits, so two of them share the first digit.
    let request = |id: &str| ContainerStatusRequest { container_id: id.into(), verbose: false };
    let mut seen = Vec::new();
    for digit in "0123456789abcdef".chars() {
        seen.push(
            runtime
                .client
                .container_status(request(&digit.to_string()))
                .await
                .map_err(|status| status.message().to_owned()),
        );
    }
    let told = |words: &str| {
        seen.iter().filter(|answer| answer.as_ref().is_err_and(|told| told.contains(words))).count()
    };
    assert!(told("multiple IDs found with provided prefix") > 0, "{seen:?}");
    let (code, words) = refused(runtime.client.container_status(request("xyz")).await);
    assert_eq!(
        (code, words.as_str()),
        (Code::NotFound, "an error occurred when try to find container \"xyz\": not found")
    );
    runtime.end().await;
}

#[tokio::test]
async fn unimplemented_calls_name_the_alternative() {
    let mut runtime = Runtime::start();
    for (answer, why) in [
        (runtime.client.exec(ExecRequest::default()).await.map(drop), "use ExecSync"),
        (runtime.client.attach(AttachRequest::default()).await.map(drop), "read the container's log"),
        (runtime.client.port_forward(PortForwardRequest::default()).await.map(drop), "connect to 127.0.0.1"),
        (
            runtime.client.checkpoint_container(CheckpointContainerRequest::default()).await.map(drop),
            "cannot be saved",
        ),
    ] {
        let (code, words) = refused(answer);
        assert!(code == Code::Unimplemented && words.contains(why), "{words}");
    }
    let status = runtime.client.status(StatusRequest::default()).await.unwrap().into_inner().status.unwrap();
    assert!(status.conditions.len() == 2 && status.conditions.iter().all(|condition| condition.status));
    runtime.end().await;
}
