//! Tests of the source, and of its retries.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fixtures::authority::Authority;
use fixtures::wait::soon;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::tls::{TlsServer, TlsServerFiles};

const LIST: &str = r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#;

/// Time in which something happens on the paused clock, which costs no time of the machine.
const AT_LAST: Duration = Duration::from_secs(3600);

/// Answer of the API server to a request.
#[derive(Clone, Copy)]
enum Answer {
    /// A list without pods.
    List,
    /// The begin of a watch without events, after some time.
    Watch(Duration),
    /// The end of the connection.
    Close,
    /// No answer.
    Nothing,
}

/// A request, as the API server received it.
struct Received {
    is_list: bool,
    /// Time of the answer.
    answered: Instant,
}

/// A source of pods, and the API server of its kubeconfig.
struct Watched {
    updates: mpsc::Receiver<SourceUpdate>,
    received: mpsc::UnboundedReceiver<Received>,
    _tasks: [AbortOnDropHandle<()>; 2],
    _dir: tempfile::TempDir,
}

impl Watched {
    /// Starts both. `answers` has the answers to the first requests, and `last` the answer to all
    /// later ones, which is a list if they request one.
    async fn start(answers: &[Answer], last: Answer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "authority");
        let (certificate, key) = authority.issue("server", &["127.0.0.1"]);
        let files = TlsServerFiles { certificate, key, client_ca: None, client_may_be_anonymous: true };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let source = ApiPodSource {
            kubeconfig: kubeconfig(dir.path(), &url, &authority),
            node_name: Some("node-1".to_owned()),
        };
        let (received_sender, received) = mpsc::unbounded_channel();
        let tls = Arc::new(TlsServer::open(files).unwrap());
        let server = serve(listener, tls, answers.to_vec(), last, received_sender);
        let (update_sender, updates) = mpsc::channel(64);
        let tasks = [tokio::spawn(server), tokio::spawn(source.run(false, update_sender))];
        Self { updates, received, _tasks: tasks.map(AbortOnDropHandle::new), _dir: dir }
    }

    /// Returns the problem of the next update, and whether it has pods.
    async fn update(&mut self) -> (Option<String>, bool) {
        match self.updates.recv().await {
            Some(SourceUpdate::Pods { state, pods, .. }) => (state.problem, pods.is_some()),
            other => panic!("not pods: {other:?}"),
        }
    }
}

fn kubeconfig(dir: &Path, url: &str, authority: &Authority) -> PathBuf {
    let path = dir.join("kubelet.conf");
    let authority = authority.certificate();
    let text = format!(
        "
current-context: a
contexts: [{{name: a, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: '{url}', certificate-authority: {}}}}}]
users: [{{name: u, user: {{token: t}}}}]
",
        authority.display()
    );
    fs::write(&path, text).unwrap();
    path
}

async fn serve(
    listener: TcpListener,
    tls: Arc<TlsServer>,
    answers: Vec<Answer>,
    last: Answer,
    received: mpsc::UnboundedSender<Received>,
) {
    let mut answers = answers.into_iter();
    let mut open = Vec::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // The client may leave at any time.
        let Ok(stream) = tls.clone().accept(stream).await else { continue };
        let (mut stream, mut head, mut line) = (BufReader::new(stream), String::new(), String::new());
        while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) && line != "\r\n" {
            head += &line;
            line.clear();
        }
        let is_list = !head.contains("watch=true");
        let answer = answers.next().unwrap_or(if is_list && !matches!(last, Answer::Nothing) {
            Answer::List
        } else {
            last
        });
        let text = match answer {
            Answer::List => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{LIST}", LIST.len()),
            Answer::Watch(delay) => {
                sleep(delay).await;
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()
            }
            Answer::Close | Answer::Nothing => String::new(),
        };
        let _ = received.send(Received { is_list, answered: Instant::now() });
        let _ = stream.write_all(text.as_bytes()).await;
        let _ = stream.flush().await;
        if !matches!(answer, Answer::Close) {
            open.push(stream);
        }
    }
}

