"""The fake engine: deterministic, without threads, files or processes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from starverse.domain.workloads.launch import Desired, LaunchSpec
from starverse.engines.base import (
    Capabilities,
    DiskStore,
    EngineUnavailable,
    NodeReport,
    Observation,
    Presence,
)
from starverse.engines.fake.disks import FakeDisks
from starverse.engines.fake.run import FakeLauncher, FakeRun

_Answer = TypeVar("_Answer")


Binder = Callable[[LaunchSpec, str, Sequence[int], int], Sequence[int]]
"""Picks so many of the indices that are free on a node, for a launch."""


class Call(StrEnum):
    """The calls that trouble may befall."""

    NODES = "nodes"
    SUBMIT = "submit"
    STEER = "steer"
    OBSERVE = "observe"
    RUNNING = "running"
    CLEAN = "clean"
    OPEN_STREAM = "open_stream"
    DISKS = "disks"


class Trouble(StrEnum):
    """What befalls a call: it is not done; it is done and its answer lost; it is done twice."""

    UNAVAILABLE = "unavailable"
    REPLY_LOST = "reply_lost"
    TWICE = "twice"


class FakeEngine:
    """``clock`` is seconds since the epoch, moved by whoever tests; the engine follows it lazily.

    ``plan`` says what will happen to an allocation as it is submitted, ``trouble`` what befalls a call
    (``None``: nothing), ``publish`` is called as a run publishes a checkpoint. ``bind`` picks the cards of an
    allocation on a node from the indices that are free there (``None``: those of the launch spec). ``starts``
    counts, for each allocation, how often a script was started: more than once is a fault. ``open_stream``
    makes the connections into instances (launch spec, kind); ``None``: there are none.
    """

    def __init__(
        self,
        nodes: tuple[NodeReport, ...],
        clock: Callable[[], float],
        *,
        plan: Callable[[LaunchSpec], FakeRun] = lambda _: FakeRun(),
        trouble: Callable[[Call, str], Trouble | None] = lambda _call, _id: None,
        publish: Callable[[LaunchSpec, float], None] = lambda _spec, _at: None,
        bind: Binder | None = None,
        open_stream: Callable[[LaunchSpec, str], socket.socket] | None = None,
    ) -> None:
        self.reports = nodes
        self.no_block_disks = ""
        self.starts: dict[str, int] = {}
        self.cleaned: set[str] = set()
        self._clock = clock
        self._plan = plan
        self._trouble = trouble
        self._publish = publish
        self._bind = bind
        self._open_stream = open_stream
        self._launchers: dict[str, FakeLauncher] = {}
        self._revoked: set[str] = set()
        self._locks: dict[str, str] = {}
        self._wakes: list[Callable[[], None]] = []
        self.storage = FakeDisks(lambda call: self._do(Call.DISKS, call, lambda: None))

    @property
    def disks(self) -> DiskStore:
        return self.storage

    @property
    def capabilities(self) -> Capabilities:
        binds = self._bind is None
        return Capabilities("fake", binds, True, ("run anything",), self.no_block_disks)

    def nodes(self) -> tuple[NodeReport, ...]:
        return self._do(Call.NODES, "", lambda: self.reports)

    def submit(self, launch: LaunchSpec) -> None:
        def act() -> None:
            name = launch.allocation_id
            if name in self._launchers or name in self._revoked:
                return
            bound = None if self._bind is None else self._bound(launch, self._bind)
            launcher = FakeLauncher(launch, self._plan(launch), self._clock(), self._publish, self._locks)
            launcher.state = replace(launcher.state, bound=bound)
            self._launchers[name] = launcher
            self.starts[name] = self.starts.get(name, 0) + 1

        self._do(Call.SUBMIT, launch.allocation_id, act)

    def steer(self, allocation_id: str, desired: Desired) -> None:
        def act() -> None:
            launcher = self._launchers.get(allocation_id)
            if launcher is not None:
                launcher.steer(desired, self._clock())

        self._do(Call.STEER, allocation_id, act)

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        def act() -> Mapping[str, Observation]:
            return {name: self._observe(name) for name in allocation_ids}

        return self._do(Call.OBSERVE, "", act)

    def running(self) -> tuple[str, ...]:
        def act() -> tuple[str, ...]:
            self.advance()
            return tuple(
                name for name, run in sorted(self._launchers.items()) if run.claimed and not run.ended
            )

        return self._do(Call.RUNNING, "", act)

    def clean(self, allocation_id: str) -> None:
        def act() -> None:
            launcher = self._launchers.get(allocation_id)
            if launcher is None:
                self._revoked.add(allocation_id)
                return
            launcher.kill(self._clock())
            self.cleaned.add(allocation_id)

        self._do(Call.CLEAN, allocation_id, act)

    def open_stream(self, allocation_id: str, kind: str = "ssh") -> socket.socket:
        def act() -> socket.socket:
            launcher = self._launchers.get(allocation_id)
            if (
                launcher is None
                or not launcher.claimed
                or launcher.state.phase not in ("running", "stopping")
            ):
                raise EngineUnavailable("it takes no connections: it does not run")
            if not launcher.spec.interactive:
                raise EngineUnavailable("it takes no connections: it is not an instance")
            if self._open_stream is None:
                raise EngineUnavailable("the fake engine has no connections")
            return self._open_stream(launcher.spec, kind)

        return self._do(Call.OPEN_STREAM, allocation_id, act)

    def on_news(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    def advance(self) -> None:
        """Let everything happen that is due by the clock, in the order of allocation ids; then wake."""
        changed = False
        for _, launcher in sorted(self._launchers.items()):
            before = launcher.state
            launcher.step(self._clock())
            changed |= replace(before, alive_at=launcher.state.alive_at) != launcher.state
        if changed:
            for wake in self._wakes:
                wake()

    @property
    def launchers(self) -> Mapping[str, FakeLauncher]:
        """Every launcher there ever was by its allocation id: what a platform is checked against."""
        return self._launchers

    def kill_launcher(self, allocation_id: str) -> None:
        """``kill -9`` of a launcher, now."""
        self._launchers[allocation_id].kill(self._clock())

    def set_down(self, node_id: str) -> None:
        """An operator sets a node down, now: what runs there is told to end."""
        self.reports = tuple(replace(one, up=one.up and one.node_id != node_id) for one in self.reports)
        for launcher in self._launchers.values():
            if node_id in launcher.spec.node_names:
                launcher.go_down(self._clock())

    def _bound(self, launch: LaunchSpec, bind: Binder) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The cards that this engine picks, on each node as many and of the model that were placed."""
        self.advance()
        taken = {
            (node, index)
            for run in self._launchers.values()
            if run.claimed and not run.ended
            for node, indices in run.state.bound or ()
            for index in indices
        }
        by_node = {report.node_id: report.cards for report in self.reports}
        if not by_node.keys() >= set(launch.node_names):
            raise EngineUnavailable("submit: a node is away")
        bound = []
        for node in launch.node_names:
            wanted = launch.cards_of(node)
            models = {card.model for card in wanted}
            free = [
                card.index
                for card in by_node[node]
                if card.model in models and (node, card.index) not in taken
            ]
            bound.append((node, tuple(sorted(bind(launch, node, free, len(wanted))))))
        return tuple(bound)

    def _observe(self, name: str) -> Observation:
        launcher = self._launchers.get(name)
        if launcher is None:
            return Observation(Presence.UNKNOWN)
        launcher.step(self._clock())
        if launcher.ended:
            return Observation(Presence.ENDED, launcher.state)
        return Observation(Presence.ALIVE if launcher.claimed else Presence.GONE, launcher.state)

    def _do(self, call: Call, name: str, act: Callable[[], _Answer]) -> _Answer:
        trouble = self._trouble(call, name)
        if trouble is Trouble.UNAVAILABLE:
            raise EngineUnavailable(f"{call.value}: the engine did not get the call")
        answer = act()
        if trouble is Trouble.TWICE:
            answer = act()
        if trouble is Trouble.REPLY_LOST:
            raise EngineUnavailable(f"{call.value}: the answer was lost")
        return answer
