//! Commands without the runtime on a node in trouble. `PROBESHIM_CHAOS_EXECS` changes their number.

use fixtures::containerd::Containerd;
use fixtures::crictl::Crictl;
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::exec_chaos::run_exec_chaos;
use fixtures::shim::Probeshim;

/// Number of commands, by default.
const EXECS: usize = 600;

#[tokio::test]
#[expect(clippy::print_stdout, reason = "shows what was examined")]
async fn under_chaos_no_command_is_lost_executed_twice_or_executed_outside_its_container() {
    let execs = std::env::var("PROBESHIM_CHAOS_EXECS").map_or(EXECS, |text| text.parse().unwrap());
    let containerd = need!(Containerd::start_unified());
    let shim = Probeshim::start_with(containerd.folder(), &containerd.socket(), &["--exec", "direct-all"]);
    let crictl = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    println!("{}", run_exec_chaos(&shim, &crictl, containerd.folder(), "", execs).await);
}
