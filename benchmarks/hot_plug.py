"""Hot plug: a disk into a running sandbox and out, beside a bare bind mount; what a network costs a start.

A plug is timed from telling the engine to the launcher's report, over the channel, that it is there or gone.
The peer is the command ``mount --bind``, or ``umount``, by root or in a user namespace. A start with the
network ``internet`` is beside one with none, of a job, whose script waits for its network. Medians.

    python -m benchmarks.hot_plug [--rounds 40] [--json]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.report import Figure, Report, emit
from starverse.domain.workloads.launch import Desired, Plug
from starverse.engines.base import Presence
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.node.network.pasta import refusal as pasta_refusal
from starverse.node.plugs import block_disks, fuse_disks
from starverse.testing.launches import build_launch

NUMBER = 15
NAME = "hot plug of disks (local engine)"
TEAM_UID = 200_001
PATIENCE_SECONDS = 60.0
BLOCK_BYTES = 1024**3

Samples = dict[str, list[float]]


def measure(rounds: int) -> Report:
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="plugs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        missing = time_plugs(folder, samples, rounds)
        time_bare(folder, samples, rounds)
    bare = {key: statistics.median(samples[f"bare {key}"]) * 1000 for key in ("in", "out")}
    figures = starts_of(samples)
    for kind in ("shared", "block"):
        for key in ("in", "out"):
            if found := samples.get(f"{kind} {key}"):
                note = f"{min(found) * 1000:.1f} to {max(found) * 1000:.1f} ms"
                name = f"{kind} disk {key}"
                figures.append(
                    Figure(name, statistics.median(found) * 1000, "ms", "mount --bind", bare[key], note=note)
                )
    conditions = {
        "rounds": rounds,
        "user": "root, workloads as a team's user" if os.geteuid() == 0 else "an ordinary user",
        "block disk": f"{BLOCK_BYTES // 1024**2} MiB, " + ("loop device" if os.geteuid() == 0 else "fuse2fs"),
    }
    return Report(NUMBER, NAME, figures, conditions, missing)


def time_plugs(folder: Path, samples: Samples, rounds: int) -> list[str]:
    """Both kinds in turn; answers what this machine lacks."""
    data = folder / "engine"
    data.mkdir()
    engine = LocalEngine(data, DeclaredCards("rtx4090:2"))
    engine.start()
    spec = build_launch(data, "plugs", script="sleep 600\n", unix_uid=TEAM_UID if os.geteuid() == 0 else None)
    try:
        engine.submit(spec)
        wait(lambda: ready_at(engine, "plugs") is not None)
        shared = folder / "disk" / "data"
        shared.mkdir(parents=True)
        sources = {"shared": shared}
        why = block_disks.loop_refusal() if os.geteuid() == 0 else fuse_disks.refusal()
        if not why and shutil.which("mkfs.ext4", path="/usr/sbin:/sbin"):
            sources["block"] = make_block(folder)
        networks = ["none"] if pasta_refusal(shutil.which("pasta") or "") else ["none", "internet"]
        for number in range(rounds):
            for network in networks:
                samples[f"start {network}"].append(time_start(engine, data, f"{network}-{number}", network))
            for kind, source in sources.items():
                plug = Plug(f"{kind}-{number}", "/data/disk", kind, str(source))
                samples[f"{kind} in"].append(time_one(engine, Desired(plugs=(plug,)), plug.id, "attached"))
                samples[f"{kind} out"].append(time_one(engine, Desired(plugs=()), plug.id, "detached"))
    finally:
        engine.steer("plugs", Desired(stop=True))
        wait(lambda: engine.observe(["plugs"])["plugs"].presence in (Presence.ENDED, Presence.GONE))
        engine.clean("plugs")
        engine.close()
    return [f"block disks: {why}"] if why else []


def time_start(engine: LocalEngine, data: Path, name: str, network: str) -> float:
    """From handing over the launch to the first exec of the script."""
    uid = TEAM_UID if os.geteuid() == 0 else None
    spec = build_launch(data, name, script="true\n", unix_uid=uid, network=network)
    begun = time.time()
    engine.submit(spec)
    wait(lambda: engine.observe([name])[name].presence is Presence.ENDED)
    ready = ready_at(engine, name)
    engine.clean(name)
    assert ready is not None, engine.observe([name])[name].state
    return ready - begun


def ready_at(engine: LocalEngine, name: str) -> float | None:
    state = engine.observe([name])[name].state
    return None if state is None else state.ready_at


def starts_of(samples: Samples) -> list[Figure]:
    none = statistics.median(samples["start none"]) * 1000
    found = samples.get("start internet")
    if not found:
        return []
    more = statistics.median(found) * 1000
    note = f"{more - none:.1f} ms more"
    return [Figure("start with a network of its own", more, "ms", "start without", none, note=note)]


def time_one(engine: LocalEngine, desired: Desired, plug_id: str, state: str) -> float:
    begun = time.perf_counter()
    engine.steer("plugs", desired)
    wait(lambda: seen(engine).get(plug_id) == state)
    return time.perf_counter() - begun


def seen(engine: LocalEngine) -> dict[str, str]:
    state = engine.observe(["plugs"])["plugs"].state
    return {} if state is None else {entry.id: entry.state for entry in state.plugged}


def wait(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.0005)


def make_block(folder: Path) -> Path:
    file = folder / "disk" / "block.img"
    with file.open("wb") as made:
        made.truncate(BLOCK_BYTES)
    owner = TEAM_UID if os.geteuid() == 0 else 0
    options = f"root_owner={owner}:{owner}"
    subprocess.run(["/usr/sbin/mkfs.ext4", "-qF", "-E", options, file], check=True)
    return file


_BARE = """
import subprocess, sys, time
for _ in range(int(sys.argv[3])):
    a = time.perf_counter()
    subprocess.run(["mount", "--bind", sys.argv[1], sys.argv[2]], check=True)
    b = time.perf_counter()
    subprocess.run(["umount", sys.argv[2]], check=True)
    print(b - a, time.perf_counter() - b)
"""


def time_bare(folder: Path, samples: Samples, rounds: int) -> None:
    source, target = folder / "source", folder / "target"
    source.mkdir()
    target.mkdir()
    apart = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    command = [*apart, sys.executable, "-c", _BARE, str(source), str(target), str(rounds)]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        into, out = line.split()
        samples["bare in"].append(float(into))
        samples["bare out"].append(float(out))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.hot_plug", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    emit(measure(given.rounds), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
