//! `bench exec --storm` on procrun.

use serde_json::{Value, json};

use super::until_shown;
use crate::procrun::{Runtime, shell};
use crate::program::{Answer, Place};

/// Offers calls to two containers at two rates. No call fails at any speed of the machine.
async fn storm(place: &Place, more: &[&str]) -> Answer {
    let flags = ["bench", "exec", "--storm", "--container", "main", "--container", "side"];
    let load = ["--rates", "1,4", "--duration-per-step", "1s", "--timeout", "600"];
    let mut command = place.asking(&[&flags[..], &load, more].concat());
    command.args(["--", "sh", "-c", "exit 3"]);
    Answer::to(command).await
}

/// Returns the number of recorded calls of each container, when all are recorded.
async fn recorded(place: &Place, all: usize) -> [usize; 2] {
    until_shown(place, &["calls", "--method", "ExecSync"], |calls| {
        let calls = calls.as_array().unwrap();
        let of = |name: &str| calls.iter().filter(|call| call["container"]["name"] == name).count();
        (calls.len() >= all).then(|| [of("main"), of("side")])
    })
    .await
}

#[tokio::test]
async fn a_storm_is_spread_over_containers_and_offered_to_the_relay_or_another_endpoint() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let main = runtime.runs("sleep 1000").await;
    let pod = runtime.run_pod("other").await;
    let side = runtime.create(("other", &pod), shell("side", "sleep 1000")).await.unwrap();
    runtime.start_container(&side).await.unwrap();
    let shim = place.start_watching(&[]).await;
    until_shown(&place, &["status"], |status| {
        let pods = status["pods"].as_array()?.iter();
        let running = pods.filter(|pod| pod["containers"][0]["state"] == "running");
        (running.count() == 2).then_some(())
    })
    .await;

    let report = storm(&place, &["-o", "json"]).await.json();
    assert_eq!(report["containers"], json!([main, side]));
    assert_eq!(report["endpoint"], format!("unix://{}", place.at("shim.sock").display()));
    assert_eq!((&report["timeoutMs"], &report["durationPerStepMs"]), (&json!(600_000), &json!(1000)));
    assert_eq!(report["saturation"], Value::Null);
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2);
    for (step, rate) in steps.iter().zip([1, 4]) {
        for count in ["rate", "offered", "served", "nonzeroExits"] {
            assert_eq!(step[count], rate, "{count}: {step:#}");
        }
        assert_eq!((&step["failed"], &step["failures"]), (&json!(0), &json!([])), "{step:#}");
        let percentiles = ["p50Ms", "p90Ms", "p99Ms", "maxMs"].map(|name| step[name].as_f64().unwrap());
        assert!(percentiles[0] > 0.0 && percentiles.is_sorted(), "{step:#}");
    }
    // Each container is called once before the first step.
    assert_eq!(recorded(&place, 7).await, [4, 3]);

    let endpoint = place.at("runtime.sock");
    let direct = storm(&place, &["--endpoint", endpoint.to_str().unwrap()]).await;
    assert_eq!(direct.code, Some(0), "{direct:?}");
    assert!(direct.stderr.contains("step 2 of 2: a rate of 4 per second for 1.00s"), "{direct:?}");
    assert!(direct.stdout.contains("5 of 5 commands exited with another code than 0"), "{direct:?}");
    let line = format!("unix://{} does not saturate up to a rate of 4 per second\n", endpoint.display());
    assert!(direct.stdout.ends_with(&line), "{direct:?}");
    assert_eq!(recorded(&place, 7).await, [4, 3], "direct calls are not recorded");

    for (arguments, error) in [
        (&["--rates", "2"][..], "the argument '--rates <LIST>' cannot be used multiple times"),
        (&["--container", "main"], "--container \"main\" and \"main\" are the same container"),
        (&["--calls", "7"], "'--storm' cannot be used with '--calls <N>'"),
    ] {
        let refused = storm(&place, arguments).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(error), "{refused:?}");
    }
    drop(shim);
    runtime.end().await;
}
