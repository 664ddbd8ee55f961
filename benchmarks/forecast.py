"""Benchmark 10: free cards forecast 1 to 72 hours ahead, beside persistence, a day and a week before.

Philly: free nodes of the cluster (``total`` - ``active``); Earth: idle cards of each virtual cluster. Both on
the hour. Origins roll hour by hour, from the third week on (Earth: the second); every fit has seen only what
was known at its origin. The peer is the best of the three naive methods over the same origins, chosen in
hindsight for each series and horizon.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, Report, emit
from starverse.domain.forecasting.backtest import Told, cards_told
from starverse.domain.forecasting.free_cards import NAIVE
from starverse.domain.forecasting.series import Floats, HourlySeries

HORIZONS = {1: 1.00, 6: 0.95, 24: 0.85, 72: 0.75}
"""Hours ahead, with the target on Philly as a share of the best naive error."""
PHILLY_START_HOURS = 336
EARTH_START_HOURS = 168
PHILLY_NODES = "philly/node_sequence_1min.csv.gz"
TRIED = "tried: ridge and least-absolute regression on 8 memories, exponentiated gradient, mixes of them"


def philly_free(file: Path) -> Floats:
    """Free nodes on the hour."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        rows = [
            (datetime.fromisoformat(row["time"]), float(row["total"]) - float(row["active"]))
            for row in csv.DictReader(text)
            if row["time"][14:16] == "00"
        ]
    first = rows[0][0]
    values = np.full(round((rows[-1][0] - first).total_seconds() / 3600) + 1, np.nan)
    for at, free in rows:
        values[round((at - first).total_seconds() / 3600)] = free
    return HourlySeries(first.replace(tzinfo=UTC), values).filled().values


def earth_idle(file: Path) -> Floats:
    """Idle cards of one virtual cluster on the hour."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        idle = [float(row["idle_gpu_num"]) for row in csv.DictReader(text) if row["time"][14:16] == "00"]
    return np.array(idle)


def best_naive(told: Told) -> float:
    """The error of the naive method that was best over these origins."""
    return min(told.error(name) for name in NAIVE)


def measure(data: Path, clusters: int | None, horizons: Sequence[int]) -> Report:
    """Both data sets; ``clusters`` of Earth (``None``: all)."""
    figures: list[Figure] = []
    philly = philly_free(data / PHILLY_NODES)
    earth = [earth_idle(file) for file in sorted((data / "helios/earth_vc").glob("*.csv.gz"))[:clusters]]
    for ahead in horizons:
        told, inside = cards_told(philly, ahead, PHILLY_START_HOURS)
        ours, best, target = told.error("forecast"), best_naive(told), HORIZONS[ahead]
        note = f"{ours / best - target:.3f} above the target; {TRIED}" if ours > target * best else ""
        figures.append(
            Figure(
                f"Philly, {ahead} h ahead, error",
                ours,
                "nodes",
                "best naive",
                best,
                at_most=target,
                note=note,
            )
        )
        figures.append(Figure(f"Philly, {ahead} h ahead, inside the 90 % band", 100 * inside, "%"))
    for ahead in horizons:
        parts = [cards_told(values, ahead, EARTH_START_HOURS)[0] for values in earth]
        worse = sum(part.error("forecast") > best_naive(part) + 1e-9 for part in parts)
        figures.append(
            Figure(
                f"Earth, {ahead} h ahead, error",
                float(np.mean([part.error("forecast") for part in parts])),
                "cards",
                "best naive",
                float(np.mean([best_naive(part) for part in parts])),
                at_most=1.0,
                note=f"above its best naive in {worse} of {len(parts)} virtual clusters" if worse else "",
            )
        )
    conditions = {
        "seed": "none: nothing is drawn",
        "philly_hours": len(philly),
        "earth_hours": len(earth[0]),
        "naive": ", ".join(NAIVE),
        "fit": "daily, on what was known at each origin",
    }
    return Report(10, "forecast", figures, conditions)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="forecast", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--helios", type=Path, required=True, help="the folder helios; philly lies beside it")
    parser.add_argument("--quick", action="store_true", help="one virtual cluster, two horizons")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report = measure(
        given.helios.parent, 1 if given.quick else None, (1, 24) if given.quick else tuple(HORIZONS)
    )
    emit(report, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
