"""A world from a seed: its nodes, what happens to its runs, its clock that may jump, its servers that die.

One to three servers share it, as several share a PostgreSQL: each runs the loops whose leases it holds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from starverse.app.platform import Platform
from starverse.app.ports import SystemClock, Wakeups
from starverse.app.servers import KnownServers, Server
from starverse.checkpoint.manifest import folder_name
from starverse.db.session import Database
from starverse.domain.cluster import NodeReport
from starverse.domain.workloads.launch import LaunchSpec
from starverse.engines.fake import Call, FakeRun, Trouble
from starverse.main import make_reconcilers
from starverse.reconcilers.driver import Reconciler
from starverse.reconcilers.leadership import Leadership, Terms
from starverse.testing.crashes import CrashingClock, CrashingDatabase, CrashingEngine, CrashPoints, SeededIds
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import make_platform
from starverse.testing.worlds import World

NEVER = float("inf")
STEP_ZERO = 1_700_000_000
"""Steps of checkpoints are seconds since this instant of the epoch (as in :class:`World`)."""


@dataclass(slots=True)
class SimulatedServer:
    """One server: its own connections, its loops, and the leases that it holds."""

    name: str
    database: CrashingDatabase
    platform: Platform
    reconcilers: list[Reconciler]
    leadership: Leadership


class SimulatedWorld(World):
    """A :class:`World` whose every surprise comes from ``seed``.

    ``clock`` is the true time, which launchers and the database keep. The servers' wall clocks read
    ``behind`` less, as one that was set back. ``database`` is for looking from outside; servers use their
    own, which die with them. In two worlds of five the engine binds the cards itself.
    """

    def __init__(self, seed: int, database: Database, data: Path) -> None:
        self.seed = seed
        self.random = random.Random(f"{seed}:world")
        self.points = CrashPoints()
        self.behind = timedelta(0)
        self.calm = False
        self.trouble_share = 0.0
        self.damaged: set[tuple[str, str]] = set()
        self.published: set[tuple[str, str]] = set()
        self.started = 0
        self.servers: list[SimulatedServer] = []
        self._trouble_random = random.Random(f"{seed}:trouble")
        self._bind_random = random.Random(f"{seed}:bind")
        nodes = _random_nodes(self.random)
        self._how_many = self.random.choice([1, 2, 2, 3])
        bind = self._bind if self.random.random() < 0.4 else None
        super().__init__(database, data, nodes=nodes, trouble=self._trouble, bind=bind, lease_seconds=30)
        self.clock.advance(hours=self.random.uniform(0, 24))

    def restart(self) -> None:
        """Every server dies, and as many new ones take over."""
        self.close()
        self.servers = [self._start_server() for _ in range(self._how_many)]
        self._look_through(self.servers[0])

    def replace_server(self, dead: SimulatedServer) -> SimulatedServer:
        """One server died: another one starts, and knows nothing but what is on record."""
        self.points.arm(None)
        self.points.hang(None)
        dead.database.close()
        new = self._start_server()
        self.servers[self.servers.index(dead)] = new
        self._look_through(self.servers[0])
        return new

    def look_through_any(self) -> SimulatedServer:
        """The next request goes to one of the servers."""
        server = self.random.choice(self.servers)
        self._look_through(server)
        return server

    def _look_through(self, server: SimulatedServer) -> None:
        self.platform, self.reconcilers = server.platform, server.reconcilers

    def _start_server(self) -> SimulatedServer:
        self.points.arm(None)
        self.started += 1
        name = f"server-{self.started}"
        database = CrashingDatabase(self.database, self.points)
        clock = SystemClock(self.wall_clock, lambda: self.clock.now().timestamp())
        settings: dict[str, Any] = self.settings
        platform = make_platform(
            database,
            self.data,
            CrashingEngine(self.engine, self.points),
            clock=CrashingClock(clock, self.points),
            ids=SeededIds(f"{self.seed}:{self.started}", self.clock.now),
            **settings,
        )
        reconcilers = make_reconcilers(platform)
        terms = Terms(
            alone=False,
            clock=lambda _: self.clock.now(),
            elapsed=lambda: self.clock.now().timestamp(),
        )
        names = [reconciler.name for reconciler in reconcilers]
        leadership = Leadership(database, KnownServers(Server(name)), names, Wakeups(), terms)
        return SimulatedServer(name, database, platform, reconcilers, leadership)

    def wall_clock(self) -> datetime:
        """What the server's machine shows: behind the true time after it was set back."""
        return self.clock.now() - self.behind

    def close(self) -> None:
        """The last servers go too."""
        self.points.arm(None)
        self.points.hang(None)
        for server in self.servers:
            server.database.close()
        self.servers = []

    def set_reports(self, reports: Sequence[NodeReport]) -> None:
        """What the engine sees of its nodes from now on."""
        self.engine.reports = tuple(reports)

    def _trouble(self, _call: Call, _id: str) -> Trouble | None:
        if not self.trouble_share or self._trouble_random.random() >= self.trouble_share:
            return None
        return self._trouble_random.choice(list(Trouble))

    def _bind(self, _spec: LaunchSpec, _node: str, free: Sequence[int], count: int) -> Sequence[int]:
        return self._bind_random.sample(free, min(count, len(free)))

    def _plan(self, spec: LaunchSpec) -> FakeRun:
        """What happens to one run: the same for the same job and attempt, whatever else happens."""
        dice = random.Random(f"{self.seed}:{spec.job_number}:{spec.attempt}")
        run = random_instance_run(dice) if spec.interactive else random_run(dice)
        return replace(run, failure="", dies_at_seconds=NEVER, silent=None) if self.calm else run

    def _publish(self, spec: LaunchSpec, at: float) -> None:
        """Publish, dated by the true time; one in ten is damaged on disk afterwards."""
        super()._publish(spec, at)
        folder = Path(spec.checkpoints) / folder_name(int(at) - STEP_ZERO, spec.attempt)
        if not folder.is_dir():
            return
        os.utime(folder, (at, at))
        key = (Path(spec.checkpoints).name, folder.name)
        dice = random.Random(f"{self.seed}:{spec.job_number}:{folder.name}")
        state = folder / "state"
        if key not in self.published and dice.random() < 0.1:
            state.write_bytes(b"?" + state.read_bytes()[1:])
            os.utime(folder, (at, at))
            self.damaged.add(key)
        elif state.read_bytes() == str(at).encode():
            self.damaged.discard(key)  # saved anew in the same second, over the damaged one
        self.published.add(key)


