//! Measures the web page in Chromium: an update of its rows, compared with their replacement by
//! `innerHTML` in the same run, and the processor time that an open page of a quiet node costs.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fixtures::machine::{free_address, program, repository, tool};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::target::Target;

/// Number of containers of the runtime.
const CONTAINERS: usize = 500;

/// Time over which processor time is measured, and time before it.
const MEASURED: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_secs(10);

/// Aims: bytes that the page transfers until it is shown, share of an update in the time of a
/// replacement, and share of a core that an open page costs.
const TRANSFERRED: u64 = 100 << 10;
const UPDATE: f64 = 0.25;
const CORE: f64 = 0.005;

/// Measures the page, or prints what this machine lacks.
pub(crate) async fn page() {
    let programs = program("chromium", "chromium").and_then(|chromium| {
        program("node", "nodejs")?;
        Ok((chromium, tool("puppeteer-24")?))
    });
    match programs {
        Err(reason) => println!("page: not measured: {reason}"),
        Ok((chromium, tools)) => measure(&chromium, &tools).await,
    }
}

async fn measure(chromium: &Path, tools: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let _procrun = Target::procrun(folder.path(), CONTAINERS);
    let address = free_address();
    let probeshim = Target::probeshim_with(folder.path(), &format!("http: {address}\n"));
    let closed = share_of_a_core(&probeshim).await;
    let job = json!({"chromium": chromium, "url": format!("http://{address}/")}).to_string();
    let script = repository().join("benches/relay/page.cjs");
    let mut browser = Command::new("node")
        .arg(script)
        .arg(tools)
        .arg(job)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(browser.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let measured: Value = serde_json::from_str(&line).unwrap();
    let figure = |name: &str| measured[name].as_f64().unwrap();
    let (update, replacement) = (figure("updateMs"), figure("replaceMs"));
    let transferred = measured["transferred"].as_u64().unwrap();
    println!("page: {} KiB are transferred until it is shown", transferred >> 10);
    println!(
        "page: an update of {} rows takes {update:.1} ms, their replacement by innerHTML {replacement:.1} ms: {:.2} of it",
        measured["rows"],
        update / replacement
    );
    let open = share_of_a_core(&probeshim).await;
    println!(
        "page: probeshim takes {:.2} % of a core on a quiet node with {CONTAINERS} containers, and {:.2} % with an open page",
        100.0 * closed,
        100.0 * open
    );
    // The script ends with its input.
    drop(browser.stdin.take());
    browser.wait().unwrap();
    assert_eq!(measured["isSame"], true, "the update and the replacement show different rows");
    assert!(transferred <= TRANSFERRED, "the page transfers more than the aim");
    assert!(update <= UPDATE * replacement, "an update takes longer than the aim");
    assert!(open - closed < CORE, "an open page costs more than the aim");
}

/// Returns the processor time of a process as a share of one core.
async fn share_of_a_core(probeshim: &Target) -> f64 {
    sleep(SETTLING).await;
    let before = probeshim.processor_time();
    sleep(MEASURED).await;
    (probeshim.processor_time() - before) / MEASURED.as_secs_f64()
}
