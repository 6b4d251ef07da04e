# Tests need root for real containers. Without root they skip such tests and list them.

.PHONY: audit deny build static reproducible image demo test quick lint check conformance parity differential equivalence play-test image-test ui-test vm-test chaos-install exec-chaos cluster-test diagnose soak attack bench generate pictures fuzz fuzz-corpus install uninstall

# Suites outside cargo's set of "all targets". Each has a target here.
SUITES = play conformance parity differential equivalence image ui vm cluster diagnose soak attack

# The program, in target/release/probeshim.
build:
	cargo build --release

# The program with its man pages and completions, below PREFIX. `make build` comes first, and needs no root. DESTDIR is prepended
# to all paths, for packages.
PREFIX ?= /usr/local
PROGRAM = target/release/probeshim
BINDIR = $(DESTDIR)$(PREFIX)/bin
MANDIR = $(DESTDIR)$(PREFIX)/share/man/man1
BASH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

install:
	@test -x $(PROGRAM) || { echo 'run `make build` first: $(PROGRAM) does not exist' >&2; exit 1; }
	install -d $(BINDIR) $(MANDIR) $(BASH_COMPLETIONS) $(ZSH_COMPLETIONS) $(FISH_COMPLETIONS)
	install -m 755 $(PROGRAM) $(BINDIR)/probeshim
	$(PROGRAM) man $(MANDIR)
	$(PROGRAM) completion bash > $(BASH_COMPLETIONS)/probeshim
	$(PROGRAM) completion zsh > $(ZSH_COMPLETIONS)/_probeshim
	$(PROGRAM) completion fish > $(FISH_COMPLETIONS)/probeshim.fish

uninstall:
	rm -f $(BINDIR)/probeshim $(MANDIR)/probeshim.1 $(MANDIR)/probeshim-*.1
	rm -f $(BASH_COMPLETIONS)/probeshim $(ZSH_COMPLETIONS)/_probeshim $(FISH_COMPLETIONS)/probeshim.fish

# Processor of `static`, `reproducible` and `image`: amd64 or arm64. Another than this machine's needs Rust's standard library and
# a C compiler for it; `make static ARCH=arm64` names what is missing.
HOST_ARCH := $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)
ARCH ?= $(HOST_ARCH)
SUFFIX = $(if $(filter-out $(HOST_ARCH),$(ARCH)),-$(ARCH))

# The program for an empty image: linked statically, in target/image/probeshim, or target/image-arm64/probeshim on another
# processor. It needs libc.a (Debian: libc6-dev, Fedora: glibc-static). On a node prefer `make build`: to resolve host names, glibc
# loads modules of the node, which fit only the node's own glibc.
static:
	docker/static $(ARCH) target/image$(SUFFIX)/probeshim

# Two builds of the static program, in different directories, must be equal. Prints their SHA-256. About a quarter of an hour.
reproducible:
	docker/reproducible $(ARCH)

# The container image probeshim:latest, with docker or buildah; probeshim:latest-arm64 for another processor.
image: static
	docker/build target/image$(SUFFIX)/probeshim probeshim:latest$(SUFFIX)

# Four pods on procrun, probeshim's runtime of plain processes, for 25 seconds. Needs neither root nor containerd. The debug
# build takes half the processor time of the release build.
demo:
	cargo run -- demo

# Everyday tests, real runtime included. About a quarter of an hour with warm caches. Longer suites have targets of their own.
test:
	@tests/run

# What a contributor runs between two edits: formatting, unit tests, names, prose and references. About two minutes, without root.
quick:
	cargo fmt --all --check
	cargo test --lib
	cargo test --test it -- generated:: layout:: names:: prose:: reference::

# critest, a kubelet, CRI-O and older versions of containerd, each directly and through the relay. About six minutes; the first
# time twice that, to build them.
conformance:
	@tests/run conformance

# `play` with all pods of tests/e2e/pods on a real containerd. About six minutes.
play-test:
	@tests/run play

# The container image as a privileged pod on a real containerd. Needs buildah or docker with its daemon.
image-test:
	@tests/run image

# The report and the web page in Debian's Chromium, on a desktop and a phone, light and dark: live kills, filters, the keyboard,
# hostile names, no requests to other hosts, no violations of axe's rules. Screenshots are in target/ui. Needs Node.js.
ui-test:
	@tests/run ui

# Fifty ExecSyncs per second for ten minutes on a real containerd that crashes halfway: probeshim's CPU and memory must not grow.
soak:
	@tests/tools/install
	cargo test --release --test soak -- --nocapture

# Latency and memory of other clients while one client attacks, compared with the same attack on the runtime. About ten minutes.
# ATTACKS="held bomb" selects attacks by name; ATTACKS="--runs 1" runs each once instead of three times.
attack:
	cargo test --release --test attack -- $(ATTACKS)

