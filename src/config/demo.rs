//! Settings of `demo`.

use std::net::SocketAddr;
use std::time::Duration;

use super::PolicySettings;

/// Validated settings of `demo`.
#[derive(Clone, Debug)]
pub struct DemoSettings {
    /// Duration of the demo.
    pub lasts: Duration,
    /// Whether only the results at the end are printed.
    pub is_quiet: bool,
    /// Loopback address of the web page and the metrics; `None` if they are not served.
    pub http: Option<SocketAddr>,
    /// Fault rules.
    pub faults: PolicySettings,
}

impl DemoSettings {
    /// Beginning of the name of the demo's directory.
    pub(crate) const DIR_PREFIX: &str = "probeshim-demo.";
}