def random_run(dice: random.Random) -> FakeRun:
    """One of the many ways in which a run may go."""
    length = dice.choice([dice.uniform(1, 120), dice.uniform(60, 1800), dice.uniform(1800, 12_000)])
    return FakeRun(
        start_seconds=dice.uniform(60, 200) if dice.random() < 0.03 else dice.uniform(0.2, 5),
        failure="no such image" if dice.random() < 0.05 else "",
        run_seconds=length,
        exit_code=dice.choices([0, 1, 99], [80, 15, 5])[0],
        exit_signal=9 if dice.random() < 0.04 else None,
        out_of_memory=dice.random() < 0.02,
        obeys_notice=dice.random() < 0.8,
        notice_exit_seconds=dice.uniform(0.1, 60),
        notice_exit_code=dice.choices([99, 0, 1], [85, 10, 5])[0],
        ignores_term=dice.random() < 0.15,
        checkpoint_seconds=dice.uniform(20, 900) if dice.random() < 0.7 else None,
        dies_at_seconds=dice.uniform(0, length) if dice.random() < 0.06 else NEVER,
        silent=_random_silence(dice, length) if dice.random() < 0.1 else None,
    )


def random_instance_run(dice: random.Random) -> FakeRun:
    """One of the ways in which a start of an instance may go: most go on until they are stopped."""
    run = random_run(dice)
    ends = dice.random() < 0.1
    active = [
        (source, begin, begin + dice.uniform(1, 900))
        for source in ("cards", "ssh", "cpu")
        for begin in (dice.uniform(0, 4000),)
        if dice.random() < 0.5
    ]
    return replace(
        run,
        run_seconds=run.run_seconds if ends else NEVER,
        checkpoint_seconds=None,
        out_of_memory=run.out_of_memory and ends,
        active=tuple(active),
    )


def _random_silence(dice: random.Random, length: float) -> tuple[float, float]:
    start = dice.uniform(0, length)
    return start, start + dice.uniform(5, 2000)


def _random_nodes(dice: random.Random) -> tuple[NodeReport, ...]:
    """Two to four nodes: at least two alike, so that gangs fit; fabrics and models vary."""
    fabric = dice.choice(["eth", "ib"])
    cards = dice.choice([2, 4, 8])
    nodes = [node_report(f"n{i}", "rtx4090", cards, fabric=fabric) for i in (1, 2)]
    if dice.random() < 0.6:
        nodes.append(node_report("n3", dice.choice(["a100-40g", "rtx3090"]), dice.choice([1, 2, 4])))
    if dice.random() < 0.3:
        nodes.append(node_report("n4", "rtx4090", 2, fabric="ib" if fabric == "eth" else "eth"))
    return tuple(nodes)
