#!/bin/sh
# Makes this machine ready: system packages, then .venv with the packages of one lock file.
#
#   sh scripts/setup.sh demo    what running the product and its demo needs
#   sh scripts/setup.sh dev     that and the tools of tests and checks
#   sh scripts/setup.sh demo slurm postgresql    what a cluster and a database server of its own need as well
#
# Says what is missing and how to get it; as root on Debian or Ubuntu it installs it. Does nothing when all
# is in place. PYTHON=... picks an interpreter.
set -eu

SET=${1:?usage: setup.sh demo|dev [slurm] [postgresql]}
shift
cd "$(dirname "$0")/.."
VENV=.venv
LOCK=requirements/$SET.txt
[ -f "$LOCK" ] || { echo "setup: there is no $LOCK" >&2; exit 2; }

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

suitable() { # an interpreter that is new enough and can make virtual environments
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}
can_make_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() { # prints the first suitable interpreter; those that lack venv only when there is no other
    second=
    for name in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3}; do
        found=$(command -v "$name" 2>/dev/null) || continue
        suitable "$found" || continue
        if can_make_venv "$found"; then echo "$found"; return; fi
        second=${second:-$found}
    done
    echo "$second"
}

# -- system packages -----------------------------------------------------------------------------------
missing=
PYTHON_FOUND=$(find_python)
if [ -z "$PYTHON_FOUND" ]; then
    old=$("${PYTHON:-python3}" --version 2>/dev/null) || old="no ${PYTHON:-python3}"
    say "needs Python 3.11 or newer; found: $old"
    missing="python3 python3-venv"
elif ! can_make_venv "$PYTHON_FOUND"; then
    version=$("$PYTHON_FOUND" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "$PYTHON_FOUND cannot make virtual environments: its venv package is missing"
    [ "$PYTHON_FOUND" = /usr/bin/python3 ] && missing="python3-venv" || missing="python$version-venv"
fi
command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"   # the sandbox that workloads run in
has() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }
has sshd || missing="$missing openssh-server"   # inside instances, one for each connection
has ssh || missing="$missing openssh-client"
has pasta || missing="$missing passt"           # the network of instances

SLURM_PACKAGES="slurmctld slurmd slurm-client slurmrestd munge slurm-wlm-basic-plugins slurm-wlm-jwt-plugin libjwt0"
for part in "$@"; do
    case $part in
    postgresql) ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql" ;;
    slurm)
        for program in slurmctld slurmd slurmrestd munged sinfo; do
            PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null 2>&1 || missing="$missing $SLURM_PACKAGES"
        done ;;
    sqlite | local) ;;
    *) die "there is no part $part; there are local, slurm, sqlite, postgresql" ;;
    esac
done

install_missing() {
    export DEBIAN_FRONTEND=noninteractive
    if ! has sshd && [ ! -e /etc/ssh/sshd_not_to_be_run ]; then # for instances; this machine gets no service by it
        mkdir -p /etc/ssh && : > /etc/ssh/sshd_not_to_be_run
        say "openssh-server comes without its service; to have it, remove /etc/ssh/sshd_not_to_be_run"
    fi
    if [ ! -d /etc/postgresql-common ]; then # no server of its own beside ours
        mkdir -p /etc/postgresql-common/createcluster.d
        echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/no-main-cluster.conf
    fi
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -y -q --no-install-recommends $missing >&2 && return
    say "refreshing the package lists first"
    apt-get update -q >&2
    # shellcheck disable=SC2086
    apt-get install -y -q --no-install-recommends $missing >&2
}

missing=$(echo $missing) # one space between words, none around
if [ -n "$missing" ]; then
    say "missing system packages: $missing"
    if ! command -v apt-get >/dev/null 2>&1; then
        die "install them with your system's package manager, then run this again (these are Debian's names)"
    elif [ "$(id -u)" -ne 0 ]; then
        die "not root, so install them yourself, then run this again: sudo apt-get install $missing"
    fi
    install_missing || die "apt-get could not install them; its messages above say why"
    PYTHON_FOUND=$(find_python)
    if [ -z "$PYTHON_FOUND" ]; then
        die "this system's Python is older than 3.11; install a newer one, then: make PYTHON=/path/to/python3.11 ..."
    fi
    can_make_venv "$PYTHON_FOUND" || die "$PYTHON_FOUND still cannot make virtual environments"
fi

# -- the virtual environment ---------------------------------------------------------------------------
exec 9<. && { ! command -v flock >/dev/null 2>&1 || flock 9; } # one setup at a time in this folder

stamp_of() { # what an environment of lock file $1 was made from
    cat "$1" pyproject.toml | sha256sum | cut -d' ' -f1
}
current() { # whether .venv holds what lock file $1 names
    name=$(basename "$1" .txt)
    [ -x "$VENV/bin/starverse" ] || return 1
    [ "$(cat "$VENV/.place" 2>/dev/null)" = "$(pwd -P)" ] || return 1
    [ "$(cat "$VENV/.stamp-$name" 2>/dev/null)" = "$(stamp_of "$1")" ]
}

current "$LOCK" && exit 0
[ "$SET" = demo ] && current requirements/dev.txt && exit 0 # dev holds all of demo

place=$(cat "$VENV/.place" 2>/dev/null || pwd -P) # the programs in it name the folder they were made in
works() { suitable "$VENV/bin/python" && "$VENV/bin/python" -c 'import pip' 2>/dev/null; }
if [ "$place" != "$(pwd -P)" ] || ! works; then
    say "making $VENV with $PYTHON_FOUND"
    "$PYTHON_FOUND" -m venv --clear "$VENV"
fi
pwd -P > "$VENV/.place"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_REQUIRE_VIRTUALENV=1
say "installing $(grep -c '==' "$LOCK") packages from $LOCK"
rm -f "$VENV"/.stamp-*
install_fast() { # with uv, which takes a sixth of pip's time; through the index that pip was told of
    "$VENV/bin/python" -m pip install -qq --require-hashes -r requirements/installer.txt || return 1
    told=$("$VENV/bin/python" -m pip config list 2>/dev/null | sed -n "s/^global\.index.url='\(.*\)'$/\1/p")
    index=${PIP_INDEX_URL:-$told}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    # pip trusts the system's authorities as well, and uv does once it is told to
    [ ! -s /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
    [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
    UV_NO_CONFIG=1 "$VENV/bin/uv" pip install -q --python "$VENV/bin/python" --compile-bytecode \
        --require-hashes -r "$LOCK"
}
install_fast || {
    say "uv could not install it (its messages above say why); trying with pip, a minute or two"
    "$VENV/bin/python" -m pip install -qq --require-hashes -r "$LOCK" ||
        die "pip could not install $LOCK; its messages above say why"
}
"$VENV/bin/python" -m pip install -qq --no-deps --no-build-isolation --editable . ||
    die "pip could not install starverse itself; its messages above say why"
stamp_of "$LOCK" > "$VENV/.stamp-$SET"
say "ready"
