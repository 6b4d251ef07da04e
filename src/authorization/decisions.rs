//! Cache of decisions by token. It holds digests instead of tokens.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::AccessDecision;

/// Maximum number of decisions. Further decisions replace those that expire first.
const MAX_DECISIONS: usize = 1024;

/// Decisions that are reused until they expire.
#[derive(Debug, Default)]
pub(super) struct DecisionCache {
    decisions: Mutex<HashMap<TokenDigest, CachedDecision>>,
}

type TokenDigest = [u8; 32];

#[derive(Debug)]
struct CachedDecision {
    decision: AccessDecision,
    expires: Instant,
}

impl DecisionCache {
    /// Returns the decision about a token, if there is one that has not expired.
    pub(super) fn get(&self, token: &str) -> Option<AccessDecision> {
        let decisions = self.lock();
        let cached = decisions.get(&digest(token)).filter(|cached| cached.expires > Instant::now())?;
        Some(cached.decision.clone())
    }

    pub(super) fn insert(&self, token: &str, decision: AccessDecision, ttl: Duration) {
        let now = Instant::now();
        let mut decisions = self.lock();
        if decisions.len() >= MAX_DECISIONS {
            decisions.retain(|_, cached| cached.expires > now);
        }
        if decisions.len() >= MAX_DECISIONS {
            let first = decisions.iter().min_by_key(|(_, cached)| cached.expires).map(|(digest, _)| *digest);
            first.and_then(|first| decisions.remove(&first));
        }
        decisions.insert(digest(token), CachedDecision { decision, expires: now + ttl });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenDigest, CachedDecision>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_decision_is_reused_until_it_expires() {
        let cache = DecisionCache::default();
        assert_eq!(cache.get("a"), None);
        cache.insert("a", AccessDecision::Allowed, Duration::from_secs(2));
        advance(Duration::from_millis(1999)).await;
        assert_eq!((cache.get("a"), cache.get("b")), (Some(AccessDecision::Allowed), None));
        advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_drops_the_decision_that_expires_first() {
        let cache = DecisionCache::default();
        cache.insert("short", AccessDecision::Unauthenticated, Duration::from_secs(30));
        for nth in 1..=MAX_DECISIONS {
            cache.insert(&nth.to_string(), AccessDecision::Allowed, Duration::from_secs(120));
        }
        assert_eq!(cache.get("short"), None);
        assert_eq!(cache.lock().len(), MAX_DECISIONS);
        assert_eq!(cache.get("1"), Some(AccessDecision::Allowed));
    }
}
