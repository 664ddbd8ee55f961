"""Servers that die between any two steps: every statement, commit, call of the engine and look at the clock
is a point at which the process may be gone.

The parts of a platform are wrapped and handed in as usual. A crash is a ``BaseException``, so that no
``except Exception`` of the product survives it, as none survives ``kill -9``.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, event

from starverse.app.ports import Clock
from starverse.db.session import Database
from starverse.domain.cluster import NodeReport
from starverse.domain.workloads.launch import Desired, LaunchSpec
from starverse.engines.base import Capabilities, DiskStore, DiskTree, DiskUse, Engine, Observation

OUTSIDE = ("before submit", "before steer", "before clean", "after a commit", "after running")
"""Where no transaction is open."""


class SimulatedCrash(BaseException):
    """The server is gone at this point; only a new one over the same database and engine goes on."""


class CrashPoints:
    """Counts the steps that a server takes; when armed, the server dies at one of them, or hangs there.

    It hangs outside of transactions only: within one, its database's server would hang with it.
    """

    def __init__(self) -> None:
        self.passed = 0
        self._left: int | None = None
        self._hangs_in: int | None = None
        self._meanwhile: Callable[[], None] = lambda: None

    def arm(self, steps: int | None) -> None:
        """Die after so many more steps; ``None``: live on."""
        self._left = steps

    def hang(self, steps: int | None, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Hang at the first point outside of a transaction after so many more steps, while ``meanwhile``
        happens to others; ``None``: do not."""
        self._hangs_in, self._meanwhile = steps, meanwhile

    def step(self, where: str) -> None:
        """A point that may be the last one."""
        self.passed += 1
        if self._hangs_in is not None:
            self._hangs_in -= 1
            if self._hangs_in < 0 and where.startswith(OUTSIDE):
                dies_in, self._left, self._hangs_in = self._left, None, None
                self._meanwhile()
                self._left = dies_in
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            self._left = None
            raise SimulatedCrash(where)


class CrashingDatabase(Database):
    """Dies before and after every transaction, before every statement, and before a commit. Its connections
    are its own, to the same database as ``like``."""

    def __init__(self, like: Database, points: CrashPoints) -> None:
        super().__init__(like.url, durable=False, like=like)
        self._points = points
        event.listen(self.engine, "before_cursor_execute", self._before_statement)

    def _before_statement(self, _connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        self._points.step(f"statement: {statement[:60]}")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with super().read() as connection:
            yield connection
        self._points.step("after a read")

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with super().write() as connection:
            yield connection
            self._points.step("before a commit")
        self._points.step("after a commit")


class CrashingEngine:
    """Dies before and after every call of the engine; the engine itself lives on."""

    def __init__(self, engine: Engine, points: CrashPoints) -> None:
        self._engine, self._points = engine, points

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def disks(self) -> DiskStore:
        return CrashingDisks(self._engine.disks, self._points)

    def nodes(self) -> tuple[NodeReport, ...]:
        with self._around("nodes"):
            return self._engine.nodes()

    def submit(self, launch: LaunchSpec) -> None:
        with self._around("submit"):
            self._engine.submit(launch)

    def steer(self, allocation_id: str, desired: Desired) -> None:
        with self._around("steer"):
            self._engine.steer(allocation_id, desired)

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        with self._around("observe"):
            return self._engine.observe(allocation_ids)

    def running(self) -> tuple[str, ...]:
        with self._around("running"):
            return self._engine.running()

    def clean(self, allocation_id: str) -> None:
        with self._around("clean"):
            self._engine.clean(allocation_id)

    def open_stream(self, allocation_id: str, kind: str = "ssh") -> socket.socket:
        with self._around("open_stream"):
            return self._engine.open_stream(allocation_id, kind)

    def on_news(self, wake: Callable[[], None]) -> None:
        self._engine.on_news(wake)

    @contextmanager
    def _around(self, call: str) -> Iterator[None]:
        self._points.step(f"before {call}")
        yield
        self._points.step(f"after {call}")


class CrashingDisks:
    """Dies before and after every call of the storage of disks, which lives on."""

    def __init__(self, disks: DiskStore, points: CrashPoints) -> None:
        self._disks, self._points = disks, points

    def make(self, tree: DiskTree, snapshot: tuple[str, str] | None) -> bool:
        with self._around("make"):
            return self._disks.make(tree, snapshot)

    def grow(self, tree: DiskTree) -> None:
        with self._around("grow"):
            self._disks.grow(tree)

    def take_snapshot(self, tree: DiskTree, snapshot_id: str) -> int:
        with self._around("take_snapshot"):
            return self._disks.take_snapshot(tree, snapshot_id)

    def remove_snapshot(self, disk_id: str, snapshot_id: str) -> None:
        with self._around("remove_snapshot"):
            self._disks.remove_snapshot(disk_id, snapshot_id)

    def remove(self, disk_id: str) -> None:
        with self._around("remove"):
            self._disks.remove(disk_id)

    def measure(self, tree: DiskTree, seconds_max: float) -> DiskUse | None:
        with self._around("measure"):
            return self._disks.measure(tree, seconds_max)

    def ids(self) -> tuple[str, ...]:
        with self._around("ids"):
            return self._disks.ids()

    @contextmanager
    def _around(self, call: str) -> Iterator[None]:
        self._points.step(f"before {call} of a disk")
        yield
        self._points.step(f"after {call} of a disk")


class CrashingClock:
    """Dies whenever it is looked at: between statements, inside and outside transactions."""

    def __init__(self, clock: Clock, points: CrashPoints) -> None:
        self._clock, self._points = clock, points

    def now(self) -> datetime:
        self._points.step("clock")
        return self._clock.now()


class SeededIds:
    """The same ids in every run of a seed, in the order of time as uuid7 is."""

    def __init__(self, seed: str, clock: Callable[[], datetime]) -> None:
        self._random = random.Random(seed)
        self._clock = clock
        self._count = 0

    def uuid7(self) -> str:
        self._count += 1
        milliseconds = int(self._clock().timestamp() * 1000)
        rest = 0x8 << 60 | self._random.getrandbits(62)
        digits = f"{milliseconds:012x}7{self._count % 4096:03x}{rest:016x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def secret(self) -> str:
        return f"{self._random.getrandbits(256):064x}"
