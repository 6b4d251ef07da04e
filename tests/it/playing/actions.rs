//! Logs of the containers of played pods, and commands that are executed in them.

use std::process::Command;

use rustix::process::Signal;

use super::{is_clean, pod, start};
use crate::procrun::{Runtime, until};
use crate::program::{Answer, Place};

#[tokio::test]
async fn logs_and_exec_find_containers_by_the_names_of_their_pods() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let script = "trap 'exit 0' TERM; echo one; echo two >&2; while true; do sleep 0.1; done";
    std::fs::write(place.at("pods.yaml"), pod("a", script, "", "")).unwrap();
    let mut running = start(&place, place.at("pods.yaml").to_str().unwrap()).await;
    let logs = async |arguments: &[&str]| place.ask(&[&["logs"], arguments].concat()).await;
    until(|| async { (logs(&["a", "-n", "test"]).await.stdout.lines().count() == 2).then_some(()) }).await;
    let last = logs(&["test/a", "--tail", "1", "--timestamps"]).await;
    assert!(last.stdout.starts_with("20") && last.stdout.lines().count() == 1, "{last:?}");
    for (arguments, code, expected) in [
        (&["b"][..], 2, "POD \"b\" not found"),
        (&["a", "-c", "mian"], 2, "container mian is not valid for pod test/a, did you mean \"main\"?"),
        (&["a", "-p"], 1, "previous terminated container \"main\" in pod \"test/a\" not found"),
    ] {
        let refused = logs(arguments).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(code), ""), "{refused:?}");
        assert!(refused.stderr.contains(expected), "{refused:?}");
    }
    let exec = async |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command.arg("exec").arg("--admin").arg(place.at("admin.sock")).args(arguments);
        Answer::to(command).await
    };
    let done = exec(&["a", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]).await;
    let expected = (Some(7), "out\n".to_owned(), "err\n".to_owned());
    assert_eq!((done.code, done.stdout, done.stderr), expected);
    let searches = place.ask(&["calls", "--method", "ListContainers", "-o", "json"]).await.json();
    assert_eq!(searches, serde_json::json!([]), "only the ExecSync is a call of the user");
    let refused = exec(&["-it", "a", "--", "sh"]).await;
    assert!(refused.code == Some(2) && refused.stderr.contains("crictl exec -it"), "{refused:?}");
    let version = place.ask(&["version"]).await.stdout;
    assert!(version.contains("Server:   probeshim ") && version.contains("Runtime:  procrun "), "{version}");
    for (arguments, expected) in [
        (&["events", "--pod", "b"][..], "error: --pod \"b\" not found; the pods are test/a\n"),
        (&["calls", "--peer", "kubelt"], "error: --peer \"kubelt\" not found; the clients are probeshim\n"),
    ] {
        let unknown = place.ask(arguments).await;
        assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(2), expected), "{arguments:?}");
    }
    let labelled = place.ask(&["calls", "-l", "app=web"]).await.stdout;
    assert_eq!(labelled, "no calls about pods with these labels match\n");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}
