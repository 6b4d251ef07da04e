//! Commands without the runtime, where containers have AppArmor profiles and cgroups of systemd.

use fixtures::attributes::comparable;
use fixtures::image::{BUSYBOX, Image, Store};
use fixtures::machine::{program, tool};
use fixtures::need;
use fixtures::vm::Vm;
use serde_json::json;

use crate::payload::probed_pod;
use crate::{container, payload, pod};

#[test]
#[expect(clippy::print_stdout, reason = "shows the measurements")]
fn commands_are_the_same_without_the_runtime_and_cost_a_fraction() {
    let vm = need!(Vm::new());
    let busybox = need!(program("busybox", "busybox-static"));
    let attributes = std::fs::read(need!(tool("attributes-1")).join("attributes")).unwrap();
    let mut store = Store::new(&busybox);
    let image = Image { name: BUSYBOX, user: "", command: &["/bin/sh"] };
    store.add_with(image, &[("bin/attributes", &attributes)]);
    let payload = need!(payload::node(include_str!("direct.sh")))
        .images(&store)
        .file("pod.json", pod().to_string().as_bytes())
        .file("container.json", container().to_string().as_bytes())
        .file("manifests/probed.json", probed_pod().to_string().as_bytes());
    let outcome = vm.run(payload);
    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);
    for name in ["containerd-1.6-runc", "containerd-1.6-crun"] {
        let text = |file: &str| outcome.text(&format!("{name}/{file}"));
        assert_eq!(text("state"), "1 verified", "{name}");
        assert!(text("direct").contains("cri-containerd.apparmor.d (enforce)"), "{name}: {}", text("direct"));
        let comparable = |file| comparable(name, &text(file));
        assert_eq!(comparable("direct"), comparable("runtime"), "{name}");
        println!("{name}: {}\n{}", text("bench.json"), text("storm"));
    }
    let calls = outcome.json("calls.json");
    let direct = |call: &&serde_json::Value| call["policy"] == json!(["direct"]);
    let call = calls.as_array().unwrap().iter().find(direct).unwrap();
    assert_eq!(
        (&call["peer"]["program"], &call["exec"]["exitCode"]),
        (&json!("kubelet"), &json!(0)),
        "{call}"
    );
}
