//! A runtime that answers at once.

use std::collections::HashMap;
use std::path::Path;
use std::thread;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use probeshim::cri::v1;
use prost::Message;
use tokio::net::{UnixListener, UnixStream};

/// The calls that it answers: the smallest, one with a large answer, and one whose messages are captured and decoded.
pub(crate) const METHODS: [&str; 3] = [
    "/runtime.v1.RuntimeService/Version",
    "/runtime.v1.RuntimeService/ListContainers",
    "/runtime.v1.RuntimeService/ExecSync",
];

/// Serves on a thread of its own until the program ends.
pub(crate) fn serve(socket: &Path) {
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = UnixListener::from_std(listener).unwrap();
            let answers = [version(), containers(), executed()];
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(connection(stream, answers.clone()));
            }
        });
    });
}

async fn connection(stream: UnixStream, answers: [Bytes; 3]) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let method = METHODS.iter().position(|method| *method == request.uri().path()).unwrap();
        let answer = answers[method].clone();
        tokio::spawn(answer_call(request, respond, answer));
    }
}

async fn answer_call(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, answer: Bytes) {
    let mut body = request.into_body();
    while let Some(Ok(chunk)) = body.data().await {
        let _ = body.flow_control().release_capacity(chunk.len());
    }
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let Ok(mut stream) = respond.send_response(head, false) else { return };
    let _ = stream.send_data(answer, false);
    let _ = stream.send_trailers(HeaderMap::from_iter([(
        "grpc-status".parse().unwrap(),
        HeaderValue::from_static("0"),
    )]));
}

fn version() -> Bytes {
    framed(&v1::VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "containerd".into(),
        runtime_version: "v2.2.1".into(),
        runtime_api_version: "v1".into(),
    })
}

/// What a probe that fails has to say.
fn executed() -> Bytes {
    framed(&v1::ExecSyncResponse {
        stdout: Vec::new(),
        stderr: b"cat: can't open '/tmp/healthy': No such file or directory\n".into(),
        exit_code: 1,
    })
}

/// The request of a call.
pub(crate) fn request(method: &str) -> Bytes {
    if method == METHODS[2] {
        let cmd = ["sh", "-c", "test -f /tmp/healthy && curl -fsS http://localhost:8080/healthz"];
        let (cmd, container_id) = (cmd.map(str::to_owned).into(), format!("{:064x}", 0xc0_ffee));
        framed(&v1::ExecSyncRequest { container_id, cmd, timeout: 1 })
    } else {
        framed(&v1::VersionRequest::default())
    }
}

/// A hundred containers with the labels and annotations that a kubelet gives them.
fn containers() -> Bytes {
    let pairs = |names: &[&str], n: usize| -> HashMap<String, String> {
        names.iter().map(|name| (format!("io.kubernetes.{name}"), format!("value-of-{name}-{n}"))).collect()
    };
    let container = |n: usize| v1::Container {
        id: format!("{n:064x}"),
        pod_sandbox_id: format!("{:064x}", n + 1000),
        metadata: Some(v1::ContainerMetadata { name: format!("container-{n}"), attempt: 1 }),
        image: Some(v1::ImageSpec { image: format!("{n:064x}"), ..Default::default() }),
        image_ref: format!("registry.test/image@sha256:{n:064x}"),
        state: v1::ContainerState::ContainerRunning.into(),
        created_at: 1_700_000_000_000_000_000,
        labels: pairs(&["container.name", "pod.name", "pod.namespace", "pod.uid"], n),
        annotations: pairs(
            &[
                "container.hash",
                "container.restartCount",
                "container.terminationMessagePath",
                "container.terminationMessagePolicy",
                "pod.terminationGracePeriod",
            ],
            n,
        ),
        image_id: format!("sha256:{n:064x}"),
    };
    framed(&v1::ListContainersResponse { containers: (0..100).map(container).collect() })
}

fn framed(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut frame).unwrap();
    frame.freeze()
}
