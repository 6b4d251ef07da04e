//! procrun compared with containerd: both answer each invalid request with the same code and
//! message, which are in one table, and both hold ExecSync while a child keeps the output open.

use std::fs;
use std::path::Path;
use std::time::Duration;

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Crictl;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::procrun::Procrun;
use fixtures::runtime::Runtime;
use fixtures::scenarios::mistakes;
use tokio::time::Instant;

/// Table of containerd 2.2's answers.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/src/scenarios/mistakes.txt");

#[tokio::test]
async fn procrun_answers_invalid_requests_as_in_the_table_of_containerd() {
    compare(&Procrun::start()).await;
}

#[tokio::test]
async fn containerd_answers_invalid_requests_as_in_its_table() {
    compare(&need!(Containerd::start(Version::V2_2))).await;
}

#[test]
fn a_child_that_keeps_the_output_open_holds_an_exec_sync_on_procrun() {
    let procrun = Procrun::start();
    need!(is_held(&procrun));
}

#[test]
fn a_child_that_keeps_the_output_open_holds_an_exec_sync_on_containerd() {
    let containerd = need!(Containerd::start(Version::V2_2));
    need!(is_held(&containerd));
}

/// Checks calls whose command ends, or is killed, within its timeout, and whose child keeps the
/// output open for longer.
fn is_held(runtime: &impl Runtime) -> Result<(), String> {
    let crictl = Crictl::new("crictl-1.36", &runtime.socket(), runtime.folder())?;
    let pod = Pod::new(&crictl, runtime.folder(), "held");
    let exec = |timeout: u32, script: &str, held: Duration| {
        let (start, timeout) = (Instant::now(), timeout.to_string());
        let output = crictl.run(&["exec", "-s", "--timeout", &timeout, &pod.container, "sh", "-c", script]);
        assert!(start.elapsed() >= held, "the call was not held: {output:?}");
        output
    };
    // The timeout applies to the command only.
    let ended = exec(5, "sleep 8 & echo said", Duration::from_secs(8));
    assert_eq!((ended.code, ended.stdout.trim()), (Some(0), "said"), "{ended:?}");
    let killed = exec(1, "sleep 3 & exec sleep 100", Duration::from_secs(3));
    assert!(killed.code == Some(1) && killed.stderr.contains("DeadlineExceeded"), "{killed:?}");
    pod.remove(&crictl);
    Ok(())
}

async fn compare(runtime: &impl Runtime) {
    let told = mistakes::all(&runtime.socket(), runtime.folder()).await;
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let table = fs::read_to_string(Path::new(TABLE)).unwrap();
    let table: Vec<&str> = table.lines().collect();
    let differing: Vec<_> = told.iter().zip(&table).filter(|(told, in_table)| told != in_table).collect();
    assert!(differing.is_empty(), "answers of the runtime and of the table differ:\n{differing:#?}");
    assert_eq!(told.len(), table.len());
}
