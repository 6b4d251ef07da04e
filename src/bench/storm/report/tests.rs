use super::*;
use crate::socket::SocketPath;

/// Returns a step of 100 calls, of which all but `failed` took this time.
fn step(rate: u32, failed: usize, latency_ms: u64) -> StormStep {
    let calls = StormCalls {
        latencies: vec![Duration::from_millis(latency_ms); 100 - failed],
        nonzero_exits: 0,
        failures: [("timeout".to_owned(), failed)].into(),
    };
    StormStep::new(rate, calls, Duration::from_secs(1), NodeCpu::default(), NodeCpu::default())
}

/// Returns the report of endpoints with these names and steps.
fn report(endpoints: Vec<(&str, Vec<StormStep>)>) -> StormReport {
    let endpoint = |name: &str| StormEndpoint {
        name: name.to_owned(),
        socket: SocketPath::parse("/run/runtime.sock").unwrap(),
        containers: vec!["c0ffee".to_owned()],
    };
    let spec = StormSpec {
        endpoints: endpoints.iter().map(|(name, _)| endpoint(name)).collect(),
        command: vec!["true".to_owned()],
        timeout_seconds: 1,
        concurrency: 200,
        warm_up: 5,
        rates: endpoints[0].1.iter().map(|step| step.rate).collect(),
        step_duration: Duration::from_secs(10),
        until_saturated: false,
    };
    let results = endpoints
        .into_iter()
        .zip(&spec.endpoints)
        .map(|((_, steps), endpoint)| StormResult::new(&spec, endpoint, endpoint.containers.clone(), steps));
    StormReport::new(&spec, NodeCpu::default(), results.collect())
}

fn saturation(steps: Vec<StormStep>) -> Option<Saturation> {
    report(vec![("only", steps)]).endpoints()[0].saturation.clone()
}

#[test]
fn a_storm_saturates_at_the_first_rate_with_too_few_served_or_too_slow_calls() {
    let at = |rate, reasons: &[SaturationReason]| Some(Saturation { rate, reasons: reasons.to_vec() });
    let (served, latency) = (SaturationReason::Served, SaturationReason::Latency);
    assert_eq!(saturation(vec![step(1, 0, 30), step(2, 1, 1000)]), None, "both limits are included");
    assert_eq!(saturation(vec![step(1, 0, 30), step(2, 2, 30), step(5, 50, 30)]), at(2, &[served]));
    assert_eq!(saturation(vec![step(1, 0, 1001), step(2, 2, 30)]), at(1, &[latency]));
    assert_eq!(saturation(vec![step(5, 2, 1001)]), at(5, &[served, latency]));
    assert_eq!(saturation(vec![step(5, 100, 0)]), at(5, &[served]), "no call is served");
    assert_eq!(saturation(Vec::new()), None);
}

#[test]
fn a_step_of_a_storm_has_percentiles_and_processor_time_per_served_call() {
    let calls = StormCalls {
        latencies: (1..=100).rev().map(Duration::from_millis).collect(),
        nonzero_exits: 3,
        failures: [("timeout".to_owned(), 4), ("UNAVAILABLE".to_owned(), 2)].into(),
    };
    let [cpu, idle_node] = [(3100, 1900), (20, 980)]
        .map(|(busy, idle)| NodeCpu { busy: Duration::from_millis(busy), idle: Duration::from_millis(idle) });
    let step = StormStep::new(50, calls, Duration::from_millis(2500), cpu, idle_node);
    assert_eq!((step.offered, step.served, step.failed, step.nonzero_exits), (106, 100, 6, 3));
    let failures: Vec<_> = step.failures.iter().map(|it| (it.kind.as_str(), it.count)).collect();
    assert_eq!(failures, [("UNAVAILABLE", 2), ("timeout", 4)]);
    let shown = [step.cpu_ms_per_served, step.p50_ms, step.p90_ms, step.p99_ms, step.max_ms]
        .map(|value| format!("{:.0}", value.unwrap()));
    assert_eq!(shown, ["30", "50", "90", "99", "100"]);
}

