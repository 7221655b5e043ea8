# What the examples share. They need nothing but this repository after `make setup`; `router` is
# the program of the repository, and every router and broker that an example starts ends with it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
started=()

python=$root/.venv/bin/python
[[ -x $python ]] || python=python3
"$python" -c 'import attrs, structlog, trio' 2>/dev/null || {
    echo "the router's packages are missing here: make setup" >&2
    exit 2
}
export PYTHONPATH=$root

router() { "$python" -m router "$@"; }

step() { printf '\n%s\n' "-- $*"; }

# free_port: a TCP port of 127.0.0.1 that nobody listens on.
free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start NAME [FILE]: runs a router in the background and waits until it is ready. It runs on a copy
# of the file, because a router keeps its state beside it.
start() {
    local name=$1 file=${2:-$here/$1.yaml}
    mkdir -p "$work/$name"
    cp "$file" "$work/$name/router.yaml"
    : >"$work/$name.log" # that of its former life is not waited in
    "$python" -m router run "$work/$name/router.yaml" >"$work/$name.log" 2>&1 &
    started+=("$!")
    printf '%s' "$!" >"$work/$name.pid"
    wait_for "$name" router.ready
}

# wait_for NAME TEXT [TIMES]: waits until the log of NAME has TEXT.
wait_for() {
    local name=$1 text=$2 times=${3:-1}
    for _ in $(seq 900); do
        (($(grep -c "$text" "$work/$name.log") >= times)) && return
        kill -0 "$(cat "$work/$name.pid")" 2>/dev/null || break
        sleep 0.1
    done
    echo "$name: no $text in its log:" >&2
    tail -n 5 "$work/$name.log" >&2
    return 1
}

# stop NAME: lets a router finish what it has, and waits for its end.
stop() {
    local process
    process=$(cat "$work/$1.pid")
    kill "$process"
    wait "$process" || true
}

finish() {
    local process
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT
