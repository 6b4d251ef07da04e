//! Compares a worker with a simple model.

use std::sync::Arc;
use std::sync::Mutex;

use serde_json::json;
use tokio::time::Instant;
use tonic::Status;

use super::fixture::*;

/// Returns the readiness after each period, for these thresholds. All attempts of a period have the
/// same result, which is `None` for an error. An attempt is repeated immediately when the container
/// becomes not ready, and in the first period, because a new container is not ready.
fn model(results: &[Option<bool>], success: usize, failure: usize) -> Vec<bool> {
    let (mut counted, mut held, mut ready, mut once_more) = (Vec::new(), false, Vec::new(), true);
    for result in results {
        loop {
            let again = std::mem::take(&mut once_more);
            if let Some(result) = result {
                counted.push(*result);
                let same = counted.iter().rev().take_while(|known| *known == result).count();
                if same >= if *result { success } else { failure } {
                    once_more = held && !*result;
                    held = *result;
                }
            }
            if !again && !once_more {
                break;
            }
        }
        ready.push(held);
    }
    ready
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    #[test]
    fn a_probe_worker_behaves_as_a_simple_model(
        results in proptest::collection::vec(proptest::option::weighted(0.8, proptest::bool::ANY), 1..28),
        success in 1_usize..4,
        failure in 1_usize..4,
        // In total less than the 60 s after which every pod is synced anyway.
        period in 1_u32..3,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let more = json!({"periodSeconds": period, "successThreshold": success, "failureThreshold": failure});
            let web = pod("web", "Always", &[("main", probes([probe(READINESS, more)]))]);
            let (played, begin) = (results.clone(), Arc::new(Mutex::new(Instant::now())));
            let period_start = begin.clone();
            let mut node = Node::settled(&[web], move |_| {
                let turn = period_start.lock().unwrap().elapsed().as_secs() / u64::from(period);
                match played.get(usize::try_from(turn).unwrap()).copied().flatten() {
                    Some(true) => succeed(),
                    Some(false) => fail(),
                    None => Err(Status::unavailable("no answer")),
                }
            })
            .await;
            node.run_pod("web");
            *begin.lock().unwrap() = Instant::now();
            let mut ready = Vec::new();
            for _ in &results {
                after(f64::from(period) / 2.0).await;
                ready.push(node.container_of("web/main").is_ready);
                after(f64::from(period) / 2.0).await;
            }
            assert_eq!(ready, model(&results, success, failure));
        });
    }
}
