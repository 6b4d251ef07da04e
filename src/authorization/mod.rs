//! Permission of HTTP clients to read the metrics, which a Kubernetes API server grants:
//! `TokenReview` identifies the client by its bearer token, and `SubjectAccessReview` authorizes
//! it, as in the kubelet (`pkg/kubelet/server/auth.go`) and in kube-rbac-proxy.

mod decisions;

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::api_server::{ApiServer, ApiServerError};

use decisions::DecisionCache;

/// Path for which a client needs the permission `get`: the `nonResourceURL` of a cluster role.
pub const METRICS_PATH: &str = "/metrics";

/// Timeout of both reviews together.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of clients whose reviews are in flight. More clients wait.
const MAX_REVIEWS: usize = 8;

/// Time for which a permission is reused, as `authentication.webhook.cacheTTL` of the kubelet.
const ALLOWED_TTL: Duration = Duration::from_secs(120);

/// Time for which a refusal is reused, as `authorization.webhook.cacheUnauthorizedTTL` of the
/// kubelet.
const REFUSED_TTL: Duration = Duration::from_secs(30);

/// Decision about a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// The client may read the metrics.
    Allowed,
    /// The API server does not accept the token.
    Unauthenticated,
    /// The user of the token may not read the metrics.
    Forbidden {
        /// Name of the user.
        user: String,
    },
}

/// Decides about clients by their bearer tokens.
#[derive(Debug)]
pub struct TokenAuthorizer {
    api_server: ApiServer,
    decisions: DecisionCache,
    reviews: Semaphore,
}

impl TokenAuthorizer {
    /// Creates an authorizer that queries an API server.
    #[must_use]
    pub fn new(api_server: ApiServer) -> Self {
        Self { api_server, decisions: DecisionCache::default(), reviews: Semaphore::new(MAX_REVIEWS) }
    }

    /// Decides about the client with this token. Fails if the API server does not answer; this is
    /// not cached.
    pub async fn decide(&self, token: &str) -> Result<AccessDecision, ApiServerError> {
        if let Some(decision) = self.decisions.get(token) {
            return Ok(decision);
        }
        let _permit = self.reviews.acquire().await;
        // Another request with the same token may have been decided while this one waited.
        if let Some(decision) = self.decisions.get(token) {
            return Ok(decision);
        }
        let decision = timeout(REVIEW_TIMEOUT, self.review(token)).await;
        let decision = decision.map_err(|_| ApiServerError::TimedOut(REVIEW_TIMEOUT))??;
        let ttl = if decision == AccessDecision::Allowed { ALLOWED_TTL } else { REFUSED_TTL };
        self.decisions.insert(token, decision.clone(), ttl);
        Ok(decision)
    }

    async fn review(&self, token: &str) -> Result<AccessDecision, ApiServerError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let request = TokenReview { spec, ..TokenReview::default() };
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let status = self.api_server.create(path, &request).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(AccessDecision::Unauthenticated);
        };
        let name = user.username.clone().unwrap_or_default();
        let request = SubjectAccessReview { spec: access_spec(user), ..SubjectAccessReview::default() };
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let status = self.api_server.create(path, &request).await?.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(AccessDecision::Allowed);
        }
        Ok(AccessDecision::Forbidden { user: name })
    }
}

/// Returns the question whether a user may get the metrics.
fn access_spec(user: UserInfo) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(METRICS_PATH.to_owned()),
            verb: Some("get".to_owned()),
        }),
        resource_attributes: None,
    }
}
