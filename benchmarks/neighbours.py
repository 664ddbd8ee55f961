"""What a neighbour that writes flat out leaves of a workload's own rate.

One workload writes past the page cache with one writer, alone and beside one with four writers: on the
machine's disk as it is, on a file system whose device is scheduled by bfq (it shares by control group), and
with the operator's limit for each (``engine.disk_bytes_per_second``). The bound is the lone rate. Needs root.

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
from starverse.domain.workloads.launch import Desired, Limits
from starverse.engines.base import Presence
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.testing.launches import MIB, build_launch

NUMBER = 15
NAME = "what a neighbour leaves (local engine)"
TEAM_UID = 200_001
FILE_BYTES = 3 * 1024**3
LIMIT_BYTES = 100 * 1024**2
_WRITE = """
import json, mmap, os, sys, threading, time
seconds, count = float(sys.argv[1]), int(sys.argv[2])
block = mmap.mmap(-1, 1 << 20)
written = [0] * count
def write(number):
    handle = os.open(f"file-{os.getpid()}-{number}", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        written[number] += os.pwrite(handle, block, written[number] % (64 << 20))
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
        figures.append(disk_figure("disk, each limited", folder / "limited", seconds, LIMIT_BYTES))
        try:
            with scheduled_by_bfq(folder) as place:
                figures.append(disk_figure("disk by bfq", place / "engine", seconds))
        except OSError as error:
            missing.append(f"a disk scheduled by bfq: {error}")
    return Report(NUMBER, NAME, figures, {"seconds": seconds, "writers of the neighbour": 4}, missing)


def disk_figure(name: str, data: Path, seconds: float, limit: int | None = None) -> Figure:
    limits = Limits(cpus=2.0, memory_bytes=512 * MIB, disk_bytes_per_second=limit)
    with engine_of(data) as engine:
        lone = rate(engine, data, "lone", seconds, limits)
        begin(engine, data, "neighbour", seconds + 4, 4, limits)
        beside = rate(engine, data, "beside", seconds, limits)
    at_least = None if limit is None else 0.5
    return Figure(name, beside / 1e6, "MB/s", "alone", lone / 1e6, at_least=at_least)


def begin(engine: LocalEngine, data: Path, name: str, seconds: float, writers: int, limits: Limits) -> None:
    """A workload that writes; the script is running when this returns."""
    spec = build_launch(
        data,
        name,
        script=f"cat > w.py <<'CODE'\n{_WRITE}CODE\nexec /usr/bin/python3 w.py {seconds} {writers}\n",
        unix_uid=TEAM_UID,
        limits=limits,
    )
    engine.submit(spec)
    while (state := engine.observe([name])[name].state) is None or state.ready_at is None:
        time.sleep(0.01)


def rate(engine: LocalEngine, data: Path, name: str, seconds: float, limits: Limits) -> float:
    begin(engine, data, name, seconds, 1, limits)
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
