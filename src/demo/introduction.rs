//! Introduction of the demo, with its sockets and files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::procrun;
use crate::socket::SocketPath;
use crate::terminal::format;

/// Sockets and files of the demo, which are printed for users who want to inspect it.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Socket of procrun.
    pub upstream: SocketPath,
    /// Socket of the relay.
    pub listen: SocketPath,
    /// The admin socket.
    pub admin: SocketPath,
    /// Address of the web page, metrics and health.
    pub http: Option<SocketAddr>,
    /// File of the manifests.
    pub pods: PathBuf,
}

/// Returns the introduction of a demo with the duration `lasts`. `program` is the path by which the
/// program was called, so that the printed commands work.
#[must_use]
pub fn introduction(lasts: Duration, program: &str, places: &Endpoints) -> String {
    let Endpoints { upstream, listen, admin, http, pods } = places;
    let http = http.map_or_else(String::new, |http| {
        format!("page       http://{http}/\nmetrics    http://{http}/metrics\n")
    });
    let admin = admin.as_path().display().to_string();
    let command = |args: &[&str]| {
        let args = [&[program], args, &["--admin", &admin]].concat();
        format::command(&args.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    format!(
        "{}\n\nprobeshim relays the calls of its four pods for {}, or until Ctrl-C:\n\
         runtime    {upstream}\nprobeshim  {listen}\n{http}manifests  {}\n\n\
         In another terminal:\n  {}\n  {}\n  {}\n\n",
        procrun::WARNING,
        format::duration(lasts),
        pods.display(),
        command(&["calls", "-f"]),
        command(&["top"]),
        command(&["explain", "--last", "--failed"]),
    )
}
