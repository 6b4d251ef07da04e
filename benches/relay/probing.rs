//! Measures the cost of ten thousand probes per second, and the lateness of their attempts.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::target::Target;

/// Numbers of containers. Each container is probed every second.
const SIZES: [usize; 3] = [100, 1_000, 10_000];

/// Duration of the warm-up, and of the measurement after it.
const SETTLING: Duration = Duration::from_secs(15);
const MEASURED: Duration = Duration::from_secs(20);

/// Aims for the largest size: minimum share of the attempts that start at most 20 ms after their
/// tick, that delay in seconds, maximum share of a core, and maximum memory in KiB.
const IN_TIME: f64 = 0.99;
const LATE: &str = "0.02";
const CORE: f64 = 1.0;
const MEMORY: u64 = 150 << 10;

/// A rule whose probe always succeeds.
const ALIVE: &str = "
- match: {container: '*'}
  livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}
";

/// A rule for a tenth of the containers, which connects to a port on which no process listens.
const REFUSED: &str = "
- match: {pod: '*7'}
  livenessProbe: {tcpSocket: {port: 1, host: 127.0.0.1}, periodSeconds: 1}
";

/// A measurement: the number of containers, the dead ones among them, the rules for those, and the
/// expected number of attempts per second.
struct Case {
    size: usize,
    dead: &'static str,
    rules: String,
    rate: f64,
}

/// Values of counters at one time.
struct Counted {
    attempts: f64,
    in_time: f64,
    processor: f64,
}

/// Measures each size, and the largest size with a tenth of its targets dead. A dead target refuses
/// the connection, or never responds.
pub(crate) async fn probing() {
    println!("\nprobes with a period of one second, over {} seconds", MEASURED.as_secs());
    println!(
        "{:>10} {:>15} {:>12} {:>14} {:>20} {:>14} {:>10}",
        "containers", "dead", "attempts/s", "in 20 ms", "in 20 ms from start", "of a core", "peak KiB"
    );
    // Connections wait in the backlog of the listener, and are never accepted.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // These attempts take their timeout, which is at least one second, so their period must be
    // longer than that.
    let silent = format!(
        "
- match: {{pod: '*7'}}
  livenessProbe: {{httpGet: {{port: {port}, host: 127.0.0.1}}, periodSeconds: 2}}
"
    );
    let largest = SIZES[2];
    for size in SIZES {
        measure(&Case { size, dead: "none", rules: String::new(), rate: size as f64 }).await;
    }
    let rules = REFUSED.to_owned();
    measure(&Case { size: largest, dead: "a tenth refuse", rules, rate: largest as f64 }).await;
    measure(&Case { size: largest, dead: "a tenth silent", rules: silent, rate: 0.95 * largest as f64 })
        .await;
}

async fn measure(case: &Case) {
    let Case { size, dead, rules, rate: expected } = case;
    let folder = tempfile::tempdir().unwrap();
    let _procrun = Target::procrun(folder.path(), *size);
    let config = format!("enforce: dry-run\nprobes:{rules}{ALIVE}");
    let probeshim = Target::probeshim_with(folder.path(), &config);
    tokio::time::sleep(SETTLING).await;
    let before = Counted::now(&probeshim);
    tokio::time::sleep(MEASURED / 2).await;
    // This request reads all series, as a metrics server would.
    assert!(metrics(&probeshim, "/metrics/probes").matches("prober_probe_total{").count() >= *size);
    tokio::time::sleep(MEASURED / 2).await;
    let after = Counted::now(&probeshim);
    let (attempts, seconds) = (after.attempts - before.attempts, MEASURED.as_secs_f64());
    let in_time = (after.in_time - before.in_time) / attempts;
    let from_start = after.in_time / after.attempts;
    let core = (after.processor - before.processor) / seconds;
    let (rate, peak) = (attempts / seconds, probeshim.memory("VmHWM"));
    println!(
        "{size:>10} {dead:>15} {rate:>12.0} {:>12.2} % {:>18.2} % {core:>14.2} {peak:>10}",
        in_time * 100.0,
        from_start * 100.0
    );
    assert!(rate > 0.97 * expected, "attempts are missing");
    if *size == SIZES[2] {
        assert!(in_time.min(from_start) >= IN_TIME, "the share of late attempts exceeds the aim");
        assert!(core <= CORE, "the processor time exceeds the aim");
        assert!(peak <= MEMORY, "the memory exceeds the aim");
    }
}

impl Counted {
    fn now(probeshim: &Target) -> Self {
        let metrics = metrics(probeshim, "/metrics");
        let value = |name: &str| -> f64 {
            let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let lateness = "probeshim_prober_lateness_seconds";
        Self {
            attempts: value(&format!("{lateness}_count")),
            in_time: value(&format!("{lateness}_bucket{{le=\"{LATE}\"}}")),
            processor: probeshim.processor_time(),
        }
    }
}

/// Returns the metrics at `path` of the admin socket.
fn metrics(probeshim: &Target, path: &str) -> String {
    let mut stream = UnixStream::connect(probeshim.socket().with_file_name("admin.sock")).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
