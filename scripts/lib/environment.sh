# Sourced by the scripts beside this folder: sets up the virtual environment
# and names it in $venv. It stands in .venv, or where DSPARK_VENV says, and is
# made with $PYTHON, or python3.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${DSPARK_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
stamp=$venv/.dspark-patches-stamp

say() {
    printf '%s\n' "$*" >&2
}

# What an installed environment depends on: the project's description, and the
# folder that the editable install points to.
wanted_stamp() {
    "$venv/bin/python" - "$root" <<'PYTHON'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
text = (root / "pyproject.toml").read_bytes() + str(root).encode()
print(hashlib.sha256(text).hexdigest())
PYTHON
}

set_up() {
    local python=${PYTHON:-python3}
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        say "error: $python is not Python 3.10 or newer"
        say "  next: name one, as in PYTHON=python3.11 $0"
        exit 3
    fi
    if [ ! -x "$venv/bin/pip" ]; then
        say "setting up $venv with $("$python" --version)"
        "$python" -m venv "$venv"
    fi
    if [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted_stamp)" ]; then
        return
    fi
    say "installing the project and its test environment into $venv"
    say "(pip brings torch; without a CPU build in reach that is the GPU build of 3 GB)"
    rm -f "$stamp"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --editable "$root[bench,cpu,dev]"
    # Last, so that an interrupted installation is done anew.
    wanted_stamp >"$stamp"
}

# Two scripts that start at once must not install into each other's hands.
with_lock() {
    mkdir -p "$venv"
    if command -v flock >/dev/null; then
        exec 9>"$venv/.dspark-patches-lock"
        flock 9
    fi
    "$@"
    exec 9>&-
}

with_lock set_up
