"""``fabric-probe``: measures the network between two ranks and prints the figures as JSON.

Inside a job of two nodes: ``srun --ntasks-per-node=1 fabric-probe > fabric.json``. It reads
``SLURM_PROCID``, ``SLURM_NTASKS``, ``MASTER_ADDR`` and ``MASTER_PORT``; rank 0 listens, rank 1 dials it,
rank 0 prints. What could not be measured is named with its reason, never guessed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from starverse.node import fabric_tools
from starverse.node.fabric_tcp import (
    BLOCK_BYTES,
    IO_SECONDS_MAX,
    PING_BYTES,
    PING_ROUNDS,
    STREAM_SECONDS,
    STREAMS,
    ProbeFailed,
    receive_all,
    receive_exactly,
    round_trips,
    send_all,
)

VERSION = 1
DIAL_SECONDS = 60.0
CHILD_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Place:
    """Which of the two this is. ``pings`` and ``seconds`` bound the measurements."""

    rank: int
    address: str
    port: int
    node: str
    pings: int = PING_ROUNDS
    seconds: float = STREAM_SECONDS


def main() -> int:
    """Measure, as the environment says; 2 where this is not one of two ranks, 1 where it failed."""
    try:
        place = read_place(os.environ)
    except (KeyError, ValueError) as error:
        sys.stderr.write(
            f"fabric-probe: needs two ranks with MASTER_ADDR and MASTER_PORT, such as "
            f"`srun --nodes=2 --ntasks-per-node=1 fabric-probe` ({error})\n"
        )
        return 2
    try:
        answer = run(place)
    except (ProbeFailed, OSError) as error:
        sys.stderr.write(f"fabric-probe: rank {place.rank}: {error}\n")
        return 1
    if answer is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def read_place(environment: Mapping[str, str]) -> Place:
    """Raises ``KeyError`` or ``ValueError`` where the environment is not that of one of two ranks."""
    if environment["SLURM_NTASKS"] != "2":
        raise ValueError(f"SLURM_NTASKS is {environment['SLURM_NTASKS']}")
    return Place(
        rank=int(environment["SLURM_PROCID"]),
        address=environment["MASTER_ADDR"],
        port=int(environment["MASTER_PORT"]),
        node=environment.get("SLURMD_NODENAME") or socket.gethostname(),
    )


def run(place: Place) -> dict[str, Any] | None:
    """All measurements in lock step with the other rank; the document on rank 0, ``None`` on rank 1."""
    with contextlib.ExitStack() as stack:
        listener = None
        if place.rank == 0:
            listener = stack.enter_context(_listen(place.port))
            link = stack.enter_context(_accept(listener, DIAL_SECONDS))
        else:
            link = stack.enter_context(_dial(place, DIAL_SECONDS))
        mine = _self_description(place)
        theirs = _exchange(link, mine)
        if theirs.get("version") != VERSION:
            raise ProbeFailed(f"the other rank speaks version {theirs.get('version')}")
        measured_at = datetime.now(UTC)
        figures = [*_tcp_figures(place, link, listener)]
        left_out: dict[str, str] = {}
        for method, what, act in _further(place, link, mine, theirs, left_out):
            try:
                figure = act()
            except (ProbeFailed, OSError, subprocess.TimeoutExpired) as error:
                left_out[method] = str(error)[:300]
                figure = None
            if figure:
                figures.append({"what": what, "method": method, **figure})
            _exchange(link, {"done": method})
    if place.rank:
        return None
    return {
        "version": VERSION,
        "nodes": [mine["node"], theirs["node"]],
        "same_machine": mine["machine"] == theirs["machine"],
        "measured_at": measured_at.isoformat(timespec="seconds"),
        "figures": figures,
        "left_out": left_out,
    }


def _self_description(place: Place) -> dict[str, Any]:
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    return {
        "version": VERSION,
        "node": place.node,
        "machine": boot_id.read_text().strip() if boot_id.exists() else socket.gethostname(),
        "torch": importlib.util.find_spec("torch") is not None,
        "cuda": Path("/dev/nvidiactl").exists(),
        "tools": fabric_tools.present(),
    }


def _tcp_figures(place: Place, link: socket.socket, listener: socket.socket | None) -> list[dict[str, Any]]:
    """Round trips asked by rank 1, then bandwidth in both directions: the lower one counts."""
    trips = round_trips(link, asks=place.rank == 1, rounds=place.pings)
    told = _exchange(link, asdict(trips) if trips else {})
    rates = []
    for sender in (1, 0):
        with contextlib.ExitStack() as stack:
            if listener is not None:
                links = [stack.enter_context(_accept(listener, IO_SECONDS_MAX)) for _ in range(STREAMS)]
            else:
                links = [stack.enter_context(_dial(place, IO_SECONDS_MAX)) for _ in range(STREAMS)]
            if place.rank == sender:
                send_all(links, place.seconds)
                rates.append(int(_exchange(link, {})["rate"]))
            else:
                rates.append(receive_all(links))
                _exchange(link, {"rate": rates[-1]})
    bandwidth = {"bytes_per_second": min(rates), "message_bytes": BLOCK_BYTES, "streams": STREAMS}
    return [
        {"what": "round_trip", "method": "tcp", "message_bytes": PING_BYTES, **told},
        {"what": "bandwidth", "method": "tcp", **bandwidth},
    ]


_Plan = tuple[str, str, Callable[[], dict[str, int] | None]]


def _further(
    place: Place,
    link: socket.socket,
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    left_out: dict[str, str],
) -> list[_Plan]:
    """What both ranks can do beyond TCP, in the same order on both; why not goes into ``left_out``."""

    def both(name: str) -> bool:
        return name in mine["tools"] and name in theirs["tools"]

    plans: list[_Plan] = []
    if not (mine["torch"] and theirs["torch"]):
        left_out["gloo"] = left_out["nccl"] = f"PyTorch is not installed for {sys.executable} on both nodes"
    else:
        plans.append(("gloo", "all_reduce", partial(_all_reduce, place, link, "gloo")))
        if mine["cuda"] and theirs["cuda"]:
            plans.append(("nccl", "all_reduce", partial(_all_reduce, place, link, "nccl")))
        else:
            left_out["nccl"] = "no CUDA card on both nodes"
    if both("ib_write_bw"):
        act = partial(fabric_tools.run_ib_write_bw, place.rank, place.address)
        plans.append(("ib_write_bw", "bandwidth", act))
    else:
        left_out["ib_write_bw"] = "perftest or InfiniBand is not on both nodes"
    if both("nccl-tests"):
        plans.append(("nccl-tests", "all_reduce", partial(fabric_tools.run_nccl_tests, place.rank)))
    else:
        left_out["nccl-tests"] = "nccl-tests with MPI, or NVIDIA cards, are not on both nodes"
    return plans


def _all_reduce(place: Place, link: socket.socket, backend: str) -> dict[str, int] | None:
    """In a child each; rank 0 picks a free port for their store and tells rank 1."""
    port = _free_port() if place.rank == 0 else 0
    port = max(port, int(_exchange(link, {"port": port})["port"]))
    words = [sys.executable, "-I", "-m", "starverse.node.fabric_all_reduce", backend, str(place.rank)]
    done = subprocess.run(
        [*words, place.address, str(port)], capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ProbeFailed(lines[-1][:200] if lines else f"exit {done.returncode}")
    if place.rank:
        return None
    return {str(name): int(value) for name, value in json.loads(done.stdout).items()}


def _exchange(link: socket.socket, mine: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the other rank and hear it: both are at the same point then."""
    body = json.dumps(mine).encode()
    link.settimeout(CHILD_SECONDS + IO_SECONDS_MAX)
    link.sendall(len(body).to_bytes(4, "big") + body)
    length = int.from_bytes(receive_exactly(link, 4), "big")
    if length > 1 << 20:
        raise ProbeFailed("something else speaks on this port")
    theirs = json.loads(receive_exactly(link, length))
    if not isinstance(theirs, dict):
        raise ProbeFailed("something else speaks on this port")
    return theirs


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen(STREAMS + 1)
    return listener


def _accept(listener: socket.socket, seconds: float) -> socket.socket:
    listener.settimeout(seconds)
    try:
        link, _ = listener.accept()
    except TimeoutError as error:
        raise ProbeFailed(f"the other rank did not come within {seconds:g} s") from error
    link.settimeout(IO_SECONDS_MAX)
    return link


def _dial(place: Place, seconds: float) -> socket.socket:
    until = time.monotonic() + seconds
    while True:
        try:
            link = socket.create_connection((place.address, place.port), timeout=IO_SECONDS_MAX)
            link.settimeout(IO_SECONDS_MAX)
            return link
        except OSError as error:
            if time.monotonic() > until:
                raise ProbeFailed(
                    f"rank 0 at {place.address}:{place.port} does not answer: {error}"
                ) from error
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
