"""A full cluster of any size on the fake engine and a virtual clock, with arrivals like those of Philly.

Run times and card counts are drawn from the trace with a seed; arrivals are spread so that, once the cluster
is full, as much comes as ends. Jobs of more cards than a node has are gangs of whole nodes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.philly import Arrival
from starverse.app.identity import Identity
from starverse.db.session import Database
from starverse.domain.cluster import NodeReport
from starverse.domain.workloads.launch import LaunchSpec
from starverse.engines.fake import FakeRun
from starverse.testing.node_reports import node_report
from starverse.testing.worlds import World

CARDS_PER_NODE = 8
GANG_CARDS_MAX = 64
ARRAY_TASKS = 5_000
TEAMS = 20
SPOT_SHARE = 0.3
PLENTY_YUAN = "9000000000"

T = TypeVar("T")


@dataclass(slots=True)
class Times:
    """CPU seconds of this thread by what took them: other work on the machine does not count."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def taking(self, what: str) -> Iterator[None]:
        begun = time.thread_time()
        yield
        self.seconds.setdefault(what, []).append(time.thread_time() - begun)

    def timed(self, what: str, act: Callable[[], T]) -> T:
        with self.taking(what):
            return act()

    def median(self, what: str) -> float:
        return statistics.median(self.seconds[what]) if self.seconds.get(what) else 0.0


class ScaleWorld(World):
    """``run_seconds`` gives the run time of an allocation from its array task, else from its job's name."""

    def __init__(self, database: Database, data: Path, cards: int) -> None:
        self.lengths: dict[tuple[str, int], float] = {}
        super().__init__(database, data, nodes=_nodes(cards), queued_jobs_max=10**6)

    def _plan(self, spec: LaunchSpec) -> FakeRun:
        words = dict(spec.environment)
        task = int(words.get("SLURM_ARRAY_TASK_ID", -1))
        return FakeRun(run_seconds=self.lengths.get((words["SLURM_JOB_NAME"], task), 600.0))


def _nodes(cards: int) -> tuple[NodeReport, ...]:
    """Nodes of eight cards, each sixteenth of them of another fabric."""
    count = cards // CARDS_PER_NODE
    return tuple(
        node_report(f"n{index:05d}", fabric="ib" if index % 16 == 0 else "eth") for index in range(count)
    )


class Load:
    """Deals jobs to teams, first as many as fill the cluster, then one for each that ends."""

    def __init__(self, world: ScaleWorld, arrivals: Sequence[Arrival], seed: int) -> None:
        self.world = world
        self.arrivals = [arrival for arrival in arrivals if arrival.cards <= GANG_CARDS_MAX]
        self.random = random.Random(seed)
        self.teams: list[Identity] = [world.team(f"team{n}", PLENTY_YUAN) for n in range(TEAMS)]
        self._names = 0

    def fill(self, cards: int) -> int:
        """Queue arrays whose tasks take all cards, each in the middle of its run; how many tasks."""
        by_size: dict[int, list[float]] = {}
        left = cards
        while left > 0:
            arrival = self._draw_running()
            by_size.setdefault(arrival.cards, []).append(arrival.run_seconds * self.random.random())
            left -= arrival.cards
        for size, lengths in sorted(by_size.items()):
            for start in range(0, len(lengths), ARRAY_TASKS):
                self._submit_array(size, lengths[start : start + ARRAY_TASKS])
        return sum(map(len, by_size.values()))

    def arrive(self) -> None:
        """One more job, as the trace has them."""
        arrival = self.random.choice(self.arrivals)
        name = self._name()
        self.world.lengths[name, -1] = arrival.run_seconds
        self.world.submit(self._team(), *_size_words(arrival.cards), *self._tariff(), name=name)

    def _draw_running(self) -> Arrival:
        """Of the jobs that run at some moment: a longer one is met more often."""
        if not hasattr(self, "_by_length"):
            self._by_length = [arrival.run_seconds for arrival in self.arrivals]
        return self.random.choices(self.arrivals, weights=self._by_length)[0]

    def _submit_array(self, size: int, lengths: Sequence[float]) -> None:
        name = self._name()
        self.world.lengths |= {(name, index): max(1.0, length) for index, length in enumerate(lengths)}
        array = f"--array=0-{len(lengths) - 1}"
        self.world.submit(self._team(), array, *_size_words(size), *self._tariff(), name=name)

    def _tariff(self) -> tuple[str, ...]:
        return ("--tariff=spot",) if self.random.random() < SPOT_SHARE else ()

    def _team(self) -> Identity:
        return self.random.choice(self.teams)

    def _name(self) -> str:
        self._names += 1
        return f"j{self._names}"


def _size_words(cards: int) -> tuple[str, ...]:
    nodes = max(1, cards // CARDS_PER_NODE)
    each = min(cards, CARDS_PER_NODE)
    words = [f"--gres=gpu:rtx4090:{each}", "--cpus-per-task=1", f"--mem={each * 4}G", "--time=60-0"]
    return (*words, f"--nodes={nodes}") if nodes > 1 else tuple(words)
