//! Admission of an `ExecSync` to the runtime: coalescing, limits, and its execution without the
//! runtime.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;

use super::coalesce::{COALESCE, Coalescer, Leader, Role};
use super::direct::{DirectCall, DirectPolicy};
use super::limit::ExecLimiter;
use super::metrics::ExecMetrics;
use super::node_view::NodeView;
use super::pause::{PAUSE, Pauses};
use super::target::Target;
use crate::cri::Code;
use crate::relay::{CallInfo, Decision, Interception, Interceptor, MarkSet, ResponseSink, UnaryResponse};

/// The policies of an `ExecSync`, as far as they are in effect.
#[derive(Debug)]
pub(super) struct ExecPolicies {
    pub(super) pauses: Option<Pauses>,
    pub(super) limiter: Option<ExecLimiter>,
    pub(super) coalescer: Option<Coalescer>,
    pub(super) direct: Option<DirectPolicy>,
    pub(super) metrics: ExecMetrics,
}

/// Admits an `ExecSync` to the runtime.
#[derive(Debug)]
pub(super) struct ExecAdmission {
    limiter: Option<ExecLimiter>,
    /// The calls with which this one may share a response, and its request's message with the gRPC
    /// frame.
    coalescing: Option<(Coalescer, Bytes)>,
    /// The call, if it may run without the runtime.
    direct: Option<DirectCall>,
    /// The call, if a pause may answer it.
    paused: Option<PausableCall>,
    metrics: ExecMetrics,
    /// Id of the container.
    container: Arc<str>,
    /// Whether the call is refused, and does not wait, if limits are so configured.
    may_be_refused: bool,
}

/// A call that a pause may answer.
#[derive(Debug)]
struct PausableCall {
    pauses: Pauses,
    info: Arc<CallInfo>,
    target: Target,
    node: Arc<NodeView>,
}

impl PausableCall {
    /// Waits for a pause that answers the call, and returns its response.
    async fn response(&self) -> UnaryResponse {
        self.pauses.answer(&self.info, &self.target, &self.node).await
    }
}

impl ExecPolicies {
    /// Returns whether a policy must know the container of the call.
    pub(super) fn needs_object(&self) -> bool {
        self.pauses.is_some() || self.coalescer.is_some() || self.direct.is_some()
    }

    /// Returns the admission of a call; `None` if it needs none. Without the message of the
    /// request, the call is not coalesced. `unchanged`: no fault changes its request or response.
    /// Otherwise it is neither coalesced nor executed without the runtime.
    pub(super) fn admission(
        self,
        request: Option<Bytes>,
        target: Target,
        node: Option<Arc<NodeView>>,
        info: Arc<CallInfo>,
        unchanged: bool,
    ) -> Option<ExecAdmission> {
        let Self { pauses, limiter, coalescer, direct, metrics } = self;
        let is_probe = || node.as_ref().is_some_and(|node| node.is_configured_probe(&target));
        let coalescing = coalescer.zip(request).filter(|_| unchanged && is_probe());
        let direct = direct.filter(|_| unchanged).and_then(|direct| direct.call(&target, is_probe));
        if limiter.is_none() && coalescing.is_none() && direct.is_none() {
            return None;
        }
        let container = target.container_id().unwrap_or_default().into();
        // Hooks have no timeout. A refused one would end its container, or be skipped.
        let may_be_refused = target.exec().is_none_or(|(_, timeout)| timeout > 0);
        let paused = pauses.zip(node).map(|(pauses, node)| PausableCall { pauses, info, target, node });
        Some(ExecAdmission { limiter, coalescing, direct, paused, metrics, container, may_be_refused })
    }
}

impl Interceptor for ExecAdmission {
    fn decide(self: Box<Self>, _: Option<Bytes>, marks: &MarkSet) -> Decision<'_> {
        Box::pin(async move { self.interception(marks).await })
    }
}

impl ExecAdmission {
    async fn interception(mut self, marks: &MarkSet) -> Interception {
        let direct = self.direct.take();
        let paused = async {
            match &self.paused {
                Some(call) => call.response().await,
                None => pending().await,
            }
        };
        let response = tokio::select! {
            // A call that is paused and admitted at the same time is not sent.
            biased;
            response = paused => response,
            admitted = self.admitted(marks) => {
                let is_answered = !admitted.before.is_empty();
                return match direct.filter(|_| !is_answered) {
                    Some(direct) => executed(direct, admitted, marks).await,
                    None => admitted,
                };
            }
        };
        marks.add_policy(PAUSE);
        Interception::respond(response)
    }

    /// Waits until the call is admitted, or answered.
    async fn admitted(&self, marks: &MarkSet) -> Interception {
        let leader = match &self.coalescing {
            Some((coalescer, request)) => match self.response_of_leader(coalescer, request, marks).await {
                Ok(response) => return Interception::respond(response),
                Err(leader) => Some(leader),
            },
            None => None,
        };
        let mut call = Interception::default();
        if let Some(limiter) = &self.limiter {
            match limiter.acquire(&self.container, self.may_be_refused, marks).await {
                Ok(permit) => call.guard = Some(Box::new(permit)),
                Err(status) => return Interception::respond(UnaryResponse::from_status(&status)),
            }
        }
        call.share = leader.map(|leader| {
            let share = move |response: &UnaryResponse| {
                // A follower that came later has more time than the leader had.
                if !matches!(response.code(), Some(Code::CANCELLED | Code::DEADLINE_EXCEEDED)) {
                    leader.share(response);
                }
            };
            Box::new(share) as ResponseSink
        });
        call
    }

    /// Returns the response of the call that has the same request and is in flight. The error is
    /// the role of a call that is sent to the runtime.
    async fn response_of_leader(
        &self,
        coalescer: &Coalescer,
        request: &Bytes,
        marks: &MarkSet,
    ) -> Result<UnaryResponse, Leader> {
        loop {
            let follower = match coalescer.join(request) {
                Role::Leader(leader) => return Err(leader),
                Role::Follower(follower) => follower,
            };
            marks.add_policy(COALESCE);
            // Another call may have ended without a response, because its client gave up.
            let waiting = self.metrics.wait_for_response();
            let response = follower.response().await;
            drop(waiting);
            if let Some(response) = response {
                self.metrics.coalesced.inc();
                return Ok((*response).clone());
            }
        }
    }
}

/// Executes an admitted call without the runtime. Returns the call as it was admitted if nothing
/// was executed.
async fn executed(direct: DirectCall, mut admitted: Interception, marks: &MarkSet) -> Interception {
    match direct.execute(marks).await {
        Ok(response) => {
            if let Some(share) = admitted.share.take() {
                share(&response);
            }
            Interception::respond(response)
        }
        Err(recording) => {
            let permit = admitted.guard.take();
            Interception { guard: Some(Box::new((permit, recording))), ..admitted }
        }
    }
}
