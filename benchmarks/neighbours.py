"""What a neighbour that goes flat out leaves of a workload's own rate, on disk and network.

Disk: one workload writes past the page cache with one writer, alone and beside one with four writers: on the
machine's disk as it is, on a file system whose device is scheduled by bfq (it shares by control group), and
with a limit for each (their shares of ``engine.disk_node_bytes_per_second``), also beside a neighbour that
writes through the page cache. Network: one connection, alone and beside a neighbour with four, through pasta
to servers behind the host's link in network namespaces of our own, as it is and with a limit for each. The
bound is the lone rate of the same run. Needs root.

    python -m benchmarks.neighbours [--seconds 4] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.report import Figure, Report, emit
from starverse.domain.workloads.launch import Desired, LaunchSpec, Limits
from starverse.engines.base import Presence
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.testing.launcher_platforms import OBEYING, OTHER_TEAM_UID, TEAM_UID, ask, open_platform
from starverse.testing.launches import MIB, build_launch
from starverse.testing.network_lab import INTERNET, STREAM, NetworkLab, open_lab, why_no_lab

NUMBER = 15
NAME = "what a neighbour leaves (local engine)"
PORT = 21_210
FILE_BYTES = 3 * 1024**3
LIMIT_BYTES = 100 * 1024**2
_WRITE = """
import json, mmap, os, sys, threading, time
seconds, count = float(sys.argv[1]), int(sys.argv[2])
block = mmap.mmap(-1, 1 << 20)
written = [0] * count
def write(number):
    direct = sys.argv[3] == "direct"
    size = (64 if direct else 512) << 20  # more than its memory, where it is cached
    flags = os.O_WRONLY | os.O_CREAT | (os.O_DIRECT if direct else 0)
    handle = os.open(f"file-{os.getpid()}-{number}", flags)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        written[number] += os.pwrite(handle, block, written[number] % size)
threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(sum(written) / seconds))
"""


def measure(seconds: float) -> Report:
    figures: list[Figure] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="neighbours-") as name:
        folder = Path(name)
        figures.append(disk_figure("disk as it is", folder / "own", seconds))
        figures.append(disk_figure("disk, each limited", folder / "limited", seconds, limits_of(LIMIT_BYTES)))
        figures.append(
            disk_figure(
                "disk, each limited, neighbour in the page cache",
                folder / "cached",
                seconds,
                limits_of(LIMIT_BYTES),
                "cached",
            )
        )
        try:
            with scheduled_by_bfq(folder) as place:
                figures.append(disk_figure("disk by bfq", place / "engine", seconds))
        except OSError as error:
            missing.append(f"a disk scheduled by bfq: {error}")
        if why := why_no_lab():
            missing.append(f"the network: {why}")
        else:
            folder.chmod(0o755)
            with open_lab(folder) as lab:
                lab.serve_streams(INTERNET, PORT)
                figures += network_figures("network as it is", folder / "free", lab, seconds, None)
                figures += network_figures(
                    "network, each limited", folder / "held", lab, seconds, LIMIT_BYTES
                )
    conditions = {"seconds": seconds, "writers and connections of the neighbour": 4}
    return Report(NUMBER, NAME, figures, conditions, missing)


def limits_of(disk: int | None = None, network: int | None = None) -> Limits:
    return Limits(
        cpus=2.0,
        memory_bytes=512 * MIB,
        disk_bytes_per_second=disk,
        network_bytes_per_second=network,
    )


def disk_figure(
    name: str, data: Path, seconds: float, limits: Limits | None = None, neighbour: str = "direct"
) -> Figure:
    """``neighbour`` writes ``direct`` or ``cached``."""
    held = limits or limits_of()
    with engine_of(data) as engine:
        lone = rate(engine, data, "lone", seconds, held)
        begin(engine, data, "neighbour", f"{seconds + 4} 4 {neighbour}", held)
        beside = rate(engine, data, "beside", seconds, held)
    at_least = None if limits is None else 0.5
    return Figure(name, beside / 1e6, "MB/s", "alone", lone / 1e6, at_least=at_least)


def network_figures(
    name: str, folder: Path, lab: NetworkLab, seconds: float, limit: int | None
) -> list[Figure]:
    """Sent and received, each alone and beside a neighbour that does both."""
    folder.mkdir()
    with open_platform("root", folder, lab.command) as platform:
        specs = []
        for own, uid in (("measured", TEAM_UID), ("neighbour", OTHER_TEAM_UID)):
            limits = limits_of(network=limit)
            spec = platform.build(own, uid, script=OBEYING, network="internet", limits=limits)
            platform.begin(spec)
            platform.wait(spec, "running")
            Path(spec.workspace, "stream.py").write_text(STREAM)
            specs.append(spec)
        measured, neighbour = specs
        lone = stream(measured, seconds)
        ask(neighbour, f"{_stream(seconds * 4 + 60, 4, 'ud')} > out 2>&1 &")
        beside = stream(measured, seconds)
    at_least = None if limit is None else 0.5
    return [
        Figure(f"{name}, {text}", beside[way] / 1e6, "MB/s", "alone", lone[way] / 1e6, at_least=at_least)
        for way, text in (("u", "sent"), ("d", "received"))
    ]


def stream(spec: LaunchSpec, seconds: float) -> dict[str, float]:
    """Bytes a second, one way after the other."""
    rates: dict[str, float] = {}
    for way in "ud":
        said = ask(spec, _stream(seconds, 1, way), 60 + seconds)
        told = [line for line in said.splitlines() if line.startswith("{")]
        if not told:
            raise OSError(f"nothing was measured: {said[-200:]}")
        rates |= json.loads(told[0])
    return rates


def _stream(seconds: float, connections: int, ways: str) -> str:
    return f"/usr/bin/python3 stream.py {INTERNET} {PORT} {seconds} {connections} {ways}"


def begin(engine: LocalEngine, data: Path, name: str, how: str, limits: Limits) -> None:
    """A workload that writes, ``how``: seconds, writers, ``direct`` or ``cached``; the script is running when
    this returns."""
    spec = build_launch(
        data,
        name,
        script=f"cat > w.py <<'CODE'\n{_WRITE}CODE\nexec /usr/bin/python3 w.py {how}\n",
        unix_uid=TEAM_UID,
        limits=limits,
    )
    engine.submit(spec)
    while (state := engine.observe([name])[name].state) is None or state.ready_at is None:
        time.sleep(0.01)


def rate(engine: LocalEngine, data: Path, name: str, seconds: float, limits: Limits) -> float:
    begin(engine, data, name, f"{seconds} 1 direct", limits)
    while engine.observe([name])[name].presence is not Presence.ENDED:
        time.sleep(0.05)
    return float(json.loads((data / "jobs" / name / "logs" / "1.out").read_text().splitlines()[-1]))


@contextlib.contextmanager
def engine_of(data: Path) -> Iterator[LocalEngine]:
    data.mkdir(parents=True)
    engine = LocalEngine(data, DeclaredCards("rtx4090:2"))
    engine.start()
    try:
        yield engine
    finally:
        for name in engine.running():
            engine.steer(name, Desired(stop=True))
            engine.clean(name)
        engine.close()


@contextlib.contextmanager
def scheduled_by_bfq(folder: Path) -> Iterator[Path]:
    """A file system of its own in a file, on a device that bfq schedules; raises ``OSError`` where not."""
    file, place = folder / "image", folder / "mounted"
    with file.open("wb") as made:
        made.truncate(FILE_BYTES)
    place.mkdir()
    run("/usr/sbin/mkfs.ext4", "-qF", str(file))
    device = run("/usr/sbin/losetup", "--find", "--show", "--direct-io=on", str(file)).strip()
    try:
        Path("/sys/block", Path(device).name, "queue/scheduler").write_text("bfq")
        run("mount", device, str(place))
        try:
            yield place
        finally:
            run("umount", str(place))
    finally:
        run("/usr/sbin/losetup", "--detach", device)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.neighbours", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0:
        sys.stderr.write("needs root, for control groups and a device of its own\n")
        return 1
    emit(measure(given.seconds), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
