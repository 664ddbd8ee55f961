#!/bin/sh
# Rewrites requirements/*.txt: exact versions with hashes, no host names in them.
set -eu
cd "$(dirname "$0")/.."
if command -v uv >/dev/null 2>&1; then
    UV=uv
else # the lock is made with uv, which nothing else here needs
    [ -x build/lock/bin/uv ] || {
        python3 -m venv build/lock
        PIP_DISABLE_PIP_VERSION_CHECK=1 build/lock/bin/python -m pip install -qq uv
    }
    UV=build/lock/bin/uv
fi

compile() { # compile OUTPUT INPUTS...
    output=$1
    shift
    "$UV" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --custom-compile-command "make lock" --output-file "requirements/$output" "$@"
}

compile installer.txt requirements/installer.in
compile base.txt --extra blake3 pyproject.toml
compile demo.txt -c requirements/base.txt --extra blake3 pyproject.toml requirements/demo.in
compile dev.txt -c requirements/base.txt --extra blake3 --extra demo pyproject.toml requirements/demo.in requirements/dev.in
! grep -nE '[a-z]+://' requirements/*.txt || { echo "lock: an address got into the lock files" >&2; exit 1; }
