//! Coalescing: calls with the same request, at the same time, share the response of one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::relay::UnaryResponse;

/// Name of the policy in the marks of calls.
pub(super) const COALESCE: &str = "coalesce";

/// The calls whose responses can be shared, by their requests. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Coalescer(Arc<Mutex<HashMap<Bytes, watch::Receiver<Shared>>>>);

/// The response of a leader, once there is one.
type Shared = Option<Arc<UnaryResponse>>;

/// The role of a call among those with the same request.
#[derive(Debug)]
pub(super) enum Role {
    /// The call is sent to the runtime.
    Leader(Leader),
    /// The call waits for the response of another.
    Follower(Follower),
}

/// A call whose response others may wait for. Those become leaders if it is dropped without a
/// response.
#[derive(Debug)]
pub(super) struct Leader {
    coalescer: Coalescer,
    request: Bytes,
    response: watch::Sender<Shared>,
}

/// A call that waits for the response of another.
#[derive(Debug)]
pub(super) struct Follower(watch::Receiver<Shared>);

impl Coalescer {
    /// Returns the role of a call with this request.
    pub(super) fn join(&self, request: &Bytes) -> Role {
        let mut calls = self.lock();
        if let Some(response) = calls.get(request) {
            return Role::Follower(Follower(response.clone()));
        }
        let (response, receiver) = watch::channel(None);
        calls.insert(request.clone(), receiver);
        Role::Leader(Leader { coalescer: self.clone(), request: request.clone(), response })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bytes, watch::Receiver<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leader {
    /// Gives the response to the followers.
    pub(super) fn share(self, response: &UnaryResponse) {
        // A call that arrives from now on is sent to the runtime.
        self.coalescer.lock().remove(&self.request);
        let shared = Some(Arc::new(response.clone()));
        self.response.send_replace(shared);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.response.borrow().is_none() {
            self.coalescer.lock().remove(&self.request);
        }
    }
}

impl Follower {
    /// Waits for the response; `None` if the other call ended without one.
    pub(super) async fn response(mut self) -> Option<Arc<UnaryResponse>> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(coalescer: &Coalescer, request: &Bytes) -> Follower {
        match coalescer.join(request) {
            Role::Follower(follower) => follower,
            Role::Leader(_) => panic!("no call with this request is in flight"),
        }
    }

    fn leader(coalescer: &Coalescer, request: &Bytes) -> Leader {
        match coalescer.join(request) {
            Role::Leader(leader) => leader,
            Role::Follower(_) => panic!("a call with this request is in flight"),
        }
    }

    #[tokio::test]
    async fn calls_with_the_same_request_share_one_response() {
        let (coalescer, request) = (Coalescer::default(), Bytes::from_static(b"probe"));
        let leading = leader(&coalescer, &request);
        let followers = [0; 2].map(|_| follower(&coalescer, &request));
        let other = leader(&coalescer, &Bytes::from_static(b"other"));
        let message = Bytes::from_static(b"\0\0\0\0\0");
        leading.share(&UnaryResponse::from_message(message.clone()));
        let next = leader(&coalescer, &request);
        for follower in followers {
            let response = follower.response().await.unwrap();
            assert_eq!((*response).clone().into_result().unwrap(), message);
        }
        drop((other, next));
        assert!(coalescer.lock().is_empty());
    }

    #[tokio::test]
    async fn a_follower_can_lead_after_a_leader_without_a_response() {
        let (coalescer, request) = (Coalescer::default(), Bytes::from_static(b"probe"));
        let leading = leader(&coalescer, &request);
        let following = follower(&coalescer, &request);
        drop(leading);
        assert!(following.response().await.is_none());
        drop(leader(&coalescer, &request));
    }
}
