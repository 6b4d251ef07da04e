//! Other CRI clients than crictl, and crictl on a draining upstream.

use std::process::Command;

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Crictl;
use fixtures::http2::wire::{GOAWAY, HEADERS, SETTINGS, Wire, frame, word};
use fixtures::http2::{framed, shim};
use fixtures::machine::tool;
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::shim::Probeshim;
use probeshim::cri::v1::VersionResponse;
use prost::Message as _;

/// Script that calls Version on the target in its argument and prints whether containerd answered.
const PYTHON: &str = r#"
import sys, grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    version = channel.unary_unary("/runtime.v1.RuntimeService/Version", lambda b: b, lambda b: b)
    print(b"containerd" in version(b"", timeout=20))
"#;

#[test]
fn python_grpcio_calls_version_through_the_relay() {
    let python = need!(tool("grpcio")).join("bin/python");
    let containerd = need!(Containerd::start(Version::V2_2));
    let shim = Probeshim::start(containerd.folder(), &containerd.socket());
    for target in [format!("unix:{}", shim.socket().display()), format!("unix://{}", shim.socket().display())]
    {
        let output = Command::new(&python).args(["-c", PYTHON, &target]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "True\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    shim.stop();
}

#[tokio::test]
async fn crictl_retries_a_call_that_a_draining_upstream_refused() {
    let shim = shim();
    let runtime = shim.runtime();
    let folder = tempfile::tempdir().unwrap();
    let crictl = need!(Crictl::new("crictl-1.36", &shim.path(), folder.path()));
    let version = tokio::task::spawn_blocking(move || crictl.run(&["version"]));

    // The first connection sends GOAWAY when the first call arrives, without processing that call.
    let mut leaving = Wire(runtime.accept_raw().await);
    leaving.expect_hello().await;
    leaving.send(&frame(SETTINGS, 0, 0, &[])).await;
    leaving.next_of(HEADERS).await;
    leaving.send(&frame(GOAWAY, 0, 0, &[word(0), word(0)].concat())).await;

    // crictl repeats the call on a second connection.
    let mut serving = runtime.accept().await;
    let answer = VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "second".into(),
        runtime_version: "1".into(),
        runtime_api_version: "v1".into(),
    }
    .encode_to_vec();
    let answering = tokio::spawn(async move {
        loop {
            serving.call().await.answer(framed(false, &answer));
        }
    });
    let version = version.await.unwrap();
    assert_eq!(version.code, Some(0), "{version:?}");
    assert!(version.stdout.contains("RuntimeName:  second"), "{version:?}");
    answering.abort();
}
