#!/bin/bash
# Compares commands that probeshim and the runtime execute, with the test of the matrix, on runc and on crun.
. node/node.sh

mkdir sealed
for runtime in runc crun; do
  perl seal.pl "$(command -v $runtime)" "sealed/$runtime" &
  wait_until [ -e "sealed/$runtime" ]
done
apparmor_parser --add apparmor
cat handlers.toml >>"$node/containerd.toml"
start_containerd 2.2
export EQUIVALENCE_RUNTIME=/run/containerd-2.2/containerd.sock
# The test starts probeshim.
export CARGO_BIN_EXE_probeshim=/payload/bin/probeshim
if [ -s kinds ]; then
  EQUIVALENCE_KINDS=$(cat kinds)
  export EQUIVALENCE_KINDS
fi

# compare RUNTIME: compares all kinds of containers on an OCI runtime.
compare() {
  EQUIVALENCE_HANDLER=matrix-$1 equivalence --exact a_command_is_the_same_with_and_without_the_runtime --nocapture 2>&1 \
    | tee "out/$1" | sed "s/^/$1: /"
}

# At the same time, because each leaves one of the two processors idle.
compare runc &
runc=$!
compare crun &
crun=$!
status=0
wait "$runc" || status=1
wait "$crun" || status=1
exit $status
