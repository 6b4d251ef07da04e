//! A pod in which things are executed through probeshim, and what it says of each.

use serde_json::Value;

use super::crictl::Crictl;
use super::life::{Pod, Runtime};
use super::server::wait_for;
use super::shim::Probeshim;

/// A runtime, probeshim before it, and a pod.
pub(crate) struct Execs {
    pub(crate) crictl: Crictl,
    pub(crate) pod: Pod,
    pub(crate) shim: Probeshim,
}

impl Execs {
    /// Starts probeshim and the pod; says what is missing where that is not possible.
    pub(crate) fn start(runtime: &impl Runtime) -> Result<Self, String> {
        let shim = Probeshim::start(runtime.folder(), &runtime.socket());
        let crictl = Crictl::new("crictl-1.36", shim.socket(), runtime.folder())?;
        let pod = Pod::new(&crictl, runtime.folder(), "execs");
        Ok(Self { crictl, pod, shim })
    }

    /// Executes something, and returns what is recorded of it.
    pub(crate) fn exec(&self, command: &[&str], timeout: u32) -> Value {
        let before = self.all().len();
        let timeout = timeout.to_string();
        let arguments = [&["exec", "-s", "--timeout", &timeout, &self.pod.container][..], command].concat();
        self.crictl.run(&arguments);
        wait_for("the call is recorded", || self.all().get(before).cloned())
    }

    /// What is recorded of everything that was executed.
    pub(crate) fn all(&self) -> Vec<Value> {
        let calls = self.shim.ask(&["calls", "-o", "json", "--method", "ExecSync"]);
        serde_json::from_str(&calls).unwrap()
    }

    pub(crate) fn end(self) {
        self.pod.remove(&self.crictl);
    }
}
