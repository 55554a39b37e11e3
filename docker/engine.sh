# shellcheck shell=bash disable=SC2154,SC2034 # Variables go to and come from ./dev.
# A Docker engine of our own, where one is installed but not running; part of ./dev. Needs root. Expects `data` (the data
# folder, where images and layers are kept), `root` (of the repository), `say` and `has_program`.

# Short, because paths of sockets are; one per data folder.
engine=/run/omgservers-$(printf %s "$data" | cksum | cut -d' ' -f1)

engine_answers() { curl -fs --max-time 3 --unix-socket "$1" http://docker/_ping >/dev/null 2>&1; }

# Sets `host` for omgctl: the machine's engine if it answers, else one of our own, else processes.
start_docker() {
  host=auto
  [ "$(cat "$data/host" 2>/dev/null)" != process ] || return 0 # It was begun that way, and stays.
  if engine_answers /var/run/docker.sock || [ "$(id -u)" != 0 ] || ! has_program dockerd; then return; fi
  if ! engine_answers "$engine/docker.sock"; then
    say "starting a Docker engine"
    mkdir -p "$engine" "$data/docker"
    rm -rf "${engine:?}"/* # What a killed one left makes the next one wait for it.
    [ -e /sys/class/net/docker0 ] || { iptables -S FORWARD 2>/dev/null || true; } | sed -n 1p >"$engine/forwarding"
    local options=(--data-root "$data/docker" --exec-root "$engine/exec" --pidfile "$engine/docker.pid"
      --config-file "$engine/daemon.json" -H "unix://$engine/docker.sock" --log-level warn)
    echo '{}' >"$engine/daemon.json"
    if ! sh -c 'echo -1 >/proc/self/oom_score_adj' 2>/dev/null; then
      options+=(--add-runtime "adapted=$root/docker/runtime" --default-runtime adapted)
    fi
    PATH=$PATH:/usr/sbin:/sbin setsid dockerd "${options[@]}" >"$data/docker.log" 2>&1 </dev/null &
    local wait
    for ((wait = 0; wait < 300; wait++)); do
      engine_answers "$engine/docker.sock" && break
      kill -0 $! 2>/dev/null || break
      sleep 0.1
    done
    if ! engine_answers "$engine/docker.sock"; then
      stop_docker
      say "no Docker engine can run here ($data/docker.log says why): games run as processes"
      return
    fi
  fi
  host=unix://$engine/docker.sock
}

# Everything in it is ours: the containers, the bridges, the engine. `up` and `down` may both come here at once.
stop_docker() {
  [ -d "$engine" ] || return 0
  # Another `up` works in the data folder, and with this engine.
  [ ! -e "$data/up.lock" ] || flock -n "$data/up.lock" true || return 0
  (
    flock 9
    end_engine
    rm -rf "${engine:?}"
  ) 9>"$engine.lock"
  rm -f "$engine.lock"
}

end_engine() {
  local pid id wait client=(timeout 30 docker -H "unix://$engine/docker.sock")
  pid=$(cat "$engine/docker.pid" 2>/dev/null) || pid=none
  if grep -qzF -- "$engine/docker.pid" "/proc/$pid/cmdline" 2>/dev/null; then
    for id in $("${client[@]}" ps -aq 2>/dev/null); do "${client[@]}" rm -f "$id" >/dev/null || true; done
    "${client[@]}" network prune -f >/dev/null || true
    kill "$pid"
    for ((wait = 0; wait < 300; wait++)); do
      [ -d "/proc/$pid" ] || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  if [ -s "$engine/forwarding" ]; then # The bridge is ours, and the engine has forbidden everybody else's forwarding.
    ip link del docker0 2>/dev/null || true
    xargs iptables <"$engine/forwarding" || true
  fi
}
