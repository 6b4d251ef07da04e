#!/bin/bash
# Rounds of install, SIGKILL at a random moment, repeat or undo, and uninstall. After each round the node is as before.
. node/node.sh
. kubelet-unit.sh

RANDOM=$(cat seed)
start_containerd 2.2
install_kubelet since-1.34
tree >tree-before
perl poll-sockets.pl "$runtime" /run/probeshim/probeshim.sock >out/refused &
poller=$!

# killed COMMAND...: starts a command and kills it after a random time of at most eight seconds, in which most of its steps
# happen. A command that has ended before is not killed.
killed() {
  local pid
  "$@" </dev/null >>out/log 2>&1 &
  pid=$!
  sleep "$((RANDOM % 8)).$((RANDOM % 10))"
  if kill -KILL "$pid" 2>/dev/null; then echo "killed: $*" >>out/kills; fi
  wait "$pid" 2>/dev/null || true
}

install=(probeshim install --kubelet --yes --confirm 10m)
uninstall=(probeshim uninstall --yes --purge)
: >out/rounds
: >out/kills
for round in $(seq "$(cat rounds)"); do
  echo "round $round"
  killed "${install[@]}"
  # Every second interrupted installation is repeated, and the others are undone.
  if [ $((RANDOM % 2)) = 0 ]; then
    "${install[@]}" >>out/log 2>&1
    [ "$(kubelet_endpoint)" = unix:///run/probeshim/probeshim.sock ]
    wait_kubelet
  fi
  if [ $((RANDOM % 2)) = 0 ]; then killed "${uninstall[@]}"; fi
  "${uninstall[@]}" >>out/log 2>&1
  wait_kubelet
  [ "$(kubelet_endpoint)" = "unix://$runtime" ]
  tree >tree-after
  if diff tree-before tree-after >>out/log; then
    echo "round $round: identical" >>out/rounds
  else
    echo "round $round: different" >>out/rounds
  fi
done
kill "$poller"
wait "$poller" || true