# Formatting, clippy and rustdoc, with warnings denied. Suites and the fuzz targets are not in cargo's set of "all targets".
lint:
	cargo fmt --all --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --workspace --all-targets -- --deny warnings
	cargo clippy $(addprefix --test ,$(SUITES)) -- --deny warnings
	cargo check --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --document-private-items

# Licences, sources and versions of dependencies (deny.toml). The first time builds cargo-deny, in about a minute.
deny:
	@tool=$$(tests/tools/build cargo-deny-0.20) && "$$tool/cargo-deny" --workspace --locked check bans licenses sources

# Dependencies with known vulnerabilities. Needs the network: the advisories are at https://github.com/rustsec/advisory-db.
audit:
	@tool=$$(tests/tools/build cargo-deny-0.20) || exit 1; \
	"$$tool/cargo-deny" --workspace --locked fetch db \
		|| { echo "make audit: nothing was checked, because the advisories could not be fetched. It needs the network." >&2; exit 1; }; \
	"$$tool/cargo-deny" --workspace --locked check advisories

# Must pass before each commit.
check: lint deny test

# Kubernetes' end-to-end probe tests on a real containerd in the modes dry-run, kill and play, its container lifecycle tests with
# play, and probe handlers compared with the kubelet's code. Upstream functions of docs/parity.md exist. About half an hour.
parity:
	@tests/run parity

# The same pods on a real kubelet and on `play`, one containerd each, observed from outside and compared; and two kubelets compared
# with each other, to measure chance. Exec probes of a kubelet with and without direct exec. About twenty minutes.
differential:
	@tests/run differential

# Pods behind probeshim in a virtual machine with systemd, cgroup v2 and AppArmor, installations, upgrades, and direct exec.
# About 25 minutes; the first time two more, to build its disk.
vm-test:
	@tests/run vm

# 50 rounds of install, SIGKILL at a random moment, repeat or undo, and uninstall, in the virtual machine. About half an hour.
# PROBESHIM_CHAOS_ROUNDS sets another number.
chaos-install:
	@PROBESHIM_CHAOS_ROUNDS=$${PROBESHIM_CHAOS_ROUNDS:-50} tests/run vm chaos -- --nocapture

# Commands in many kinds of containers, executed by probeshim and by runc on this machine, and by probeshim, runc and crun in the
# virtual machine. About an hour.
equivalence:
	@tests/run equivalence

# Direct exec while its helper is killed, containers are paused, and their init processes are killed: about ten minutes.
exec-chaos:
	@PROBESHIM_CHAOS_EXECS=$${PROBESHIM_CHAOS_EXECS:-9000} tests/run --test e2e direct_chaos -- --nocapture

# A cluster of etcd, kube-apiserver, kube-scheduler, kube-controller-manager and a kubelet behind probeshim: a deployment with
# probes, pods that refer to objects beside `play`, and upstream's 46 probe tests. About ten minutes; the first time thirty, to build Kubernetes.
cluster-test:
	@tests/run cluster

# Incidents with a known cause behind a real kubelet, on containerd 2.2 and 1.6: what `explain`, `lint` and `describe` must say and
# must not say. Prints a score. About seven minutes. DIAGNOSE_INCIDENTS="kills frozen" selects incidents by name,
# DIAGNOSE_CONTAINERD=2.2 a version, and DIAGNOSE_ANSWERS=1 shows all answers.
diagnose:
	@tests/run diagnose -- --nocapture

# Latency, throughput and memory, compared with a direct connection and socat. PARTS="pace memory" selects parts.
bench:
	@tests/tools/install
	cargo bench --bench relay -- $(PARTS)

# Generates proto/generated from the protocol definitions in proto, docs/reference from the program, and the totals of docs/parity.md.
generate:
	PROBESHIM_GENERATE=1 cargo test --test it -- generated:: reference::
	PROBESHIM_GENERATE=1 cargo test --lib metric_reference

# The pictures of the README, in docs/images, from a demo that runs for six minutes. Needs Node.js.
pictures: build
	@tests/tools/install ui
	@tools=$$(tests/tools/build puppeteer-24) && node docs/images/render.cjs "$$tools" $(PROGRAM) "$$(command -v chromium)" docs/images

# Arbitrary bytes into each reader of input that another user, a container or another machine can send. Each target runs for
# SECONDS; TARGETS="rules manifests" selects some. Needs a nightly toolchain and cargo-fuzz. `make test` runs the inputs in
# fuzz/corpus.
SECONDS = 60
TARGETS =

fuzz:
	@fuzz/run $(SECONDS) $(TARGETS)

# Adds inputs that `make fuzz` has found to fuzz/corpus.
fuzz-corpus:
	@fuzz/run minimize $(TARGETS)
