//! `bench exec --storm` on procrun.

use serde_json::{Value, json};

use super::until_shown;
use crate::procrun::{Runtime, shell};
use crate::program::{Answer, Place, Running};

/// Offers calls to two containers at two rates.
async fn storm(place: &Place, more: &[&str]) -> Answer {
    let containers = ["--container", "main", "--container", "side", "--warm-up", "1"];
    offer(place, "1,4", &[&containers[..], more].concat()).await
}

/// Offers calls at these rates, for one second each. No call fails at any speed of the machine.
async fn offer(place: &Place, rates: &str, more: &[&str]) -> Answer {
    let flags = ["bench", "exec", "--storm", "--duration-per-step", "1s", "--timeout", "600"];
    let mut command = place.asking(&[&flags[..], &["--rates", rates], more].concat());
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

/// Starts a probeshim with these flags, and procrun with the containers `main` and `side`. Returns
/// the ids of the containers.
async fn two_containers(place: &Place, flags: &[&str]) -> (Runtime, Running, [String; 2]) {
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let main = runtime.runs("sleep 1000").await;
    let pod = runtime.run_pod("other").await;
    let side = runtime.create(("other", &pod), shell("side", "sleep 1000")).await.unwrap();
    runtime.start_container(&side).await.unwrap();
    let shim = place.start_watching(flags).await;
    until_shown(place, &["status"], |status| {
        let pods = status["pods"].as_array()?.iter();
        let running = pods.filter(|pod| pod["containers"][0]["state"] == "running");
        (running.count() == 2).then_some(())
    })
    .await;
    (runtime, shim, [main, side])
}

#[tokio::test]
async fn a_storm_is_spread_over_containers_and_offered_to_the_relay_or_another_endpoint() {
    let place = Place::new();
    let (runtime, shim, [main, side]) = two_containers(&place, &[]).await;
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
    // Each container is called once before the first step, as `--warm-up` says.
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

#[tokio::test]
async fn endpoints_of_a_storm_take_turns_in_each_step_and_are_compared() {
    let place = Place::new();
    let (runtime, shim, [main, side]) = two_containers(&place, &[]).await;
    let uri = |name: &str, socket: &str| format!("{name}=unix://{}", place.at(socket).display());
    let (direct, relay) = (uri("runtime", "runtime.sock"), uri("relay", "shim.sock"));
    let endpoints = ["--endpoint", &direct, "--endpoint", &relay, "--container", "main"];
    let arguments = [&endpoints[..], &["--container", "relay=side", "-o", "json"]].concat();
    let answer = offer(&place, "1,4", &arguments).await;
    let steps: Vec<&str> =
        answer.stderr.lines().filter_map(|line| line.strip_suffix(" per second for 1.00s")).collect();
    let expected = [
        "1 of 2, runtime: a rate of 1",
        "1 of 2, relay: a rate of 1",
        "2 of 2, runtime: a rate of 4",
        "2 of 2, relay: a rate of 4",
    ];
    assert_eq!(steps, expected.map(|step| format!("step {step}")), "{answer:?}");
    let report = answer.json();
    assert_eq!((&report["warmUp"], report.get("steps")), (&json!(5), None));
    let results = report["endpoints"].as_array().unwrap();
    let containers = results.iter().map(|result| (&result["name"], &result["containers"]));
    let expected = [(&json!("runtime"), &json!([main])), (&json!("relay"), &json!([main, side]))];
    assert_eq!(containers.collect::<Vec<_>>(), expected);
    for result in results {
        let served: Vec<_> = result["steps"].as_array().unwrap().iter().map(|step| &step["served"]).collect();
        assert_eq!(served, [1, 4], "{result:#}");
        assert_eq!(result["saturation"], Value::Null);
    }
    assert_eq!(results[0]["comparison"], Value::Null);
    assert_eq!(results[1]["comparison"]["rate"], 4);
    assert!(results[1]["comparison"]["p50Ratio"].as_f64().unwrap() > 0.0, "{report:#}");
    // The calls to the runtime are not recorded: five to each container, and those of the steps.
    assert_eq!(recorded(&place, 15).await, [8, 7]);

    let shown = offer(&place, "1,4", &endpoints).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("\nrelay: 5 of 5 commands exited with another code than 0\n"), "{shown:?}");
    assert!(
        shown.stdout.contains("\n\nCompared with runtime at a rate of 4 per second:\n  relay: "),
        "{shown:?}"
    );

    let (missing, unknown) = (uri("gone", "gone.sock"), "relay=0123456789abcdef");
    for (arguments, code, error) in [
        (&["--endpoint", "relay=/a", "--container", "main"][..], 2, "must have another name than relay"),
        (
            &["--endpoint", &missing, "--container", "main"],
            1,
            "endpoint gone: the endpoint cannot be reached: unix://",
        ),
        (
            &["--container", "main", "--container", unknown],
            1,
            "endpoint relay: the runtime returned an error: ",
        ),
        (
            &["--container", "relay=mian", "--container", "mian"],
            2,
            "--container \"mian\" not found, did you mean \"main\"?",
        ),
        (&["--container", "relay=main"], 2, "endpoint runtime has no container"),
    ] {
        let refused = offer(&place, "1,4", &[&endpoints[..4], arguments].concat()).await;
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.stderr.contains(error), "{arguments:?}: {refused:?}");
        assert!(!refused.stderr.contains("step 1"), "{refused:?}");
    }
    drop(shim);
    runtime.end().await;
}

#[tokio::test]
async fn a_storm_until_saturation_offers_nothing_more_to_an_endpoint_that_is_saturated() {
    let place = Place::new();
    // The first call is the one before the first step.
    let fault = "ExecSync container=main after=2: abort(UNAVAILABLE, broken)";
    let (runtime, shim, _) = two_containers(&place, &["--fault", fault]).await;
    let uri = |name: &str, socket: &str| format!("{name}=unix://{}", place.at(socket).display());
    let (fails, works) = (uri("fails", "shim.sock"), uri("works", "runtime.sock"));
    let endpoints = ["--endpoint", &fails, "--endpoint", &works, "--container", "main"];
    let more = ["--warm-up", "1", "-o", "json", "--until-saturated"];
    let report = offer(&place, "1,2,4", &[&endpoints[..], &more].concat()).await.json();
    let steps = report["endpoints"].as_array().unwrap().iter().map(|endpoint| {
        let steps = endpoint["steps"].as_array().unwrap().iter();
        steps.map(|step| (step["rate"].as_u64().unwrap(), step["served"].as_u64().unwrap())).collect()
    });
    let steps: Vec<Vec<_>> = steps.collect();
    assert_eq!(steps, [vec![(1, 1), (2, 0)], vec![(1, 1), (2, 2), (4, 4)]]);
    let [fails, works] = [0, 1].map(|index| &report["endpoints"][index]);
    assert_eq!(fails["saturation"], json!({"rate": 2, "reasons": ["served"]}));
    assert_eq!(fails["steps"][1]["failures"], json!([{"kind": "UNAVAILABLE", "count": 2}]));
    assert_eq!((&works["saturation"], &works["comparison"]["rate"]), (&Value::Null, &json!(1)));
    drop(shim);
    runtime.end().await;
}
