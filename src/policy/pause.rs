//! Pauses: for a limited time, the exec probes of clients are answered in place of the runtime, and
//! probeshim kills no container.

use std::fmt::Write as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prometheus_client::registry::Registry;
use prost::Message as _;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;
use tracing::info;

use super::active_names::{check_active, is_named};
use super::fault::{RuleError, check_name};
use super::lifetime;
use super::metrics::PauseMetrics;
use super::node_view::NodeView;
use super::target::Target;
use crate::cri::{framed_message, v1};
use crate::events::{Event, reason};
use crate::gofmt::format_duration;
use crate::inventory::{Container, Sandbox};
use crate::manifest::ProbeType;
use crate::probe::Selector;
use crate::relay::{CallInfo, UnaryResponse};

/// Name of the policy in the marks of calls.
pub(super) const PAUSE: &str = "pause";

/// Maximum number of active pauses.
const MAX_PAUSES: usize = 1000;

/// A pause of the probes of containers.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// Name of the pause; `None` for a new one.
    pub name: Option<String>,
    /// The containers.
    pub selector: Selector,
    /// Time after which the pause ends.
    pub lifetime: Duration,
    /// Whether readiness probes are paused too.
    pub readiness: bool,
}

/// An active pause, as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct PauseStatus {
    /// Name of the pause.
    pub name: String,
    /// The containers.
    pub selector: Selector,
    /// Whether readiness probes are paused too.
    pub readiness: bool,
    /// Time at which the pause ends.
    pub expires: SystemTime,
    /// Number of probes that were answered in place of the runtime.
    pub answered: u64,
}

/// How a pause treats the probes of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausedProbe {
    /// The probe is executed.
    Executed,
    /// The probe is answered with success.
    Success,
    /// The probe is answered with UNAVAILABLE, which the kubelet discards.
    Discarded,
}

/// The active pauses. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there are pauses. Without them, calls take no lock.
    has_pauses: AtomicBool,
    active: RwLock<Arc<[Arc<ActivePause>]>>,
    /// Held while the pauses change. The number of the last pause without a name of its own.
    changes: Mutex<u64>,
    /// Signalled when the next expiry may have changed.
    changed: Notify,
    /// Signalled to all calls that wait when a pause begins.
    began: Notify,
    node: OnceLock<Arc<NodeView>>,
    metrics: PauseMetrics,
}

#[derive(Debug)]
struct ActivePause {
    name: Arc<str>,
    selector: Selector,
    readiness: bool,
    /// Time of the end by the monotonic and the wall clock.
    expires: (Instant, SystemTime),
    answered: AtomicU64,
}

impl Pause {
    /// Returns the pause unless a part of it is invalid. `all` permits a pause of all containers.
    pub fn validated(self, all: bool) -> Result<Self, RuleError> {
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        if !lifetime::is_lifetime(self.lifetime) {
            let value = format!("the duration (for) {}", format_duration(self.lifetime));
            return Err(RuleError::new(value, "must be more than 0s and at most 24h"));
        }
        if self.selector.selects_everything() && !all {
            let reason = "would select every container: select a namespace, a pod or a container, or permit it \
                          (--all, `all` in JSON)";
            return Err(RuleError::new("the selector", reason));
        }
        Ok(self)
    }
}

impl PausedProbe {
    /// Returns how an exec is treated that belongs to a probe of one of these types.
    #[must_use]
    pub fn for_types(probes: &[ProbeType], readiness: bool) -> Self {
        match probes {
            [] => Self::Executed,
            [ProbeType::Liveness] => Self::Success,
            [ProbeType::Readiness] if !readiness => Self::Executed,
            // Success would start liveness probes for good, or make a container ready. The same
            // holds for an exec that may belong to probes of several types.
            _ => Self::Discarded,
        }
    }
}

impl Pauses {
    /// Connects the pauses with the node. Until then, they affect no call.
    pub(super) fn connect(&self, node: &Arc<NodeView>) {
        // A second view would be of the same node.
        let _ = self.0.node.set(node.clone());
    }

