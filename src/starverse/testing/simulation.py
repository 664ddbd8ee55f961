"""The whole platform on a virtual clock, from a seed: random moves, rounds in random order, servers that die
between any two steps, an engine that loses calls and answers; every invariant after each tick.

A seed that fails is one line to reproduce::

    python -m starverse.testing.simulation --seed 123 --steps 400

``--seeds 0:500`` runs many. Nothing but the seed decides: no thread, no real time, no order of hashing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog

from starverse.app import admin
from starverse.db import jobs as job_rows
from starverse.domain.errors import Conflict, InvariantBroken, StarverseError
from starverse.domain.workloads.states import JobState
from starverse.engines.base import EngineUnavailable
from starverse.reconcilers.leadership import LEASE_SECONDS
from starverse.testing.crashes import SimulatedCrash
from starverse.testing.disk_invariants import DiskInspector
from starverse.testing.instance_invariants import InstanceInspector
from starverse.testing.invariants import Broken, Inspector
from starverse.testing.platforms import fresh_database
from starverse.testing.simulated_world import SimulatedServer, SimulatedWorld
from starverse.testing.simulation_moves import Moves, make_cast

STEPS_DEFAULT = 150
REST_ROUNDS_MAX = 1500
MEMORY_FOLDER = Path("/dev/shm")


class SimulationFailed(AssertionError):
    """A seed broke an invariant; the message begins with the line that reproduces it."""


@dataclass(slots=True)
class Outcome:
    """What a seed came to. ``digest`` sums up its whole history: equal for equal seeds."""

    seed: int
    steps: int
    crashes: int = 0
    hangs: int = 0
    rounds: int = 0
    jobs: int = 0
    allocations: int = 0
    hours: float = 0.0
    digest: str = ""


class Simulation:
    """One seed in a world that was made for it; ``history`` is told what happens."""

    def __init__(self, world: SimulatedWorld, outcome: Outcome, history: list[str]) -> None:
        self.world, self.outcome, self.history = world, outcome, history
        self.random = random.Random(f"{outcome.seed}:simulation")
        self.cast = make_cast(world)
        self.moves = Moves(outcome.seed, world, self.cast)
        self.inspector = Inspector(world)
        self.instances = InstanceInspector(world, self.moves.instances.promised)
        self.disks = DiskInspector(world)
        self.step = 0
        self.misled_since: datetime | None = None

    def run(self) -> Outcome:
        """All steps, then rest; raises :class:`SimulationFailed` at the first invariant that is broken."""
        begin = self.world.clock.now()
        for step in range(self.outcome.steps):
            self.step = step
            self._pass_time()
            self._note_wrong_clock()
            if self.random.random() < 0.5:
                self._survive(self._move, self.world.look_through_any())
            self._beat()
            done = self._round(self.random.sample(range(len(self.world.reconcilers)), self._how_many()))
            self._inspect(done)
        self._come_to_rest()
        outcome = self.outcome
        outcome.jobs = len(self.cast.jobs)
        outcome.allocations = len(self.world.engine.launchers)
        outcome.hours = (self.world.clock.now() - begin) / timedelta(hours=1)
        outcome.digest = hashlib.sha256("\n".join(self.history).encode()).hexdigest()[:16]
        return outcome

    def _how_many(self) -> int:
        count = len(self.world.reconcilers)
        return count if self.random.random() < 0.7 else self.random.randint(0, count)

    def _pass_time(self) -> None:
        """Seconds mostly; at times minutes; rarely the server is down for an hour with all that runs."""
        dice = self.random
        if dice.random() < 0.01:
            self._say("the server is down for an hour")
            self._let_pass(3600)
            self._restart()
            return
        spans = [dice.uniform(0.2, 3), dice.uniform(3, 30), dice.uniform(30, 300), dice.uniform(300, 1200)]
        self._let_pass(dice.choices(spans, [40, 38, 18, 4])[0])

    def _let_pass(self, seconds: float) -> None:
        self.world.clock.advance(seconds=seconds)
        self.world.engine.advance()

    def _note_wrong_clock(self) -> None:
        now = self.world.clock.now()
        wrong = self.world.platform.clock.now() < now - timedelta(seconds=1)
        if wrong and self.misled_since is None:
            self.misled_since = now
            self.inspector.misled.append((now, datetime.max.replace(tzinfo=now.tzinfo)))
        elif not wrong and self.misled_since is not None:
            self.inspector.misled[-1] = (self.misled_since, now)
            self.misled_since = None

    def _move(self) -> bool:
        try:
            self._say(self.moves.one())
        except InvariantBroken:
            raise
        except StarverseError as refused:
            self._say(f"refused: {type(refused).__name__}")
        return True

    def _beat(self) -> None:
        """Servers keep and take leases; one that hangs misses it, and may lose what it has."""
        for server in list(self.world.servers):
            if self.world.calm or self.random.random() < 0.85:
                self._survive(partial(self._beat_of, server), server)

    def _beat_of(self, server: SimulatedServer) -> bool:
        try:
            server.leadership.beat()
        except Conflict:
            return False
        return True

    def _round(self, order: Sequence[int]) -> set[str]:
        """Loops in this order, each by the server that holds its lease, each of which may be its last; the
        names of those that went well."""
        done: set[str] = set()
        self.outcome.rounds += 1
        for index in order:
            for server in self.random.sample(self.world.servers, len(self.world.servers)):
                name = server.reconcilers[index].name
                if server.leadership.holds(name) and self._survive(partial(self._act, server, index), server):
                    done.add(name)
        return done

    def _act(self, server: SimulatedServer, index: int) -> bool:
        reconciler = server.reconcilers[index]
        try:
            with server.leadership.round_of(reconciler.name) as ours:
                did = reconciler.act() if ours else ""
        except (Conflict, EngineUnavailable) as later:
            self._say(f"{server.name} {reconciler.name}: {type(later).__name__}")
            return False
        if did:
            self._say(f"{server.name} {reconciler.name}: {did}")
        return ours

    def _survive(self, act: Callable[[], bool], server: SimulatedServer) -> bool:
        """Do it; when the server dies of it, a new one takes its place. Whether it was done."""
        points = self.world.points
        if not self.world.calm and self.random.random() < 0.06:
            points.arm(int(self.random.expovariate(1 / 25)))
        if not self.world.calm and len(self.world.servers) > 1 and self.random.random() < 0.05:
            points.hang(int(self.random.expovariate(1 / 15)), partial(self._others_go_on, server))
        try:
            return act()
        except SimulatedCrash as crash:
            self._say(f"{server.name} dies: {crash}")
            self.outcome.crashes += 1
            self._let_pass(self.random.choice([0.0, 1.0, 30.0, 400.0]))
            self._look_at_nodes(self.world.replace_server(server))
            return False
        finally:
            points.arm(None)
            points.hang(None)

    def _others_go_on(self, hangs: SimulatedServer) -> None:
        """What happens while a server hangs within a round: its leases run out, others take them."""
        self.outcome.hangs += 1
        self._say(f"{hangs.name} hangs")
        self._let_pass(self.random.uniform(LEASE_SECONDS, 3 * LEASE_SECONDS))
        for server in self.world.servers:
            if server is hangs:
                continue
            self._beat_of(server)
            for index in self.random.sample(range(len(server.reconcilers)), len(server.reconcilers)):
                if server.leadership.holds(server.reconcilers[index].name):
                    self._act(server, index)

    def _restart(self) -> None:
        self.outcome.crashes += 1
        self.world.restart()
        for server in self.world.servers:
            self._look_at_nodes(server)

    def _look_at_nodes(self, server: SimulatedServer) -> None:
        """As a server does first."""
        with contextlib.suppress(EngineUnavailable, Conflict):
            server.leadership.beat()
            with server.leadership.round_of("inventory") as ours:
                if ours:
                    next(r for r in server.reconcilers if r.name == "inventory").act()

    def _come_to_rest(self) -> None:
        """No more trouble, all nodes and cards well, time enough: everything ends, or waits with a reason."""
        world = self.world
        world.calm, world.trouble_share, world.behind = True, 0.0, timedelta(0)
        self._note_wrong_clock()
        self.moves.heal()
        self._restart()
        for report in world.engine.reports:
            admin.set_drained(world.platform, self.cast.operator, report.node_id, False, None)
            for card in report.cards:
                admin.set_quarantined(world.platform, self.cast.operator, card.card_id, False, None)
        self.moves.instances.stop_all()
        everyone = range(len(world.reconcilers))
        quiet = 0
        for number in range(REST_ROUNDS_MAX):
            self._let_pass(5 if number < 10 else 60 if number < 20 else 400)
            before = len(self.history)
            self._beat()
            self._round(everyone)
            self._inspect({"sweep", "observe"})
            quiet = 0 if len(self.history) > before or self._something_goes_on() else quiet + 1
            if quiet > 2 and not self._skip_to_next_event():
                break
        self._check([*self.inspector.end(), *self.disks.end()])

    def _something_goes_on(self) -> bool:
        return any(run.claimed and not run.ended for run in self.world.engine.launchers.values())

    def _skip_to_next_event(self) -> bool:
        """Jump to when something waits for: a pause, a begin, a window. False when nothing does."""
        now = self.world.clock.now()
        with self.world.database.read() as connection:
            queued = job_rows.in_state(connection, JobState.QUEUED)
        due = [at for job in queued for at in (job.not_before, job.spec.begin) if at is not None and at > now]
        if any(job.reason == "window_closed" for job in queued):
            due.append(now + timedelta(hours=1))
        if not due:
            return False
        self._let_pass((min(due) - now).total_seconds())
        return True

    def _inspect(self, done: set[str]) -> None:
        self._check(self.inspector.tick(done))
        if self.inspector.last is not None:
            self._check(self.instances.tick(self.inspector.last))
        self._check(self.disks.tick())

    def _say(self, what: str) -> None:
        self.history.append(f"{self.step} {self.world.clock.now().isoformat()} {what}")

    def _check(self, broken: list[Broken]) -> None:
        if broken:
            raise SimulationFailed("\n".join([_line(self.outcome), *map(str, broken)]))


def simulate(
    seed: int, steps: int = STEPS_DEFAULT, history: list[str] | None = None, *, kind: str = "sqlite"
) -> Outcome:
    """Run one seed in a folder of its own, in memory where the machine has such a place.

    ``kind`` ``postgresql``: in a schema of its own on the server that ``STARVERSE_TEST_POSTGRES`` names.
    """
    outcome = Outcome(seed, steps)
    told: list[str] = [] if history is None else history
    with _folder() as folder, fresh_database(kind, folder, durable=False) as database:
        world = SimulatedWorld(seed, database, folder / "data")
        try:
            return Simulation(world, outcome, told).run()
        except SimulationFailed:
            raise
        except Exception as error:
            raise SimulationFailed(f"{_line(outcome)}\n{type(error).__name__}: {error}") from error
        finally:
            world.close()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    place = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="starverse-simulation-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(outcome: Outcome) -> str:
    return f"python -m starverse.testing.simulation --seed {outcome.seed} --steps {outcome.steps}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds; exits 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m starverse.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", help="FIRST:END, such as 0:500")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--history", type=int, default=0, metavar="LINES", help="of a failure")
    options = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    first, _, end = (options.seeds or f"{options.seed}:{options.seed + 1}").partition(":")
    failed = 0
    for seed in range(int(first), int(end)):
        history: list[str] = []
        try:
            print(simulate(seed, options.steps, history, kind=options.database), flush=True)  # noqa: T201
        except SimulationFailed as failure:
            failed += 1
            print(*history[len(history) - options.history :], failure, sep="\n", flush=True)  # noqa: T201
            if failure.__cause__ is not None and options.history:
                import traceback

                traceback.print_exception(failure.__cause__)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
