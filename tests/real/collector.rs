//! An OpenTelemetry collector that prints the spans that it receives.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use super::machine::{free_address, tool};
use super::server::Server;

/// A collector that runs.
#[derive(Debug)]
pub(crate) struct Collector {
    server: Server,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl Collector {
    /// Starts one in `folder`; says what is missing where that is not possible.
    pub(crate) fn start(folder: &Path) -> Result<Self, String> {
        let program = tool("otelcol-0.160")?.join("otelcol");
        let (grpc, http) = (free_address(), free_address());
        let config = folder.join("collector.yaml");
        let settings = format!(
            r"
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: {grpc}}}
      http: {{endpoint: {http}}}
exporters:
  debug: {{verbosity: detailed}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [debug]}}
"
        );
        fs::write(&config, settings).unwrap();
        let mut command = Command::new(program);
        command.arg("--config").arg(&config);
        let mut server = Server::start("otelcol", &mut command, &folder.join("collector.log"));
        server.wait_until(|_| [grpc, http].iter().all(|address| TcpStream::connect(address).is_ok()));
        Ok(Self { server, grpc, http })
    }

    /// Everything that it has printed.
    pub(crate) fn log(&self) -> String {
        self.server.log()
    }

    /// The spans that it has printed, each with its attributes.
    pub(crate) fn spans(&self) -> Vec<String> {
        self.log().split("\nSpan #").skip(1).map(str::to_owned).collect()
    }
}