    /// Begins a pause. `requester` is named in its event.
    pub fn begin(&self, pause: Pause, requester: &str) -> Result<PauseStatus, RuleError> {
        self.change(|active, last| {
            let Pause { name, selector, lifetime, readiness } = pause;
            let is_used = |name: &str| active.iter().any(|known| *known.name == *name);
            let name = match name {
                Some(name) if is_used(&name) => {
                    let reason = "is the name of an active pause: choose another, or resume that one first";
                    return Err(RuleError::new(format!("name {name:?}"), reason));
                }
                Some(name) => name,
                None => loop {
                    *last += 1;
                    let name = format!("pause-{last}");
                    if !is_used(&name) {
                        break name;
                    }
                },
            };
            if active.len() >= MAX_PAUSES {
                let reason = format!("would be more than {MAX_PAUSES} active ones");
                return Err(RuleError::new("the pauses", reason));
            }
            let expires = (Instant::now() + lifetime, SystemTime::now() + lifetime);
            let answered = AtomicU64::new(0);
            let started = ActivePause { name: name.into(), selector, readiness, expires, answered };
            self.record_begin(&started, lifetime, requester);
            let status = PauseStatus::from(&started);
            active.push(Arc::new(started));
            Ok(status)
        })
        .inspect(|_| self.0.began.notify_waiters())
    }

    /// Waits until a pause answers an `ExecSync`, and returns its response.
    pub(super) async fn answer(&self, info: &CallInfo, target: &Target, node: &NodeView) -> UnaryResponse {
        loop {
            let mut began = pin!(self.0.began.notified());
            // From here on, no signal is missed.
            began.as_mut().enable();
            if let Some(response) = self.response(info, target, node) {
                return response;
            }
            began.await;
        }
    }

    /// Ends the pauses with these names, or all if `names` is empty. Returns the ended ones; the
    /// error is a name without a pause, and ends none. `requester` is named in their events.
    pub fn resume(&self, names: &[String], requester: &str) -> Result<Vec<PauseStatus>, RuleError> {
        self.change(|active, _| {
            let known: Vec<&str> = active.iter().map(|known| &*known.name).collect();
            check_active(names, &known, "pause")?;
            Ok(self.end(active, |known| is_named(names, &known.name), requester))
        })
    }

    /// Returns the active pauses.
    #[must_use]
    pub fn list(&self) -> Vec<PauseStatus> {
        let now = Instant::now();
        let active = self.active();
        active.iter().filter(|pause| now < pause.expires.0).map(|pause| PauseStatus::from(&**pause)).collect()
    }

    /// Ends pauses at the end of their lifetimes, for ever.
    pub async fn expire(self) {
        let next = || self.active().iter().map(|pause| pause.expires.0).min();
        lifetime::expire(&self.0.changed, next, |now| {
            let Ok(_) = self.change(|active, _| {
                let is_over = |pause: &ActivePause| now >= pause.expires.0;
                Ok::<_, std::convert::Infallible>(self.end(active, is_over, "the end of its time"))
            });
        })
        .await;
    }

