#!/bin/bash
# Rounds of install, SIGKILL at a random moment, a way back or forward, and uninstall. After each round the node is as before.
. node/node.sh
. kubelet-unit.sh

RANDOM=$(cat seed)
start_containerd 2.2
install_kubelet since-1.34
tree >tree-before
perl poll-endpoint.pl "$runtime" >out/polled &
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

drop_in=/etc/systemd/system/kubelet.service.d/zz-probeshim.conf
repeat=(probeshim install --kubelet --yes --confirm 10m)
: >out/rounds
: >out/kills
first=$RANDOM
for round in $(seq "$(cat rounds)"); do
  # An interrupted installation is repeated, left to the timer, or undone at once, each in one of three rounds. Every second
  # removal keeps the state.
  way=$(((first + round) % 3))
  uninstall=(probeshim uninstall --yes)
  if [ $((RANDOM % 2)) = 0 ]; then uninstall+=(--purge); fi
  install=("${repeat[@]}")
  if [ $way = 1 ]; then install=(probeshim install --kubelet --confirm $((10 + RANDOM % 20))s); fi
  echo "round $round: ${install[*]}; way $way; ${uninstall[*]}" | tee -a out/log
  killed "${install[@]}"
  case $way in
  0)
    "${repeat[@]}" >>out/log 2>&1
    [ "$(kubelet_endpoint)" = unix:///run/probeshim/probeshim.sock ]
    wait_kubelet
    ;;
  1)
    wait_until [ ! -e $drop_in ]
    wait_endpoint "$runtime"
    ;;
  esac
  if [ $((RANDOM % 2)) = 0 ]; then killed "${uninstall[@]}"; fi
  "${uninstall[@]}" >>out/log 2>&1
  wait_endpoint "$runtime"
  # The state of calls and pods stays without --purge, but nothing of the installation.
  if [[ "${uninstall[*]}" != *--purge ]]; then
    echo "kept: $(ls -A /var/lib/probeshim 2>/dev/null | tr '\n' ' ' || true)" >>out/kept
    if ls -A /var/lib/probeshim 2>/dev/null | grep install; then
      echo "round $round: a record is left" >>out/rounds
    fi
    rm -rf /var/lib/probeshim
  fi
  tree >tree-after
  if diff tree-before tree-after >>out/log; then
    echo "round $round: identical" >>out/rounds
  else
    echo "round $round: different" >>out/rounds
  fi
done
kill "$poller"
wait "$poller" || true