#[test]
fn a_step_of_a_storm_without_served_calls_has_no_latency() {
    let step = step(5, 100, 0);
    assert_eq!([step.cpu_percent, step.cpu_ms_per_served, step.p50_ms, step.p99_ms], [None; 4]);
}
/// Returns a step with these figures, in milliseconds.
fn measured(rate: u32, cpu: f64, p50: f64) -> StormStep {
    StormStep { cpu_ms_per_served: Some(cpu), p50_ms: Some(p50), ..step(rate, 0, 30) }
}

#[test]
fn endpoints_of_a_storm_are_compared_at_the_highest_rate_before_the_first_one_saturates() {
    let runtime = vec![measured(1, 90.0, 40.0), measured(50, 30.0, 40.0), step(100, 50, 900)];
    let report = report(vec![
        ("runtime", runtime),
        ("direct", vec![measured(1, 80.0, 8.0), measured(50, 3.0, 4.0), measured(100, 2.0, 4.0)]),
        ("slow", vec![measured(1, 180.0, 80.0), step(50, 2, 900)]),
        ("ended", vec![step(1, 50, 900)]),
    ]);
    let compared: Vec<_> = report.endpoints().iter().map(|it| it.comparison.clone()).collect();
    let direct = StormComparison { rate: 50, cpu_ratio: Some(0.1), p50_ratio: Some(0.1) };
    assert_eq!(compared, [None, Some(direct), None, None]);
    let rates: Vec<_> = report.endpoints().iter().map(StormResult::max_unsaturated_rate).collect();
    assert_eq!(rates, [Some(50), Some(100), Some(1), None]);
}

#[test]
fn an_endpoint_of_a_storm_is_not_compared_if_the_first_one_is_always_saturated() {
    let report = report(vec![("runtime", vec![step(1, 50, 900)]), ("direct", vec![step(1, 0, 30)])]);
    assert_eq!(report.endpoints()[1].comparison, None);
}

#[test]
fn processor_time_that_is_too_short_to_be_measured_has_no_ratio() {
    let report =
        report(vec![("runtime", vec![measured(1, 0.0, 40.0)]), ("direct", vec![measured(1, 1.0, 4.0)])]);
    let expected = StormComparison { rate: 1, cpu_ratio: None, p50_ratio: Some(0.1) };
    assert_eq!(report.endpoints()[1].comparison, Some(expected));
}

#[test]
fn the_maximum_of_served_calls_counts_until_the_last_call_has_ended() {
    let lasted = |seconds: f64, step: StormStep| StormStep { lasted_ms: seconds * 1e3, ..step };
    let report = report(vec![(
        "only",
        vec![lasted(9.0, step(10, 0, 30)), lasted(20.0, step(20, 0, 30)), lasted(8.0, step(50, 20, 30))],
    )]);
    assert_eq!(report.endpoints()[0].max_served_per_second.to_string(), "10");
}

#[test]
fn the_json_of_a_storm_has_the_fields_of_its_only_endpoint_or_a_list_of_endpoints() {
    let one = report(vec![("only", vec![step(1, 0, 30)])]);
    let json = serde_json::to_value(&one).unwrap();
    assert_eq!((&json["name"], &json["steps"][0]["rate"]), (&"only".into(), &1.into()));
    assert_eq!((&json["endpoint"], json.get("endpoints")), (&"unix:///run/runtime.sock".into(), None));
    assert_eq!(serde_json::from_value::<StormReport>(json).unwrap(), one);

    let two = report(vec![("a", vec![step(1, 0, 30)]), ("b", vec![step(1, 0, 30)])]);
    let json = serde_json::to_value(&two).unwrap();
    assert_eq!((&json["endpoints"][1]["name"], json.get("steps")), (&"b".into(), None));
    assert_eq!((&json["warmUp"], &json["endpoints"][1]["comparison"]["rate"]), (&5.into(), &1.into()));
    assert_eq!(serde_json::from_value::<StormReport>(json).unwrap(), two);
}
