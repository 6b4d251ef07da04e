//! A real Prometheus on another machine reads the metrics.

use std::fs;
use std::path::Path;

use fixtures::authority::Authority;
use fixtures::machine::program;
use fixtures::need;
use fixtures::peer_namespace::PeerNamespace;
use fixtures::procrun::Procrun;
use fixtures::runtime::Runtime as _;
use fixtures::server::Server;
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use serde_json::json;

/// Address of Prometheus in its namespace, in which no other program listens.
const PROMETHEUS: &str = "127.0.0.1:9090";

/// Port of the metrics.
const PORT: u16 = 9755;

#[test]
fn prometheus_on_another_machine_reads_the_metrics_with_a_client_certificate() {
    need!(program("prometheus", "prometheus"));
    let machine = need!(PeerNamespace::create());
    let procrun = Procrun::start();
    let folder = procrun.folder();
    let authority = Authority::create(folder, "authority");
    let near = machine.near().to_string();
    let (certificate, key) = authority.issue("server", &[&near]);
    authority.issue("client", &["prometheus"]);
    let address = format!("{near}:{PORT}");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key, ca) = (text(&certificate), text(&key), text(&authority.certificate()));
    let flags = [
        ["--metrics-listen", &address],
        ["--metrics-tls-cert", &certificate],
        ["--metrics-tls-key", &key],
        ["--metrics-client-ca", &ca],
    ];
    let shim = Probeshim::start_with(folder, &procrun.socket(), flags.as_flattened());

    let _prometheus = start_prometheus(&machine, folder, &address);
    let result = |query: &str| {
        let mut promtool = machine.command("promtool");
        let output = promtool.args(["query", "instant", &format!("http://{PROMETHEUS}"), query]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    wait_for("Prometheus reads the metrics with the certificate", || {
        result("up{job=\"certificate\"} == 1").contains("up{").then_some(())
    });
    wait_for("Prometheus reads nothing without the certificate", || {
        result("up{job=\"anonymous\"} == 0").contains("up{").then_some(())
    });
    // Prometheus refuses a whole answer if it cannot read one of its lines.
    wait_for("Prometheus has all metrics", || {
        result("count({__name__=~\"probeshim_.+\", job=\"certificate\"}) > 20").contains("=>").then_some(())
    });
    let anonymous = result("{__name__=~\"probeshim_.+\", job=\"anonymous\"}");
    assert!(!anonymous.contains("probeshim_"), "{anonymous}");
    shim.stop();
}

/// Starts Prometheus in the namespace. It reads the metrics with a client certificate, and also
/// without one.
fn start_prometheus(machine: &PeerNamespace, folder: &Path, target: &str) -> Server {
    let job = |name: &str, tls: serde_json::Value| {
        json!({
            "job_name": name,
            "scheme": "https",
            "tls_config": tls,
            "static_configs": [{"targets": [target]}],
        })
    };
    let ca = folder.join("authority.pem");
    let (certificate, key) = (folder.join("client.pem"), folder.join("client.key"));
    let config = json!({
        "global": {"scrape_interval": "5s", "scrape_timeout": "5s"},
        "scrape_configs": [
            job("certificate", json!({"ca_file": ca, "cert_file": certificate, "key_file": key})),
            job("anonymous", json!({"ca_file": ca})),
        ],
    });
    let path = folder.join("prometheus.yml");
    fs::write(&path, config.to_string()).unwrap();
    let mut command = machine.command("prometheus");
    command.arg("--config.file").arg(&path).arg("--web.listen-address").arg(PROMETHEUS);
    command.arg("--storage.tsdb.path").arg(folder.join("prometheus"));
    Server::start("prometheus", &mut command, &folder.join("prometheus.log"))
}