#[tokio::test]
async fn an_api_server_that_stops_answering_is_a_problem_and_its_pods_are_listed_again() {
    let mut watched = Watched::start(&[Answer::List], Answer::Nothing).await;
    assert_eq!(soon(watched.update()).await, (None, true));
    assert!(watched.received.recv().await.unwrap().is_list);
    tokio::time::pause();
    let problem = Some("no response within 30s".to_owned());
    assert_eq!(timeout(AT_LAST, watched.update()).await.unwrap(), (problem, false));
    let listed = async { while !watched.received.recv().await.unwrap().is_list {} };
    timeout(AT_LAST, listed).await.unwrap();
}

#[tokio::test]
async fn a_watch_that_begins_late_resolves_a_problem_only_after_it_has_lasted() {
    let answers = [Answer::List, Answer::Close, Answer::Close];
    let late = Answer::Watch(LASTING_WATCH + Duration::from_secs(5));
    let mut watched = Watched::start(&answers, late).await;
    assert_eq!(soon(watched.update()).await, (None, true));
    tokio::time::pause();
    let (problem, _) = timeout(AT_LAST, watched.update()).await.unwrap();
    assert!(problem.is_some(), "two watches have failed");
    while timeout(AT_LAST, watched.update()).await.unwrap().0.is_some() {}
    let resolved = Instant::now();
    let mut answered = None;
    while let Ok(received) = watched.received.try_recv() {
        answered = Some(received.answered);
    }
    assert!(resolved - answered.unwrap() >= LASTING_WATCH, "{:?}", resolved - answered.unwrap());
}

#[tokio::test]
async fn the_path_of_a_kubeconfig_that_cannot_be_read_is_named_once() {
    let source = ApiPodSource { kubeconfig: "/none/kubelet.conf".into(), node_name: None };
    let (sender, mut updates) = mpsc::channel(1);
    let _task = AbortOnDropHandle::new(tokio::spawn(source.run(false, sender)));
    let Some(SourceUpdate::Pods { state, .. }) = soon(updates.recv()).await else { panic!("not pods") };
    let text = format!("{}: {}", state.describe(), state.problem.unwrap());
    assert_eq!(text, "the API server of /none/kubelet.conf: No such file or directory (os error 2)");
}

#[test]
fn a_watch_that_a_proxy_interrupts_is_resumed_without_a_list_and_without_a_growing_delay() {
    let mut retries = Retries::new();
    retries.on_list();
    for _ in 0..10 {
        retries.on_watch_lasted(Duration::from_secs(60));
        retries.on_watch_failed();
        assert!(!retries.must_list);
        assert!(retries.failed_watches < 2, "it is no problem");
        assert!(retries.take_delay() <= MIN_RETRY_DELAY.mul_f64(1.5));
    }
}

#[test]
fn watches_that_fail_soon_are_repeated_more_and_more_rarely_and_lead_to_a_list() {
    let mut retries = Retries::new();
    retries.on_list();
    let lists = (1..=9).filter(|_| {
        retries.on_watch_lasted(Duration::from_secs(1));
        retries.on_watch_failed();
        retries.take_delay();
        let lists = retries.must_list;
        retries.on_list();
        lists
    });
    assert_eq!(lists.count(), 3);
    assert_eq!(retries.delay, MAX_RETRY_DELAY, "a list does not prove that watches work");
}

#[test]
fn a_list_after_failed_lists_resets_the_delay() {
    let mut retries = Retries::new();
    retries.take_delay();
    retries.on_version_gone();
    assert!(retries.must_list && retries.is_version_gone);
    assert!(retries.delay > MIN_RETRY_DELAY);
    retries.on_list();
    assert_eq!(retries, Retries { must_list: false, ..Retries::new() });
}
