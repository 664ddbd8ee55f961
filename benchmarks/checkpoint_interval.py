"""Benchmark 4: how often to save on machines that are reclaimed, by traces of real reclaims.

Each machine of a trace lives from when it is given to when it is taken. A job runs on each of them, begun at
a random moment of its first minutes, and saves at the product's interval: from the mean of the save times
measured so far, and the reclaim rate of the machines seen so far on that pool, with the product's prior. What
it pays: the time of the saves, and at a reclaim the work since the last one (nothing is saved in the notice).

Peers of the same run: the best fixed interval up to the operator's maximum in hindsight (clairvoyant, chosen
for each pool over all seeds), Young and Daly's interval with the true mean rate (clairvoyant), 30 minutes.

    python -m benchmarks.checkpoint_interval --preemptions FOLDER [--quick] [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Figure, Report, emit
from starverse.domain.recovery.checkpoint_interval import (
    OPERATOR_MAXIMUM_SECONDS,
    UNMEASURED_SAVE_SECONDS,
    best_interval,
    reclaim_rate,
)

NUMBER = 4
NAME = "checkpoint interval"
SAVE_SECONDS = (6.0, 30.0, 120.0)
"""About 4, 20 and 80 GiB at what ``checkpoint-engine`` measures on this machine."""
STARTS_WITHIN_SECONDS = 600.0
SAVE_SPREAD = 0.3
GRID_STEP = 1.08
NOT_BY_AGE = (
    "tried: a rate by the age of the machine; with shapes chosen on these very traces it comes to 0.97-1.02x "
    "of the best, with none chosen beforehand to 0.99-1.03x; not taken, since it gains nothing that is known "
    "beforehand"
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Settings:
    preemptions: Path
    starts: int = 16
    seed: int = 4
    save_seconds: tuple[float, ...] = SAVE_SECONDS


@dataclass(frozen=True, slots=True)
class Pool:
    """Lives of one trace's machines: seconds of each, and whether a reclaim ended it."""

    name: str
    seconds: Floats
    reclaimed: NDArray[np.bool_]

    @property
    def true_rate(self) -> float:
        return float(self.reclaimed.sum() / self.seconds.sum())


@dataclass(slots=True)
class Paid:
    """Seconds lost to saves and reclaims, over all pools and starts."""

    ours: float = 0.0
    best: float = 0.0
    true_rate: float = 0.0
    fixed: float = 0.0
    running: float = 0.0


def measure(settings: Settings) -> Report:
    pools = list(read_pools(settings.preemptions))
    figures: list[Figure] = []
    for save in settings.save_seconds:
        paid = Paid()
        for pool in pools:
            _pay(pool, save, settings, paid)
        figures += _figures(save, paid)
    conditions = {
        "pools": len(pools),
        "reclaims": int(sum(pool.reclaimed.sum() for pool in pools)),
        "machine_hours": round(float(sum(pool.seconds.sum() for pool in pools)) / 3600),
        "starts_of_each_machine": settings.starts,
        "seed": settings.seed,
        "operator_maximum_seconds": OPERATOR_MAXIMUM_SECONDS,
        "save_times_spread": f"+-{SAVE_SPREAD:.0%}, uniform",
        "clairvoyant": "best fixed interval in hindsight; Young/Daly with the true rate",
        "by_age": NOT_BY_AGE,
    }
    return Report(NUMBER, NAME, figures, conditions)


