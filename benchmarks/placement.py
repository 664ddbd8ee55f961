"""Benchmark 6: % of cards allocated when tasks for 100 % of them have arrived, beside published FGD.

The 17 published workloads of the openb trace, seeds 42 to 51. Each task is placed or lost, nothing ends. Our
draws differ from the authors', so means over seeds are compared; their rule and best fit run on the very same
arrivals as a check. The bound is the largest flow of arrivals into the cards of the models that they may use.

    python -m benchmarks.placement --openb FOLDER [--seeds 10] [--workloads default,gpuspec33] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.openb import BEST_FIT, FGD, Arrival, arrivals, published, read_nodes, read_tasks
from benchmarks.peers.best_fit import BestFit
from benchmarks.peers.fragmentation_gradient import FragmentationGradient
from benchmarks.peers.packing_bound import bound_percent
from benchmarks.report import Figure, Report, emit
from starverse.domain.scheduling.fragmentation import NodeRoom, Placer, Workload

NUMBER = 6
NAME = "placement: cards allocated at 100 % arrivals"
FIRST_SEED = 42
PEER_SEEDS = 2
"""How many of the seeds the peers run on too: their means hardly differ from seed to seed."""

LEAST_GAIN = {"default": 0.5, "gpuspec33": 3.0}
LEAST_GAIN_ELSEWHERE = -0.2


@dataclass(frozen=True, slots=True)
class Settings:
    folder: Path
    seeds: int = 10
    workloads: tuple[str, ...] = ()
    share: float = 1.0
    nodes: int | None = None


def measure(settings: Settings) -> Report:
    nodes = read_nodes(settings.folder)[: settings.nodes]
    theirs, best_fit = published(settings.folder, FGD), published(settings.folder, BEST_FIT)
    figures: list[Figure] = []
    for workload in settings.workloads or sorted(theirs):
        figures += _measure_workload(settings, workload, nodes, theirs[workload], best_fit[workload])
    conditions = {
        "seeds": f"{FIRST_SEED}-{FIRST_SEED + settings.seeds - 1}",
        "seeds_of_peers": f"the first {min(PEER_SEEDS, settings.seeds)}",
        "nodes": len(nodes),
        "share_arrived": settings.share,
    }
    return Report(NUMBER, NAME, figures, conditions)


def _measure_workload(
    settings: Settings, workload: str, nodes: Sequence[NodeRoom], theirs: float, best_fit: float
) -> list[Figure]:
    tasks = read_tasks(settings.folder, workload)
    capacity = sum(sum(node.cards) for node in nodes)
    kinds = [arrival.task for arrival in tasks]
    usual = Workload.of_arrivals(kinds)
    rules: dict[str, Callable[[], Placer | BestFit]] = {
        "ours": lambda: Placer(usual, nodes),
        "fgd": lambda: FragmentationGradient(kinds, nodes),
        "best fit": lambda: BestFit(nodes),
    }
    percents: dict[str, list[float]] = {name: [] for name in (*rules, "bound")}
    for seed in range(FIRST_SEED, FIRST_SEED + settings.seeds):
        arriving = arrivals(tasks, capacity, seed, settings.share)
        percents["bound"].append(bound_percent(nodes, arriving))
        for name, rule in rules.items():
            if name != "ours" and seed >= FIRST_SEED + PEER_SEEDS:
                continue
            percents[name].append(allocated_percent(rule(), arriving, capacity))
    mean = {name: statistics.mean(found) for name, found in percents.items()}
    gain = LEAST_GAIN.get(workload, LEAST_GAIN_ELSEWHERE)
    return [
        Figure(
            f"{workload}: gain on published FGD",
            round(mean["ours"] - theirs, 3),
            "points",
            at_least=gain,
            note=f"{mean['ours']:.2f} %, published FGD {theirs:.2f} %, published best fit {best_fit:.2f} %",
        ),
        Figure(f"{workload}: allocated", mean["ours"], "%", "FGD's rule in this run", mean["fgd"]),
        Figure(f"{workload}: allocated", mean["ours"], "%", "best fit in this run", mean["best fit"]),
        Figure(f"{workload}: allocated", mean["ours"], "%", "capacity of cards of the models", mean["bound"]),
    ]


def allocated_percent(placer: Placer | BestFit, arriving: Sequence[Arrival], capacity_milli: int) -> float:
    """% of the capacity that is in use after each was placed or lost."""
    placed = sum(a.task.milli for a in arriving if placer.place(a.task, a.memory_mib) is not None)
    return 100 * placed / capacity_milli


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="placement", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--openb", type=Path, required=True, help="the folder of the trace")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workloads", default="", help="names with commas; default: all published ones")
    parser.add_argument("--quick", action="store_true", help="one seed of one workload on few nodes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    workloads = tuple(name for name in given.workloads.split(",") if name)
    settings = Settings(given.openb, given.seeds, workloads)
    if given.quick:
        settings = Settings(given.openb, 1, ("default",), nodes=60)
    emit(measure(settings), as_json=given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
