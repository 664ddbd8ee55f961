"""What ``starverse slurm check`` asks on each node, by a short Slurm job: ``name=value`` lines.

:func:`sample_script` is plain ``sh``, since whether our Python is there is one of the questions; the rest
is asked by :func:`main`, run by the Python that launchers would use.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from starverse import __version__
from starverse.node.binding import DRIVER_FOLDER, bound_indices, read_uuids
from starverse.node.doctor import probe_sandbox
from starverse.node.sandbox.driver import StartRefused

CHANNEL_SECONDS = 5.0
NONCE_FILE = "nonce"

_SCRIPT = """#!/bin/sh
# Asks this node what starverse's launchers need, and writes the answer beside the nonce.
folder={folder}
name=${{SLURMD_NODENAME:-$(hostname)}}
{{
    echo "node=$name"
    echo "time=$(date +%s.%N)"
    echo "nonce=$(head -c 200 "$folder/{nonce}" 2>&1 | head -n 1)"
    echo "user=$(id -un) $(id -u)"
    echo "bwrap=$(command -v bwrap)"
    echo "cards=${{SLURM_STEP_GPUS:-${{SLURM_JOB_GPUS:-$CUDA_VISIBLE_DEVICES}}}}"
    for user in {users}; do [ -z "$user" ] || echo "uid.$user=$(id -u "$user" 2>/dev/null)"; done
    {python} -I -m starverse.node.cluster_sample {channel} 2>"$folder/$name.err" ||
        echo "python_error=$(tail -n 1 "$folder/$name.err" 2>&1)"
}} >"$folder/$name.new" 2>&1
mv "$folder/$name.new" "$folder/$name.sample"
"""


def sample_script(folder: str, python: str, channel: str, users: Iterable[str] = ()) -> str:
    """The batch script; ``channel`` is ``HOST:PORT``, ``""`` where launchers use no address.

    ``users`` are those whose numbers must be the same everywhere.
    """
    return _SCRIPT.format(
        folder=shlex.quote(folder),
        nonce=NONCE_FILE,
        python=shlex.quote(python),
        channel=shlex.quote(channel),
        users=" ".join(map(shlex.quote, users)) or "''",
    )


def main(arguments: list[str]) -> int:
    """Print what Python can tell; 0 always."""
    finding = probe_sandbox()
    lines = [f"starverse={__version__}", f"python={sys.executable}"]
    lines.append(f"sandbox={finding.health.value}:{finding.what}".replace("\n", " "))
    lines.append(f"driver={_ask_driver()}".replace("\n", " "))
    address = arguments[0] if arguments else ""
    if address:
        lines.append(f"channel={_reach(address)}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _ask_driver(driver_folder: Path = DRIVER_FOLDER) -> str:
    """``ok`` where the driver knows each card that Slurm bound, as a launcher asks it; or what is wrong."""
    try:
        bound, known = bound_indices(os.environ, first_node=True), read_uuids(driver_folder)
    except (StartRefused, OSError) as error:
        return str(error)
    unknown = ", ".join(str(index) for index in bound if index not in known)
    return f"no driver knows card {unknown}" if unknown else "ok"


def _reach(address: str) -> str:
    """``ok``, or why nothing listens there for this node."""
    host, _, port = address.rpartition(":")
    try:
        with contextlib.closing(
            socket.create_connection((host.strip("[]"), int(port)), timeout=CHANNEL_SECONDS)
        ):
            return "ok"
    except (OSError, ValueError) as error:
        return f"{address}: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
