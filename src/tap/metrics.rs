//! Metrics of calls.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::QueueItem;
use super::call::Call;

/// Upper bounds of the latency histogram, in seconds: from a Version call to an image pull.
const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Metric families of the tap.
#[derive(Clone, Debug)]
pub struct TapMetrics {
    calls: Family<CallLabels, Counter>,
    call_duration: Family<CallLabels, Histogram>,
    request_bytes: Family<MethodLabels, Counter>,
    response_bytes: Family<MethodLabels, Counter>,
    observations_dropped: Counter,
    partial_observations_dropped: Counter,
    internal_execs_dropped: Counter,
    decode_failures: Family<DecodeFailureLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecodeFailureLabels {
    reason: &'static str,
}

impl Default for TapMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            call_duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            request_bytes: Family::default(),
            response_bytes: Family::default(),
            observations_dropped: Counter::default(),
            partial_observations_dropped: Counter::default(),
            internal_execs_dropped: Counter::default(),
            decode_failures: Family::default(),
        }
    }
}

impl TapMetrics {
    /// Creates a sample of each family, because families without samples are not encoded.
    #[cfg(test)]
    pub(crate) fn create_samples(&self) {
        drop(self.calls.get_or_create(&CallLabels { method: "", code: "" }));
        drop(self.call_duration.get_or_create(&CallLabels { method: "", code: "" }));
        drop(self.request_bytes.get_or_create(&MethodLabels { method: "" }));
        drop(self.response_bytes.get_or_create(&MethodLabels { method: "" }));
        drop(self.decode_failures.get_or_create(&DecodeFailureLabels { reason: "" }));
    }

    /// Registers all families.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("calls", "Calls that ended", self.calls.clone());
        registry.register_with_unit(
            "call_duration",
            "Time from the request headers of a call to its end",
            Unit::Seconds,
            self.call_duration.clone(),
        );
        registry.register_with_unit(
            "request",
            "Request messages, with their gRPC frames",
            Unit::Bytes,
            self.request_bytes.clone(),
        );
        registry.register_with_unit(
            "response",
            "Response messages, with their gRPC frames",
            Unit::Bytes,
            self.response_bytes.clone(),
        );
        registry.register(
            "observations_dropped",
            "Calls that were forwarded but not observed, because the queue was full",
            self.observations_dropped.clone(),
        );
        registry.register(
            "partial_observations_dropped",
            "Requests of calls and messages of streams that were not observed, because the queue was full",
            self.partial_observations_dropped.clone(),
        );
        registry.register(
            "internal_execs_unobserved",
            "Internal ExecSyncs that are not among the calls, because there were too many",
            self.internal_execs_dropped.clone(),
        );
        registry.register(
            "messages_not_decoded",
            "Messages of watched calls that were forwarded but not decoded",
            self.decode_failures.clone(),
        );
    }

    /// Returns the number of calls that were not observed because the queue was full.
    #[must_use]
    pub fn observations_dropped(&self) -> u64 {
        self.observations_dropped.get()
    }

    /// Returns the number of internal ExecSyncs that are not among the calls.
    #[must_use]
    pub fn internal_execs_dropped(&self) -> u64 {
        self.internal_execs_dropped.get()
    }

    /// Counts calls as not observed.
    #[cfg(test)]
    pub(crate) fn drop_observations(&self, count: u64) {
        self.observations_dropped.inc_by(count);
    }

    pub(super) fn record_dropped(&self, item: &QueueItem) {
        if item.is_end() {
            self.observations_dropped.inc();
        } else {
            self.partial_observations_dropped.inc();
        }
    }

    /// Counts an internal ExecSync that did not enter the tap because there were too many.
    pub(super) fn record_internal_exec_dropped(&self) {
        self.internal_execs_dropped.inc();
    }

    pub(super) fn record_decode_failure(&self, reason: &'static str) {
        self.decode_failures.get_or_create(&DecodeFailureLabels { reason }).inc();
    }

    pub(super) fn record_call(&self, call: &Call) {
        let method = call.method.label();
        let labels = CallLabels { method, code: call.ending.label() };
        self.calls.get_or_create(&labels).inc();
        self.call_duration.get_or_create(&labels).observe(call.duration.as_secs_f64());
        self.request_bytes.get_or_create(&MethodLabels { method }).inc_by(call.request_bytes);
        self.response_bytes.get_or_create(&MethodLabels { method }).inc_by(call.response_bytes);
    }
}
