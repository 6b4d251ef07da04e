#!/bin/bash
# Runs the test of this suite that executes commands on a node in trouble.
. node/node.sh

for controller in memory pids; do grep -qw $controller /sys/fs/cgroup/cgroup.controllers; done
start_containerd 2.2
export DIRECT_LIMITS_RUNTIME=/run/containerd-2.2/containerd.sock
# The test starts probeshim.
export CARGO_BIN_EXE_probeshim=/payload/bin/probeshim
suite no_command_is_lost --nocapture 2>&1 | tee out/chaos
