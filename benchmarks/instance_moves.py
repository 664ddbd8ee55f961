"""A reclaimed instance: from the notice to its disks being free and to ``ssh`` answering on another node.

A spot instance with two disks runs on one of two nodes and is to start elsewhere when it is reclaimed. A
claimant takes all cards of its node: notice, grace, end, disks out, start on the other node, disks in, a
command by the machine's own ``ssh``, which finds the disks as they were left. Then it is driven back. On the
local engine the peer is bubblewrap alone, killed and started again; on a real Slurm it is what Slurm needs to
requeue a batch job: from ``scontrol requeue`` to its script running again.

    python -m benchmarks.instance_moves [--engine local|slurm|both] [--rounds 5] [--grace 2] [--json]
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.endings import ended_by_sigterm
from benchmarks.platform_starts import OBEDIENT, Served, cancel, serving, submit, until
from benchmarks.report import Figure, Report, emit
from benchmarks.researchers import QUIET, Researcher, soon
from benchmarks.starts import NAMESPACES
from starverse.testing.live_checks import block_disks_missing
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import lab_variables

NUMBER = 15
NAME = "a reclaimed instance on another node"
HOST = "mover"
REQUEUE_SECONDS_MAX = 300.0
Samples = dict[str, list[float]]

_RUNS = """
SELECT allocations.id, placed_at, ready_at, notice_at, notice_deadline, allocations.ended_at,
       (SELECT max(ended_at) FROM attachments WHERE allocation_id = allocations.id)
FROM allocations JOIN jobs ON jobs.id = allocations.job_id
WHERE jobs.instance_id = ? ORDER BY placed_at DESC LIMIT 2
"""


def measure(engines: Sequence[str], rounds: int, grace_seconds: int) -> Report:
    figures: list[Figure] = []
    missing: list[str] = []
    spreads: dict[str, str] = {}
    settings = {**QUIET, "policy.grace_seconds": str(grace_seconds), "policy.kill_after_seconds": "2"}
    for engine in engines:
        if engine == "slurm" and (why := SlurmLab.missing()):
            missing.append(why)
            continue
        samples = on_local(rounds, settings) if engine == "local" else on_slurm(rounds, settings)
        figures += figures_of(engine, samples, grace_seconds)
        spreads |= {
            f"{engine} {key}": f"{min(found) * 1000:.0f}..{max(found) * 1000:.0f}"
            for key, found in sorted(samples.items())
        }
    conditions = {
        "rounds": rounds,
        "grace_seconds": grace_seconds,
        "disks": "a shared and a block one" if not block_disks_missing() else "a shared one",
        "sandbox": "bwrap",
        "spread_ms": spreads,
    }
    return Report(NUMBER, NAME, figures, conditions, missing)


def on_local(rounds: int, settings: Mapping[str, str]) -> Samples:
    """Two declared nodes of a card each."""
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="moves-") as name:
        root = Path(name)
        root.chmod(0o755)
        words = ("--declare-cards", "rtx4090:1,rtx4090:1", "--driver", "bwrap")
        with serving(root / "platform", words, settings) as server:
            move_about(server, root, rounds, 1, samples)
    samples["peer"] = [killed_and_started() for _ in range(max(rounds, 10))]
    return samples


def on_slurm(rounds: int, settings: Mapping[str, str]) -> Samples:
    """Two slurmd of eight cards each."""
    samples: Samples = defaultdict(list)
    with SlurmLab(nodes=2) as lab, tempfile.TemporaryDirectory(prefix="moves-") as name:
        root = Path(name)
        root.chmod(0o777)
        samples["peer"] = [requeued(lab, root)]
        with serving(root / "platform", (), {**settings, **lab_variables(lab)}) as server:
            move_about(server, root, rounds, 8, samples)
    return samples


def move_about(server: Served, root: Path, rounds: int, cards: int, samples: Samples) -> None:
    """Drive one instance to and fro; a claimant of all ``cards`` of its node each time."""
    researcher = Researcher(server.client, root / "researcher")
    disks = [{"name": "home"}]
    server.client.disks.create({"name": "home", "kind": "shared", "gib": 10})
    if not block_disks_missing():
        server.client.disks.create({"name": "db", "kind": "block", "gib": 1})
        disks.append({"name": "db"})
    for disk in disks:
        soon(lambda disk=disk: server.client.disks.get(disk["name"])["state"] == "ready", "the disks")  # type: ignore[misc]
    researcher.launch(HOST, tariff="spot", restart="elsewhere", disks=disks, wait=True)
    here = researcher.until_up(HOST)
    researcher.ssh(here, f"echo 0 | tee {' '.join(note_of(disk) for disk in disks)}")
    for turn in range(rounds):
        here = move_once(server, researcher, here, disks, turn, cards, samples)


def note_of(disk: Mapping[str, str]) -> str:
    return f"/data/{disk['name']}/turn"


def move_once(
    server: Served,
    researcher: Researcher,
    here: Mapping[str, Any],
    disks: Sequence[Mapping[str, str]],
    turn: int,
    cards: int,
    samples: Samples,
) -> dict[str, Any]:
    """One reclaim; the instance where it runs then."""
    begun = time.time()
    claimant = submit(server.client, OBEDIENT, "on_demand", cards, f"--nodelist={here['node']}")

    def moved() -> dict[str, Any] | None:
        one: dict[str, Any] = dict(server.client.instances.get(HOST))
        elsewhere = one["state"] == "running" and one["ready_at"] and one["node"] != here["node"]
        return one if elsewhere else None

    there = soon(moved, "the instance on the other node")
    notes = " ".join(note_of(disk) for disk in disks)
    seen = researcher.ssh(there, f"cat {notes}; echo {turn + 1} | tee {notes} > /dev/null").split()
    answered = time.time()
    if seen != [str(turn)] * len(disks):
        raise RuntimeError(f"the disks hold {seen}, not what was left on them in turn {turn}")
    cancel(server.client, claimant)
    after, before = runs_of(server.data, str(there["id"]))
    samples["notice given"].append(before["notice"] - begun)
    samples["ended past the grace"].append(before["ended"] - before["deadline"])
    samples["disks free"].append(before["detached"] - before["ended"])
    samples["running elsewhere"].append(after["ready"] - before["ended"])
    samples["ssh elsewhere"].append(answered - before["ended"])
    samples["notice to ssh"].append(answered - before["notice"])
    return there


def runs_of(data: Path, instance_id: str) -> tuple[dict[str, float], dict[str, float]]:
    """The newest two runs from the server's record, the newest first; seconds since the epoch."""
    uri = f"file:{data / 'starverse.db'}?mode=ro"
    with sqlite3.connect(uri, uri=True) as connection:
        rows = connection.execute(_RUNS, (instance_id,)).fetchall()
    names = ("placed", "ready", "notice", "deadline", "ended", "detached")
    newest, before = (
        {name: (value or 0) / 1e6 for name, value in zip(names, row[1:], strict=True)} for row in rows
    )
    return newest, before


