//! Container logs in the CRI's format.

use std::fs;

use probeshim::cri::v1::{ContainerConfig, ContainerMetadata, ReopenContainerLogRequest};
use regex::Regex;

use super::{Runtime, refused, shell, until};

/// Returns stream and tag, and text, of each line of a log.
fn lines(text: &str) -> Vec<(String, String)> {
    let line = Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (std(?:out|err) [FP]) (.*)$").unwrap();
    text.lines()
        .map(|text| {
            let parts = line.captures(text).unwrap_or_else(|| panic!("{text:?}"));
            (parts[1].to_owned(), parts[2].to_owned())
        })
        .collect()
}

#[tokio::test]
async fn log_lines_have_time_stream_and_tag_and_are_complete_at_the_end() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let mut config = shell("main", "echo out; echo err >&2; printf 'no end'");
    config.log_path = "deep/below/main.log".into();
    let id = runtime.create(("pod", &pod), config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    runtime.ended(&id).await;
    let mut lines = lines(&fs::read_to_string(runtime.path("logs/pod/deep/below/main.log")).unwrap());
    lines.sort();
    let expected = [("stderr F", "err"), ("stdout F", "out"), ("stdout P", "no end")];
    assert_eq!(lines, expected.map(|(head, text)| (head.to_owned(), text.to_owned())));
    runtime.end().await;
}

#[tokio::test]
async fn a_renamed_log_continues_in_a_new_file_after_a_reopen() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("n=0; while :; do n=$((n+1)); echo $n; sleep 0.005; done").await;
    let [log, moved] = ["logs/pod/main.log", "logs/pod/main.log.1"].map(|name| runtime.path(name));
    let grows = async || {
        let before = fs::metadata(&log).map_or(0, |file| file.len());
        until(|| async { fs::metadata(&log).is_ok_and(|file| file.len() > before).then_some(()) }).await;
    };
    grows().await;
    fs::rename(&log, &moved).unwrap();
    runtime
        .client
        .reopen_container_log(ReopenContainerLogRequest { container_id: id.clone() })
        .await
        .unwrap();
    grows().await;
    runtime.stop(&id, 0).await;
    // No line is lost or written twice.
    let text = fs::read_to_string(moved).unwrap() + &fs::read_to_string(log).unwrap();
    let numbers: Vec<u32> = lines(&text).into_iter().map(|(_, text)| text.parse().unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=u32::try_from(numbers.len()).unwrap()), "{numbers:?}");
    runtime.end().await;
}

/// The container writes without a pause, so that a chunk is always in flight while the file is
/// switched.
#[tokio::test]
async fn a_renamed_log_does_not_grow_after_a_reopen() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("n=0; while :; do n=$((n+1)); echo $n; done").await;
    let log = runtime.path("logs/pod/main.log");
    let mut moved = Vec::new();
    for rotation in 0..5 {
        until(|| async { fs::metadata(&log).is_ok_and(|file| file.len() > 100_000).then_some(()) }).await;
        let to = runtime.path(&format!("logs/pod/main.log.{rotation}"));
        fs::rename(&log, &to).unwrap();
        let request = ReopenContainerLogRequest { container_id: id.clone() };
        runtime.client.reopen_container_log(request).await.unwrap();
        moved.push((fs::metadata(&to).unwrap().len(), to));
    }
    until(|| async { fs::metadata(&log).is_ok_and(|file| file.len() > 0).then_some(()) }).await;
    runtime.stop(&id, 0).await;
    let mut text = String::new();
    for (length, path) in moved {
        let part = fs::read_to_string(path).unwrap();
        assert_eq!(part.len() as u64, length, "a rotated file has grown");
        text += &part;
    }
    text += &fs::read_to_string(log).unwrap();
    // SIGKILL may truncate the last line.
    let lines = lines(&text).into_iter().filter(|(head, _)| head.ends_with('F'));
    let numbers: Vec<usize> = lines.map(|(_, text)| text.parse().unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "a line was lost or written twice");
    runtime.end().await;
}

#[tokio::test]
async fn a_container_without_a_log_path_writes_no_log_and_does_not_block() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let mut config = shell("main", "head -c 1000000 /dev/zero");
    config.log_path = String::new();
    let id = runtime.create(("pod", &pod), config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    assert_eq!(runtime.ended(&id).await.exit_code, 0);
    assert!(!runtime.path("logs").exists());
    runtime.end().await;
}

#[tokio::test]
async fn a_log_path_that_is_not_a_regular_file_is_refused_without_blocking() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    fs::create_dir_all(runtime.path("logs/pod")).unwrap();
    let pipe = runtime.path("logs/pod/main.log");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let id = runtime.create(("pod", &pod), shell("main", "true")).await.unwrap();
    let (_, words) = refused(runtime.start_container(&id).await);
    assert!(words.contains("failed to create and open log file: open"), "{words}");
    // With a reader the FIFO can be opened, but it is still not a regular file.
    let _reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let id = runtime
        .create(
            ("pod", &pod),
            ContainerConfig {
                metadata: Some(ContainerMetadata { name: "main".into(), attempt: 1 }),
                ..shell("main", "true")
            },
        )
        .await
        .unwrap();
    let (_, words) = refused(runtime.start_container(&id).await);
    assert!(words.ends_with("not a file"), "{words}");
    runtime.end().await;
}
