//! Names of any length and any characters.

use std::fs;
use std::fs::File;

use fixtures::wait::soon;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::{PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest};
use probeshim::socket::SocketPath;
use rustix::process::Signal;

use crate::admin::until_shown;
use crate::procrun::{Runtime, shell};
use crate::program::{Place, Running};

/// Maximum number of columns in a line of a table: the limit of the last column and the limits of
/// the others.
const MAX_LINE: usize = (16 << 10) + 8 * 400;

/// Runs a pod with a container through probeshim, and executes a command in the container.
async fn make(shim: &Running, runtime: &Runtime, name: &str) {
    let mut client = runtime_client(&SocketPath::new(&shim.socket).unwrap());
    let uid = format!("uid-{}", name.len());
    let metadata = PodSandboxMetadata { name: name.into(), namespace: "it".into(), uid, attempt: 0 };
    let config = PodSandboxConfig {
        metadata: Some(metadata),
        log_directory: runtime.path("logs").to_str().unwrap().into(),
        ..Default::default()
    };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    let pod = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let creation = runtime.creation((&format!("short-{}", name.len()), &pod), shell("main", "sleep 1000"));
    let id = client.create_container(creation).await.unwrap().into_inner().container_id;
    let starting = probeshim::cri::v1::StartContainerRequest { container_id: id.clone() };
    client.start_container(starting).await.unwrap();
    let exec = probeshim::cri::v1::ExecSyncRequest {
        container_id: id,
        cmd: ["sh", "-c", "exit 3"].map(str::to_owned).into(),
        timeout: 50,
    };
    client.exec_sync(exec).await.unwrap();
}

#[tokio::test]
async fn long_names_are_cut_in_tables_and_complete_in_json() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let shim = place.start_watching(&[]).await;
    let names = ["p".repeat(65_536), "日\u{202e}\u{200b}".repeat(60_000), "q".repeat(1_000_000)];
    for name in &names {
        make(&shim, &runtime, name).await;
    }
    let status = until_shown(&place, &["status"], |status| {
        let pods = status["pods"].as_array()?;
        let all = pods.len() == 3 && pods.iter().all(|pod| pod["containers"].as_array().unwrap().len() == 1);
        all.then(|| status.clone())
    });
    let status = status.await;
    let mut shown: Vec<&str> =
        status["pods"].as_array().unwrap().iter().map(|pod| pod["name"].as_str().unwrap()).collect();
    shown.sort_unstable();
    let mut whole: Vec<&str> = names.iter().map(String::as_str).collect();
    whole.sort_unstable();
    assert!(shown == whole, "JSON must have the whole names");
    let calls = until_shown(&place, &["calls", "--method", "ExecSync"], |calls| {
        let calls = calls.as_array()?;
        (calls.len() == 3).then(|| calls.clone())
    });
    let call = calls.await[2]["id"].to_string();
    until_shown(&place, &["events"], |events| {
        let all = names
            .iter()
            .all(|name| events.as_array().unwrap().iter().any(|event| event["pod"].as_str() == Some(name)));
        all.then_some(())
    })
    .await;

    // The followers start first. Their output is read once probeshim has ended.
    let mut followers: Vec<_> = [["events", "-f"], ["calls", "-f"]]
        .iter()
        .map(|arguments| {
            let output = place.at(arguments[0]);
            let mut command = place.asking(arguments);
            command.stdout(File::create(&output).unwrap()).stderr(File::create(place.at("err")).unwrap());
            (command.spawn().unwrap(), output)
        })
        .collect();
    for (_, output) in &followers {
        let begun = async {
            while fs::read_to_string(output).unwrap().lines().count() < 4 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        soon(begun).await;
    }

    let unknown = format!("nobody-{}", "u".repeat(100_000));
    for (arguments, code) in [
        (&["status"][..], 0),
        (&["pods", "-o", "wide"], 0),
        (&["probes"], 0),
        (&["events"], 0),
        (&["calls"], 0),
        (&["explain", &call], 0),
        (&["mode"], 0),
        (&["describe", "none"], 2),
        (&["describe", &unknown], 2),
        (&["describe", &names[0]], 0),
        (&["calls", "--pod", &unknown[..10_000]], 2),
        (&["calls", "--method", &unknown[..10_000]], 2),
    ] {
        let answer = place.ask(arguments).await;
        let asked = &arguments[0];
        assert_eq!(
            answer.code,
            Some(code),
            "{asked}: {}",
            answer.stderr.chars().take(500).collect::<String>()
        );
        for line in answer.stdout.lines().chain(answer.stderr.lines()) {
            let length = line.chars().count();
            assert!(length <= MAX_LINE, "{asked} has a line of {length} characters");
        }
    }
    let table = place.ask(&["pods"]).await.stdout;
    let row = table.lines().find(|line| line.starts_with("ppp")).unwrap();
    assert!(row.contains("ppp…  ") && row.contains("Running"), "the columns after the name must be shown");
    let sentences = place.ask(&["explain", &call]).await.stdout;
    assert!(sentences.contains("exited with code 3"), "the text after the name must be shown");
    let refused = place.ask(&["describe", "none"]).await.stderr;
    assert!(refused.contains("POD \"none\" not found; the pods are it/") && refused.len() < 10_000);

    let mut shim = shim;
    shim.signal(Signal::TERM);
    shim.ended().await;
    for (follower, output) in &mut followers {
        let code = soon(async {
            loop {
                if let Some(status) = follower.try_wait().unwrap() {
                    return status.code();
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        assert_eq!(code.await, Some(1), "a follower must fail when probeshim ends");
        let longest = fs::read_to_string(output).unwrap().lines().map(|line| line.chars().count()).max();
        assert!(longest.unwrap() <= MAX_LINE, "{longest:?}");
    }
    runtime.end().await;
}
