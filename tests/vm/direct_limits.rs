//! Commands without the runtime on a node in trouble, where the kernel limits the memory and the
//! processes of a cgroup.

use std::env;
use std::path::Path;

use fixtures::crictl::Crictl;
use fixtures::image::Store;
use fixtures::machine::{program, program_under_test};
use fixtures::need;
use fixtures::scenarios::exec_chaos::run_exec_chaos;
use fixtures::shim::Probeshim;
use fixtures::vm::{Payload, Vm};

/// Variable that names the socket of a runtime on such a node.
const RUNTIME: &str = "DIRECT_LIMITS_RUNTIME";

/// cgroup of the pods, which is one of systemd.
const SLICE: &str = "chaos.slice";

/// Number of commands.
const EXECS: usize = 120;

/// In a virtual machine, or on the node of `DIRECT_LIMITS_RUNTIME`.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "shows what was examined")]
async fn no_command_is_lost_or_executed_twice_while_memory_and_processes_are_limited() {
    if let Some(runtime) = env::var_os(RUNTIME) {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), Path::new(&runtime));
        let shim = Probeshim::start_with(dir.path(), runtime, &["--exec", "direct-all"]);
        let crictl = Crictl::with_program("crictl".into(), "crictl", runtime, dir.path());
        println!("{}", run_exec_chaos(&shim, &crictl, dir.path(), SLICE, EXECS).await);
        return;
    }
    let vm = need!(Vm::new());
    let outcome = vm.run(need!(payload()));
    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);
    let summary = outcome.text("chaos");
    assert!(summary.contains("commands succeeded"), "{summary}");
    println!("{summary}");
}

fn payload() -> Result<Payload, String> {
    let payload = Payload::new(include_str!("direct_limits.sh"));
    Ok(payload
        .tool("containerd-2.2")?
        .tool("crictl-1.36")?
        .program("probeshim", program_under_test())
        .program("suite", env::current_exe().unwrap())
        .images(&Store::new(&program("busybox", "busybox-static")?)))
}
