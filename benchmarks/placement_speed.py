"""Benchmark 7: placing one task after another, beside best fit by one pass of arrays over all nodes.

The arrivals of the openb trace's default workload on its 1,213 nodes, then the same number of tasks of the
same kinds on the 4,278 nodes of the list of 2026. One decision is one task placed or found to fit nowhere;
times are CPU time of the one thread that decides.

    python -m benchmarks.placement_speed --openb FOLDER [--tasks 8000] [--rounds 3] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.openb import Arrival, arrivals, read_larger_nodes, read_nodes, read_tasks
from benchmarks.peers.best_fit import BestFit
from benchmarks.peers.fragmentation_gradient import FragmentationGradient
from benchmarks.report import Figure, Report, emit
from starverse.domain.scheduling.fragmentation import Placer, Workload

NUMBER = 7
NAME = "placement: decisions a second"
SEED = 42
A_SECOND_AT_LEAST = 5_000
P99_AT_MOST_MS = 2.0
LARGER_AT_MOST = 1.5


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one rule on one list of nodes."""

    a_second: float
    p99_ms: float
    milliseconds: float


def measure(folder: Path, count: int, rounds: int) -> Report:
    small, large = read_nodes(folder), read_larger_nodes(folder)
    tasks = read_tasks(folder, "default")
    arriving = arrivals(tasks, sum(sum(node.cards) for node in small), SEED)[:count]
    kinds = [arrival.task for arrival in tasks]
    usual = Workload.of_arrivals(kinds)
    ours = speed(lambda: Placer(usual, small), arriving, rounds)
    larger = speed(lambda: Placer(usual, large), arriving, rounds)
    fgd = speed(lambda: FragmentationGradient(kinds, small), arriving, rounds)
    best_fit = speed(lambda: BestFit(small), arriving, rounds)
    larger_best_fit = speed(lambda: BestFit(large), arriving, rounds)
    few, many = f"{len(small):,} nodes", f"{len(large):,} nodes"
    figures = [
        Figure(f"{few}: decisions", ours.a_second, "a second", at_least=A_SECOND_AT_LEAST),
        Figure(f"{few}: p99 of a decision", ours.p99_ms, "ms", at_most=P99_AT_MOST_MS),
        Figure(f"{few}: decisions", ours.a_second, "a second", "best fit", best_fit.a_second),
        Figure(f"{few}: decisions", ours.a_second, "a second", "FGD's rule", fgd.a_second),
        Figure(
            f"{many}: a decision",
            larger.milliseconds,
            "ms",
            f"on {few}",
            ours.milliseconds,
            at_most=LARGER_AT_MOST,
        ),
        Figure(f"{many}: p99 of a decision", larger.p99_ms, "ms"),
        Figure(f"{many}: decisions", larger.a_second, "a second", "best fit", larger_best_fit.a_second),
    ]
    return Report(NUMBER, NAME, figures, {"seed": SEED, "tasks": len(arriving), "rounds": rounds})


def speed(rule: Callable[[], Placer | BestFit], arriving: Sequence[Arrival], rounds: int) -> Speed:
    """Of the median round; thinking about the usual tasks beforehand is not a decision."""
    return sorted((_round(rule(), arriving) for _ in range(rounds)), key=lambda s: s.a_second)[rounds // 2]


def _round(placer: Placer | BestFit, arriving: Sequence[Arrival]) -> Speed:
    seconds: list[float] = []
    for arrival in arriving:
        begun = time.thread_time()
        placer.place(arrival.task, arrival.memory_mib)
        seconds.append(time.thread_time() - begun)
    p99 = statistics.quantiles(seconds, n=100)[98]
    return Speed(len(seconds) / sum(seconds), 1000 * p99, 1000 * statistics.mean(seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="placement-speed", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--openb", type=Path, required=True, help="the folder of the trace")
    parser.add_argument("--tasks", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="300 tasks, once")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    count, rounds = (300, 1) if given.quick else (given.tasks, given.rounds)
    emit(measure(given.openb, count, rounds), as_json=given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