def read_pools(folder: Path) -> Iterator[Pool]:
    """Each trace once, though some lie there under several names; the machine given first is taken first."""
    seen: set[str] = set()
    for file in sorted(folder.rglob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        counts: list[int] = content["data"]
        digest = hashlib.sha256(repr(counts).encode()).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        seconds, reclaimed = lives(counts, content["metadata"]["gap_seconds"])
        yield Pool(str(file.relative_to(folder)), np.array(seconds, float), np.array(reclaimed, bool))


def lives(counts: Sequence[int], tick_seconds: float) -> tuple[list[float], list[bool]]:
    """Seconds of each machine's life and whether it was reclaimed, in the order of their ends."""
    alive: list[int] = []
    seconds: list[float] = []
    for tick, count in enumerate(counts):
        alive += [tick] * (count - len(alive))
        while len(alive) > count:
            seconds.append((tick - alive.pop(0)) * tick_seconds)
    reclaimed = [True] * len(seconds) + [False] * len(alive)
    return seconds + [(len(counts) - begun) * tick_seconds for begun in alive], reclaimed


def _pay(pool: Pool, save: float, settings: Settings, paid: Paid) -> None:
    chance = np.random.default_rng(settings.seed)
    late = chance.uniform(0, STARTS_WITHIN_SECONDS, (settings.starts, len(pool.seconds)))
    running = np.maximum(0.0, pool.seconds[None, :] - late)
    grid: list[float] = [OPERATOR_MAXIMUM_SECONDS]
    while grid[-1] > save:
        grid.append(grid[-1] / GRID_STEP)
    paid.best += min(static_loss(running, pool.reclaimed, interval, save) for interval in grid)
    daly = best_interval(save, pool.true_rate).seconds
    paid.true_rate += static_loss(running, pool.reclaimed, daly, save)
    paid.fixed += static_loss(running, pool.reclaimed, OPERATOR_MAXIMUM_SECONDS, save)
    paid.ours += sum(learning_loss(pool, each, save, chance) for each in running)
    paid.running += float(running.sum())


def static_loss(running: Floats, reclaimed: NDArray[np.bool_], interval: float, save: float) -> float:
    """Seconds lost with one interval throughout; every save takes its mean time."""
    saves = running // (interval + save)
    rest = running - saves * (interval + save)
    return float((saves * save + np.where(reclaimed, rest, np.maximum(0.0, rest - interval))).sum())


def learning_loss(pool: Pool, running: Floats, save: float, chance: np.random.Generator) -> float:
    """Seconds lost by the product's rule, machine after machine, knowing only what is past."""
    lost, reclaims, seen = 0.0, 0, 0.0
    save_total, save_count = UNMEASURED_SAVE_SECONDS, 1
    for life, length, ended in zip(pool.seconds, running, pool.reclaimed, strict=True):
        at = 0.0
        while at < length:
            interval = best_interval(save_total / save_count, reclaim_rate(reclaims, seen + at)).seconds
            took = save * chance.uniform(1 - SAVE_SPREAD, 1 + SAVE_SPREAD)
            if at + interval + took > length:
                lost += length - at if ended else max(0.0, length - at - interval)
                break
            at, lost = at + interval + took, lost + took
            save_total, save_count = save_total + took, save_count + 1
        reclaims, seen = reclaims + int(ended), seen + life
    return float(lost)


def _figures(save: float, paid: Paid) -> list[Figure]:
    name = f"lost + overhead, saves of {save:g} s"
    ours = 100 * paid.ours / paid.running
    best, fixed = 100 * paid.best / paid.running, 100 * paid.fixed / paid.running
    short = (
        f"the best fixed interval itself comes to {best / fixed:.2f}x of 30 min"
        if best > 0.78 * fixed
        else ""
    )
    return [
        Figure(f"{name} (1)", ours, "%", "best fixed interval in hindsight", best, at_most=1.05),
        Figure(f"{name} (2)", ours, "%", "fixed 30 min", fixed, at_most=0.8, note=short),
        Figure(f"{name} (3)", ours, "%", "Young/Daly, true rate", 100 * paid.true_rate / paid.running),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="checkpoint_interval", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--preemptions", type=Path, required=True, help="the folder of preemption traces")
    parser.add_argument("--starts", type=int, default=16, help="of a job on each machine")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="two starts, one save time")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    settings = Settings(given.preemptions, given.starts, given.seed)
    if given.quick:
        settings = Settings(given.preemptions, 2, given.seed, SAVE_SECONDS[:1])
    emit(measure(settings), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
