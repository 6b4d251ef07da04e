# The tests need root for real containers; without it they do what can be done and say what is left out.

.PHONY: build static image demo test lint check conformance parity differential image-test vm-test cluster-test soak attack bench generate fuzz

# Suites that are not in cargo's set of "all targets", because each has a target here.
SUITES = conformance parity differential image vm cluster soak attack

# The program, in target/release/probeshim.
build:
	cargo build --release

# The program for an empty image: linked statically, in target/image/probeshim. It takes libc.a (Debian: libc6-dev, Fedora: glibc-static).
# On a node prefer `make build`: glibc loads the node's own modules to resolve host names, which suit the node's glibc alone.
static:
	cargo rustc --release --bin probeshim -- -C target-feature=+crt-static
	mkdir -p target/image
	cp target/release/probeshim target/image/probeshim

# The container image probeshim:latest, with docker or buildah.
image: static
	docker/build target/image/probeshim probeshim:latest

# Two pods on a runtime of plain processes, played through probeshim for half a minute. Needs neither root nor containerd.
demo:
	cargo run --release -- demo

# Every test, real runtime included.
test:
	@tests/run

# The most demanding clients and the other runtimes, directly and through the relay in turn: critest, a kubelet, CRI-O, older
# versions of containerd. About six minutes, and as long again the first time, to build them.
conformance:
	@tests/run conformance

# The container image as a privileged pod on a real containerd. Needs buildah, or docker with its daemon.
image-test:
	@tests/run image

# Ten minutes of fifty ExecSyncs a second on a real containerd that crashes in the middle: what probeshim takes, and that it stays so.
soak:
	@tests/tools/install
	cargo test --release --test soak -- --nocapture

# What one hostile client costs the others: latency and memory under each attack, beside the same attack on a runtime. About ten
# minutes. ATTACKS="held bomb" makes those alone that are named so; ATTACKS="--runs 1" makes each once instead of three times.
attack:
	cargo test --release --test attack -- $(ATTACKS)

# Format, clippy and docs, with warnings denied. The conformance tests and the fuzz target are in no set of "all targets".
lint:
	cargo fmt --all --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --workspace --all-targets -- --deny warnings
	cargo clippy $(addprefix --test ,$(SUITES)) -- --deny warnings
	cargo check --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --document-private-items

# What must be green before a change is done.
check: lint test

# Every row of Kubernetes' own end-to-end tests of probes on a real containerd, in dry-run, killed and played; its node tests of the life of
# containers, played; and handlers beside the kubelet's own code. About half an hour.
parity:
	@tests/run parity

# The same pods with a real kubelet and with `play`, one containerd each, watched from outside and compared; and a kubelet with itself, to
# know what is chance. About fifteen minutes.
differential:
	@tests/run differential

# Pods behind probeshim in a virtual machine, whose systemd, cgroup v2 and AppArmor this machine may lack. About two minutes, and
# as long again the first time, to make its disk.
vm-test:
	@tests/run vm

# A cluster of etcd, kube-apiserver, kube-scheduler, kube-controller-manager and a kubelet whose runtime is probeshim: a deployment that is
# probed, and upstream's own 46 tests of probes. About ten minutes, and some twenty more the first time, to build Kubernetes.
cluster-test:
	@tests/run cluster

# Latency, throughput and memory, beside a direct connection and socat. PARTS="pace memory" measures these alone.
bench:
	@tests/tools/install
	cargo bench --bench relay -- $(PARTS)

# The code in proto/generated, from the protocol definitions in proto.
generate:
	PROBESHIM_GENERATE=1 cargo test --test it the_generated_code_is_what_the_protocol_definitions_give

# A minute of arbitrary bytes into the adapter for old clients; needs a nightly toolchain and cargo-fuzz.
fuzz:
	cargo +nightly fuzz run authority_fix -- -max_total_time=60
