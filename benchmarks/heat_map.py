"""Benchmark 11: the probability that N cards are free together, 1 to 72 hours ahead, beside naive methods.

Availability traces: nine zones of one machine, three zones of 16 (asked for 1, 4, 8 and 16). Origins roll
hour by hour from the second week on; the model is fitted anew each day over all zones of one data set on what
was known then, the later data set (August) starting from the coefficients of the earlier one (February).
Climatology is the share at the same hour of the week in the zone's past, drawn to its overall share; that
overall share, persistence and a two-state Markov chain stand beside.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, Report, emit
from starverse.domain.forecasting.availability import AvailabilityModel, Flags, probability
from starverse.domain.forecasting.backtest import Told, calibration, chances_told, join, skill
from starverse.domain.forecasting.series import HourlySeries

HORIZONS = {1: 0.45, 6: 0.28, 24: 0.20, 72: 0.10}
"""Hours ahead, with the skill to reach against climatology."""
BESIDE = ("share of the past", "persistence", "Markov")
START_HOURS = 168
POOLS, HOURS, SPEED_MAX_MS = 64, 72, 100.0
ERROR_MAX = 0.03


def read(file: Path, cards: int) -> Flags:
    """One zone's trace, asked for ``cards``."""
    trace = json.loads(file.read_text("utf-8"))
    return Flags(np.array(trace["data"], dtype=np.float64), cards, int(trace["metadata"]["gap_seconds"]))


def data_sets(data: Path, zones: int | None) -> list[list[Flags]]:
    """The two data sets, the earlier one first."""
    one = sorted(data.glob("1-node/*/*.json"))[:zones]
    many = sorted(data.glob("16-node/*/*.json"))[:zones]
    return [[read(file, 1) for file in one], [read(file, cards) for file in many for cards in (1, 4, 8, 16)]]


def measure(data: Path, zones: int | None, horizons: Sequence[int]) -> Report:
    """Skill and calibration of each horizon, over both data sets; then speed."""
    sets = data_sets(data, zones)
    figures: list[Figure] = []
    every: list[Told] = []
    for ahead in horizons:
        first, coefficients = chances_told(sets[0], ahead, START_HOURS)
        second, _ = chances_told(sets[1], ahead, START_HOURS, coefficients)
        told = join([first, second])
        every.append(told)
        figures += _figures(told, ahead)
        alone = skill(first.by_method["forecast"], first.by_method["climatology"], first.outcome)
        figures.append(Figure(f"skill {ahead} h, nine zones of one machine only", alone, ""))
    overall = join(every)
    error = calibration(overall.by_method["forecast"], overall.outcome)
    figures.append(Figure("calibration error, all horizons", error, "", at_most=ERROR_MAX))
    figures.append(Figure(f"{HOURS} h x {POOLS} pools", speed_ms(sets), "ms", at_most=SPEED_MAX_MS))
    conditions = {
        "seed": "none: nothing is drawn",
        "zones": [len(flags) for flags in sets],
        "climatology": "share at the same hour of the week, drawn to the overall share; of the past only",
        "fit": "daily, on what was known then; 72 h x 64 pools is with a model that is fitted",
    }
    return Report(11, "heat-map", figures, conditions)


def _figures(told: Told, ahead: int) -> list[Figure]:
    ours = told.by_method["forecast"]
    value = skill(ours, told.by_method["climatology"], told.outcome)
    note = f"climatology's Brier score {told.brier('climatology'):.4f}, ours {told.brier('forecast'):.4f}"
    figures = [Figure(f"skill {ahead} h against climatology", value, "", at_least=HORIZONS[ahead], note=note)]
    figures += [
        Figure(f"skill {ahead} h against {name}", skill(ours, told.by_method[name], told.outcome), "")
        for name in BESIDE
    ]
    error = calibration(ours, told.outcome)
    note = f"{error - ERROR_MAX:.3f} above the target; the zones' levels moved" if error > ERROR_MAX else ""
    return [*figures, Figure(f"calibration error {ahead} h", error, "", at_most=ERROR_MAX, note=note)]


def speed_ms(sets: Sequence[Sequence[Flags]]) -> float:
    """Median of five heat maps over ``POOLS`` pools."""
    pasts = [past for flags in sets for past in flags]
    model = AvailabilityModel.fitted(pasts[:2])
    start = datetime(2023, 2, 15, tzinfo=UTC)
    pools = [HourlySeries(start, past.free, past.step_seconds) for past in pasts]
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        for pool in range(POOLS):
            probability(pools[pool % len(pools)], 1, range(1, HOURS + 1), model)
        taken.append((time.perf_counter() - begun) * 1000)
    return float(np.median(taken))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="heat_map", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--traces", type=Path, required=True, help="the folder of availability traces")
    parser.add_argument("--quick", action="store_true", help="one zone of each data set, two horizons")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report = measure(given.traces, 1 if given.quick else None, (1, 24) if given.quick else tuple(HORIZONS))
    emit(report, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
