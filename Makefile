# The tests and the demo need root for real containers; without it they do what can be done and say what is left out.

CARGO_BUILD_JOBS ?= 2
export CARGO_BUILD_JOBS

.PHONY: build demo test lint check bench fuzz

build:  ## the program, in target/release/probeshim
	cargo build --release

demo:  ## probeshim in front of the local containerd, or one of its own, and a pod driven by crictl
	@tests/tools/install
	cargo test --quiet --test demo

test:  ## every test, real runtime included
	@tests/run

lint:  ## format, clippy and docs, with warnings denied
	cargo fmt --check
	cargo clippy --all-targets -- --deny warnings
	cargo clippy --test demo -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --no-deps --document-private-items

check: lint test  ## what must be green before a change is done

bench:  ## latency, throughput and memory, beside a direct connection and socat
	@tests/tools/install
	cargo bench --bench relay

fuzz:  ## a minute of arbitrary bytes into the adapter for old clients; needs a nightly toolchain and cargo-fuzz
	cargo +nightly fuzz run legacy -- -max_total_time=60
