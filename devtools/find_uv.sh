#!/bin/sh
# Prints the path of a uv that works; brings one into the user's cache when there is none.
set -eu
if uv --version >/dev/null 2>&1; then
    command -v uv
    exit 0
fi
home="${XDG_CACHE_HOME:-$HOME/.cache}/switchyard/uv"
if ! "$home/bin/uv" --version >/dev/null 2>&1; then
    python="${PYTHON:-python3}"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
        echo "Python 3.11 or newer is needed as $python: install it, or name one: make setup PYTHON=/path/to/python" >&2
        exit 1
    }
    mkdir -p "$home"
    pinned="$(dirname "$0")/uv.txt"
    # Debian's Python comes without pip, but its venv module contains one.
    "$python" -m pip --version >/dev/null 2>&1 || {
        venv="$(mktemp -d)"
        trap 'rm -rf "$venv"' EXIT
        "$python" -m venv "$venv" >/dev/null 2>&1 && python="$venv/bin/python"
    }
    "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$home" --require-hashes --only-binary :all: --requirement "$pinned" >&2 || {
        echo "uv could not be installed: install venv (Debian: apt-get install python3-venv), pip or uv itself" >&2
        exit 1
    }
fi
echo "$home/bin/uv"