    /// Registers the metrics of the pauses.
    pub fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(registry);
    }

    /// Returns the name of the pause because of which a container is not killed.
    #[must_use]
    pub fn holding_kills(&self, sandbox: &Sandbox, container: &Container) -> Option<Arc<str>> {
        self.find(|pause| pause.selector.matches_container(sandbox, container))
            .map(|pause| pause.name.clone())
    }

    /// Returns the view of the node, once it is connected.
    pub(super) fn node(&self) -> Option<&NodeView> {
        self.0.node.get().map(Arc::as_ref)
    }

    /// Returns whether a pause includes the readiness probes of a container.
    pub(super) fn pauses_readiness(&self, sandbox: &Sandbox, container: &Container) -> bool {
        self.find(|pause| pause.readiness && pause.selector.matches_container(sandbox, container)).is_some()
    }

    /// Returns whether there are pauses.
    pub(super) fn is_active(&self) -> bool {
        self.0.has_pauses.load(Ordering::Relaxed)
    }

    /// Returns the response to an `ExecSync` that a pause answers; `None` if it is executed.
    pub(super) fn response(
        &self,
        info: &CallInfo,
        target: &Target,
        node: &NodeView,
    ) -> Option<UnaryResponse> {
        // Execs of the kubelet without a timeout are hooks.
        if !info.is_from_kubelet() || target.exec().is_none_or(|(_, timeout)| timeout <= 0) {
            return None;
        }
        let selects =
            |pause: &ActivePause| pause.selector.matches_names(target.names(), |key| target.label(key));
        let pause = self.find(|pause| pause.readiness && selects(pause)).or_else(|| self.find(selects))?;
        // The type of an unknown probe may be any.
        let probes = node.probes(target).unwrap_or_else(|| ProbeType::ALL.to_vec());
        let response = match PausedProbe::for_types(&probes, pause.readiness) {
            PausedProbe::Executed => return None,
            PausedProbe::Success => UnaryResponse::from_message(success()),
            PausedProbe::Discarded => UnaryResponse::from_status(&pause.status()),
        };
        pause.answered.fetch_add(1, Ordering::Relaxed);
        self.0.metrics.answered.inc();
        Some(response)
    }

    fn find(&self, condition: impl Fn(&ActivePause) -> bool) -> Option<Arc<ActivePause>> {
        if !self.is_active() {
            return None;
        }
        let now = Instant::now();
        self.active().iter().find(|pause| now < pause.expires.0 && condition(pause)).cloned()
    }

    fn record_begin(&self, pause: &ActivePause, lifetime: Duration, requester: &str) {
        let ActivePause { name, selector, readiness, .. } = pause;
        info!(name = &**name, %selector, requester, "pause began");
        let mut message = format!(
            "Pause {name} was requested by {requester}, and ends after {}: liveness and startup probes of {selector} \
             that are executed through probeshim do not fail, and probeshim kills none of its containers",
            format_duration(lifetime)
        );
        if *readiness {
            let _ = message.write_str("; readiness stays as it is");
        }
        self.record(Event::warning(reason::PAUSE_BEGAN, message));
    }

    /// Ends pauses, and returns them.
    fn end(
        &self,
        active: &mut Vec<Arc<ActivePause>>,
        condition: impl Fn(&ActivePause) -> bool,
        cause: &str,
    ) -> Vec<PauseStatus> {
        let ended: Vec<_> = active.extract_if(.., |known| condition(known)).collect();
        for pause in &ended {
            let (name, answered) = (&pause.name, pause.answered.load(Ordering::Relaxed));
            info!(name = &**name, answered, cause, "pause ended");
            let probes = if answered == 1 { "probe was" } else { "probes were" };
            let message = format!("Pause {name} was ended by {cause}. {answered} {probes} not executed");
            self.record(Event::normal(reason::PAUSE_ENDED, message));
        }
        ended.iter().map(|pause| PauseStatus::from(&**pause)).collect()
    }

    fn record(&self, event: Event) {
        if let Some(node) = self.0.node.get() {
            node.events.record(event);
        }
    }

    /// Changes the pauses. An error changes nothing.
    fn change<T, E>(
        &self,
        change: impl FnOnce(&mut Vec<Arc<ActivePause>>, &mut u64) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut last = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut active = self.active().to_vec();
        let result = change(&mut active, &mut last)?;
        self.0.metrics.set_active(active.len());
        self.0.has_pauses.store(!active.is_empty(), Ordering::Relaxed);
        *self.0.active.write().unwrap_or_else(PoisonError::into_inner) = active.into();
        self.0.changed.notify_one();
        Ok(result)
    }

    fn active(&self) -> Arc<[Arc<ActivePause>]> {
        self.0.active.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ActivePause {
    /// Returns the status of a probe whose result the kubelet must discard.
    fn status(&self) -> Status {
        Status::unavailable(format!(
            "the probe is paused by probeshim ({}); its result is unchanged",
            self.name
        ))
    }
}

/// Returns the response of a command that succeeded without output.
fn success() -> Bytes {
    framed_message(&v1::ExecSyncResponse::default().encode_to_vec())
}

impl From<&ActivePause> for PauseStatus {
    fn from(pause: &ActivePause) -> Self {
        Self {
            name: pause.name.to_string(),
            selector: pause.selector.clone(),
            readiness: pause.readiness,
            expires: pause.expires.1,
            answered: pause.answered.load(Ordering::Relaxed),
        }
    }
}
