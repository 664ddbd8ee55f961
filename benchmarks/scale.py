"""How the cost of the control plane grows with the cluster: 2,000, 20,000 and 100,000 cards.

A whole platform on the fake engine, a virtual clock and a SQLite file without flushes: nothing runs, so what
is measured is the platform's own work. The cluster is filled, then time goes on in steps: jobs end, others
arrive, every loop runs once a step. Times are CPU time, medians of a round, or per placement or job where it
says so.

    python -m benchmarks.scale --philly FOLDER [--cards 2000,20000,100000] [--steps 10] [--json]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import func, select

from benchmarks.philly import Arrival, read_arrivals
from benchmarks.report import Figure, Report, emit
from benchmarks.scale_world import Load, ScaleWorld, Times
from starverse.app.apply_decision import apply_decision
from starverse.app.bill import BillFilter, show_bill
from starverse.app.snapshot import take_snapshot
from starverse.db.jobs import queued
from starverse.db.session import Database
from starverse.db.tables import jobs, metadata
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.linter import lint

NUMBER = 15
NAME = "scale of the control plane (fake engine)"
STEP_SECONDS = 60.0
BUSY_SINCE = "2017-10-03"


@dataclass(frozen=True, slots=True)
class Settings:
    jobs_file: Path
    cards: tuple[int, ...] = (2_000,)
    steps: int = 10
    seed: int = 15
    folder: Path | None = None


@dataclass(slots=True)
class Sized:
    """What was measured at one size; seconds, bytes."""

    cards: int
    running: int
    waiting: int
    times: Times
    placed: int = 0
    ended: int = 0
    database_bytes: int = 0
    jobs: int = 0

    def figures(self) -> list[Figure]:
        size, times = f"{self.cards:,} cards", self.times
        loops = (
            "snapshot",
            "decide",
            "lint",
            "observe",
            "reclaim",
            "meter",
            "inventory",
            "checkpoint",
            "sweep",
        )
        shown = [Figure(f"{size}: {loop}, a round", times.median(loop) * 1000, "ms") for loop in loops]
        each = sum(times.seconds.get("apply", ())) / max(1, self.placed)
        shown.append(Figure(f"{size}: apply, per placement", each * 1000, "ms"))
        shown.append(Figure(f"{size}: submit, per job", times.median("submit") * 1000, "ms"))
        shown.append(Figure(f"{size}: bill of a team", times.median("bill") * 1000, "ms"))
        shown.append(Figure(f"{size}: database, per job", self.database_bytes / max(1, self.jobs), "bytes"))
        return shown


def measure(settings: Settings) -> Report:
    arrivals = read_arrivals(settings.jobs_file, since=BUSY_SINCE)
    sizes = []
    for cards in settings.cards:
        with tempfile.TemporaryDirectory(prefix="scale-", dir=settings.folder) as name:
            sizes.append(measure_size(Path(name), cards, arrivals, settings))
    conditions = {
        "steps": f"{settings.steps} of {STEP_SECONDS:.0f} s",
        "seed": settings.seed,
        "running": {f"{size.cards:,} cards": size.running for size in sizes},
        "waiting": {f"{size.cards:,} cards": size.waiting for size in sizes},
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return Report(NUMBER, NAME, [figure for size in sizes for figure in size.figures()], conditions)


def measure_size(folder: Path, cards: int, arrivals: Sequence[Arrival], settings: Settings) -> Sized:
    database = Database(f"sqlite:///{folder / 'scale.db'}", durable=False)
    metadata.create_all(database.engine)
    times = Times()
    try:
        world = ScaleWorld(database, folder / "data", cards)
        load = Load(world, arrivals, settings.seed)
        begun = time.perf_counter()
        load.fill(int(cards * 1.02))
        while schedule(world, Times()):
            while world.run_reconciler("launch"):
                pass
        world.clock.advance(seconds=2)
        world.engine.advance()
        world.run_reconciler("observe")
        sys.stderr.write(f"{cards:,} cards filled in {time.perf_counter() - begun:.0f} s\n")
        sized = Sized(cards, len(world.engine.running()), 0, times)
        for _ in range(settings.steps):
            step(world, load, sized)
        with database.read() as connection:
            sized.jobs = int(connection.execute(select(func.count()).select_from(jobs)).scalar_one())
            sized.waiting = len(queued(connection))
        sized.database_bytes = (folder / "scale.db").stat().st_size
        for who in load.teams[:3]:
            times.timed("bill", partial(show_bill, world.platform, who, BillFilter()))
    finally:
        database.close()
    return sized


def step(world: ScaleWorld, load: Load, sized: Sized) -> None:
    world.clock.advance(seconds=STEP_SECONDS)
    world.engine.advance()
    before = len(world.engine.running())
    for _ in range(max(1, sized.running - before)):
        sized.times.timed("submit", load.arrive)
    for loop in ("inventory", "observe"):
        sized.times.timed(loop, partial(world.run_reconciler, loop))
    sized.placed += schedule(world, sized.times)
    for loop in ("launch", "reclaim", "meter", "checkpoint", "sweep"):
        sized.times.timed(loop, partial(world.run_reconciler, loop))


def schedule(world: ScaleWorld, times: Times) -> int:
    """One round of the scheduler, each part of it timed; how many were placed."""
    now = world.clock.now()
    snapshot = times.timed("snapshot", lambda: take_snapshot(world.platform, now))
    decision = times.timed("decide", lambda: decide(snapshot, now))
    times.timed("lint", lambda: lint(snapshot, decision))
    return len(times.timed("apply", lambda: apply_decision(world.platform, decision)).placed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scale", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--philly", type=Path, required=True, help="the folder of the trace, or jobs.csv.gz")
    parser.add_argument("--cards", default="2000", help="sizes of the cluster, with commas")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    jobs_file = given.philly / "jobs.csv.gz" if given.philly.is_dir() else given.philly
    sizes = tuple(int(size) for size in given.cards.split(","))
    emit(measure(Settings(jobs_file, sizes, given.steps, given.seed, given.folder)), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
