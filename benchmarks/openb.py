"""The openb traces: nodes, tasks as they arrive at a given load, and what FGD's authors published of them."""

from __future__ import annotations

import csv
import gzip
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starverse.domain.scheduling.fragmentation import CARD, NodeRoom, Task

FGD = "06-FGD"
BEST_FIT = "05-BestFit"
ANY_MEMORY_MIB = 1 << 40


@dataclass(frozen=True, slots=True)
class Arrival:
    task: Task
    memory_mib: int


def read_nodes(folder: Path) -> list[NodeRoom]:
    """The 1,213 nodes with cards, all free."""
    with (folder / "openb_node_list_gpu_node.csv").open(encoding="utf-8") as text:
        return [
            NodeRoom(r["model"], int(r["cpu_milli"]), int(r["memory_mib"]), (CARD,) * int(r["gpu"]))
            for r in csv.DictReader(text)
        ]


def read_larger_nodes(folder: Path) -> list[NodeRoom]:
    """The 4,278 nodes of the list of 2026, all free; it does not say their memory."""
    with (folder / "alibaba_v2026_spot_gpu_nodes.csv").open(encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    return [
        NodeRoom(
            r["gpu_model"],
            int(float(r["cpu_num"]) * 1000),
            ANY_MEMORY_MIB,
            (CARD,) * int(float(r["gpu_capacity_num"])),
        )
        for r in rows
    ]


def read_tasks(folder: Path, workload: str) -> list[Arrival]:
    """The tasks of one workload in the order of the file."""
    path = folder / "pods" / f"openb_pod_list_{workload}.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as text:
        return [_arrival(row) for row in csv.DictReader(text)]


def arrivals(tasks: Sequence[Arrival], capacity_milli: int, seed: int, share: float = 1.0) -> list[Arrival]:
    """What has arrived when the cards asked for reach ``share`` of the capacity.

    As published: the list is brought to 1.3 of the capacity (tasks drawn again with replacement, or left out
    where it is more), shuffled, and cut where the share is reached.
    """
    chance = random.Random(seed)
    wanted = 1.3 * capacity_milli
    all_of_them, total = list(tasks), sum(arrival.task.milli for arrival in tasks)
    while total < wanted:
        drawn = tasks[chance.randrange(len(tasks))]
        all_of_them.append(drawn)
        total += drawn.task.milli
    chance.shuffle(all_of_them)
    taken, asked = [], 0
    for arrival in all_of_them:
        if asked >= share * capacity_milli:
            break
        taken.append(arrival)
        asked += arrival.task.milli
    return taken


def published(folder: Path, policy: str) -> dict[str, float]:
    """% of cards allocated when 100 % have arrived, by workload, mean over the published seeds."""
    found: dict[str, list[float]] = defaultdict(list)
    path = folder / "fgd-published" / "analysis_allo_discrete.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            if row["sc_policy"] == policy:
                found[row["workload"].removeprefix("openb_pod_list_")].append(float(row["100"]))
    return {workload: statistics.mean(values) for workload, values in found.items()}


def _arrival(row: dict[str, str]) -> Arrival:
    cards = int(row["num_gpu"])
    part = int(row["gpu_milli"]) if cards == 1 else CARD
    models = frozenset(model for model in (row.get("gpu_spec") or "").split("|") if model)
    return Arrival(Task(int(row["cpu_milli"]), cards, part, models), int(row["memory_mib"]))
