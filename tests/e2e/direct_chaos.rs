//! Commands without the runtime on a node in trouble, and many of them at once.
//! `PROBESHIM_CHAOS_EXECS` changes their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use fixtures::containerd::Containerd;
use fixtures::crictl::Crictl;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::exec_chaos::run_exec_chaos;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use probeshim::socket::SocketPath;
use tonic::Status;

use crate::direct::{direct_all, direct_in, root_of, verified};
use crate::direct_hostile::has_no_children;

/// Number of commands, by default.
const EXECS: usize = 600;

/// Number of commands for each one that floods its output.
const EXECS_PER_FLOOD: usize = 225;

/// Number of commands for each one that is started at the same time as others.
const EXECS_PER_CONCURRENT: usize = 6;

/// Number of commands of a neighbour of those that flood their output.
const NEIGHBOUR_EXECS: usize = 50;

/// Returns the number of commands.
fn execs() -> usize {
    std::env::var("PROBESHIM_CHAOS_EXECS").map_or(EXECS, |text| text.parse().unwrap())
}

/// Commands that run at the same time.
struct Concurrent {
    thread: JoinHandle<Vec<Result<ExecSyncResponse, Status>>>,
    /// Number of those that have ended.
    ended: Arc<AtomicUsize>,
}

impl Concurrent {
    /// Starts commands of the shell, on a thread of their own.
    fn start(shim: &Probeshim, container: &str, timeout: i64, scripts: Vec<String>) -> Self {
        let (socket, container) = (shim.socket().to_str().unwrap().to_owned(), container.to_owned());
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = ended.clone();
        let run = async move {
            let client = runtime_client(&SocketPath::parse(&socket).unwrap());
            let running: Vec<_> = scripts
                .into_iter()
                .map(|script| {
                    let (mut client, counter) = (client.clone(), counter.clone());
                    let cmd = ["sh".to_owned(), "-c".to_owned(), script].into();
                    let request = ExecSyncRequest { container_id: container.clone(), cmd, timeout };
                    tokio::spawn(async move {
                        let answer = client.exec_sync(request).await;
                        counter.fetch_add(1, Ordering::Relaxed);
                        answer.map(tonic::Response::into_inner)
                    })
                })
                .collect();
            let mut answers = Vec::new();
            for running in running {
                answers.push(running.await.unwrap());
            }
            answers
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { thread: std::thread::spawn(move || runtime.block_on(run)), ended }
    }

    /// Returns the answers, in the order of the commands.
    fn answers(self) -> Vec<Result<ExecSyncResponse, Status>> {
        self.thread.join().unwrap()
    }
}

/// Returns the number of commands that were executed without the runtime.
fn direct_execs(shim: &Probeshim) -> usize {
    let metrics = shim.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix("probeshim_direct_execs_total "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "shows what was examined")]
async fn under_chaos_no_command_is_lost_executed_twice_or_executed_outside_its_container() {
    let containerd = need!(Containerd::start_unified());
    let shim = Probeshim::start_with(containerd.folder(), &containerd.socket(), &["--exec", "direct-all"]);
    let crictl = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    println!("{}", run_exec_chaos(&shim, &crictl, containerd.folder(), "", execs()).await);
}

#[test]
fn of_many_commands_at_once_each_gets_its_own_output() {
    let (_containerd, execs_in) = need!(direct_all());
    verified(&execs_in, &["true"]);
    let (before, count) = (direct_execs(&execs_in.shim), execs() / EXECS_PER_CONCURRENT);
    let scripts = (0..count).map(|number| format!("echo {number}; echo {number} >&2; exit {}", number % 200));
    let running = Concurrent::start(&execs_in.shim, &execs_in.pod.container, 0, scripts.collect());
    for (number, answer) in running.answers().into_iter().enumerate() {
        let ExecSyncResponse { stdout, stderr, exit_code } = answer.unwrap();
        let expected = format!("{number}\n").into_bytes();
        let code = i32::try_from(number % 200).unwrap();
        assert_eq!((stdout, stderr, exit_code), (expected.clone(), expected, code), "command {number}");
    }
    assert_eq!(direct_execs(&execs_in.shim) - before, count, "the runtime executed some");
    has_no_children(execs_in.shim.exec_helper().unwrap());
    execs_in.end();
}

#[test]
fn commands_that_flood_their_output_fail_no_command_of_a_neighbour() {
    let (containerd, execs_in) = need!(direct_all());
    verified(&execs_in, &["true"]);
    let neighbour = Pod::new(&execs_in.crictl, containerd.folder(), "neighbour");
    wait_for("the neighbour is verified", || direct_in(&execs_in, &neighbour, &["true"]));
    let count = (execs() / EXECS_PER_FLOOD).max(2);
    // At its timeout, only the shell of a command is killed. The floods continue until the file
    // exists.
    let flood = "for stream in 1 2; do sh -c 'until [ -e /end ]; do head -c 65536 /dev/zero; done' >&$stream & \
                 done; : >/flood-$$; exec sleep 100000";
    let scripts = vec![flood.to_owned(); count];
    let floods = Concurrent::start(&execs_in.shim, &execs_in.pod.container, 1, scripts);
    let root = root_of(&execs_in, &execs_in.pod.container);
    wait_for("all commands flood their output", || {
        let names = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name());
        let started = names.filter(|name| name.to_string_lossy().starts_with("flood-")).count();
        // A command that was late has met its timeout before.
        let ended = floods.ended.load(Ordering::Relaxed);
        (started + ended >= count).then_some(())
    });
    for _ in 0..NEIGHBOUR_EXECS {
        let scripts = vec!["true".to_owned()];
        let answers = Concurrent::start(&execs_in.shim, &neighbour.container, 60, scripts).answers();
        assert_eq!(answers[0].as_ref().unwrap().exit_code, 0);
    }
    std::fs::write(root.join("end"), "").unwrap();
    for flood in floods.answers() {
        let status = flood.unwrap_err();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded, "{status}");
    }
    has_no_children(execs_in.shim.exec_helper().unwrap());
    neighbour.remove(&execs_in.crictl);
    execs_in.end();
}