def killed_and_started() -> float:
    """Bubblewrap alone: SIGKILL, its end, and another one that has begun."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SystemExit("bubblewrap is not installed: apt-get install bubblewrap")
    words = [bwrap, "--die-with-parent", *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc"]
    first = _begun([*words, "sh", "-c", "echo; exec sleep 60"])
    begun = time.perf_counter()
    first.kill()
    first.wait()
    second = _begun([*words, "sh", "-c", "echo; exec sleep 60"])
    seconds = time.perf_counter() - begun
    second.kill()
    second.wait()
    return seconds


def _begun(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """The process once it has said something."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def requeued(lab: SlurmLab, folder: Path) -> float:
    """From ``scontrol requeue`` to the script's second start."""
    stamps = folder / "stamps"
    script = folder / "requeued.sh"
    script.write_text(f"#!/bin/sh\ndate +%s.%N >> {stamps}\nsleep 600\n")
    words = ("--parsable", "--requeue", "--mem=100", "--time=10", "--chdir", str(folder))
    job = lab.command("sbatch", *words, "--output=/dev/null", str(script)).strip()

    def starts() -> list[str]:
        return stamps.read_text().split() if stamps.exists() else []

    until(lambda: len(starts()) == 1, 60, "the start of a raw job")
    begun = time.time()
    lab.command("scontrol", "requeue", job)
    until(lambda: len(starts()) == 2, REQUEUE_SECONDS_MAX, "the second start of a requeued job")
    lab.command("scancel", job)
    return float(starts()[1]) - begun


def figures_of(engine: str, samples: Samples, grace_seconds: int) -> list[Figure]:
    """Medians; a person's time begins with the notice, a machine's with the end of the grace."""
    ms = {key: statistics.median(found) * 1000 for key, found in samples.items()}
    peer = "bubblewrap killed and started" if engine == "local" else "Slurm's own requeue"
    return [
        Figure(f"{engine}: claimant's call to notice, p50", ms["notice given"], "ms"),
        Figure(f"{engine}: end after the grace was over, p50", ms["ended past the grace"], "ms"),
        Figure(f"{engine}: end to disks free, p50", ms["disks free"], "ms"),
        Figure(f"{engine}: end to running elsewhere, p50", ms["running elsewhere"], "ms", peer, ms["peer"]),
        Figure(f"{engine}: end to ssh answering elsewhere, p50", ms["ssh elsewhere"], "ms"),
        Figure(
            f"{engine}: notice to ssh answering elsewhere, p50",
            ms["notice to ssh"],
            "ms",
            note=f"{grace_seconds} s of it are the grace",
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="instance-moves", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--engine", choices=("local", "slurm", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grace", type=int, default=2, help="seconds from a notice to TERM")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    engines = ("local", "slurm") if given.engine == "both" else (given.engine,)
    with ended_by_sigterm():
        emit(measure(engines, given.rounds, given.grace), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
