"""What a workload has around its sandbox: disks that come and go, and its network.

A script begins when all that its launch names is there. An instance begins at once: it is ready when its
disks are there, its network comes some milliseconds after the first that people can do, and where none can
be had a line in its log says so.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec, Plug, PlugState
from starverse.node.network.keeper import NetworkKeeper
from starverse.node.network.pasta import refusal as network_refusal
from starverse.node.plugs.keeper import PlugKeeper, Sandbox
from starverse.node.processes import DISK_TAG
from starverse.node.workload import Workload


def missing_network(spec: LaunchSpec, pasta: str) -> str:
    """Why an instance has to do without the internet here, ``""``: it need not. People reach it without one;
    a job that asked for one is refused instead.
    """
    if not spec.interactive or spec.network != "internet":
        return ""
    return network_refusal(pasta)


class Surroundings:
    """From the sandbox's first process to its end. Nothing here waits.

    ``are_there``: whether the workload ever had what it may not be without. ``say`` writes into its log.
    """

    def __init__(self, spec: LaunchSpec, folder: Path, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._say = say
        self._workload: Workload | None = None
        self._pasta = ""
        self._entered = self._let_go = self.are_there = False
        self._plugs = PlugKeeper(spec.plugs, self._processes_inside, f"{DISK_TAG}={spec.allocation_id}")
        self._network = NetworkKeeper(spec, folder)

    def begin(self, workload: Workload, pasta: str) -> None:
        """The sandbox was begun; ``pasta`` is that program's path."""
        self._workload, self._pasta = workload, pasta
        self._look()

    def want(self, plugs: Iterable[Plug] | None) -> None:
        """All disks that are to be there from now on; ``None``: those of the launch."""
        self._plugs.want(self._spec.plugs if plugs is None else plugs)

    def tend(self, now: float) -> str:
        """One look; answers why the start has to be refused, ``""`` while nothing is wrong."""
        workload = self._workload
        if workload is None:
            return ""
        if workload.entered is not None and not self._entered:
            self._entered = True
            place = workload.child_handle if workload.entered else -1
            self._network.begin(workload.child, workload.child_handle, self._pasta)
            self._plugs.begin(Sandbox(place, workload.entered))
        no_network = self._network.tend(now)
        if no_network and self._spec.interactive:
            self._say(no_network)
            no_network = ""
        if self._network.remark:
            self._say(self._network.remark)
            self._network.remark = ""
        self._plugs.tend(now)
        return no_network or ("" if self.are_there else self._look())

    def plugged(self) -> tuple[PlugState, ...]:
        return self._plugs.states()

    def wait_on(self) -> list[tuple[int, int]]:
        """Descriptors, with events of ``poll``, that have news for :meth:`tend`."""
        return [(handle, select.POLLIN) for handle in (*self._plugs.handles(), *self._network.handles())]

    def wake_at(self) -> float:
        """When to :meth:`tend` without any news."""
        return self._plugs.wake_at()

    def end(self, breathe: Callable[[], None], now: Callable[[], float]) -> None:
        """The sandbox is gone; ``breathe`` passes a moment."""
        self._network.end()
        self._plugs.end(breathe, now)

    def _look(self) -> str:
        """Let the script begin if it may; answers why it never will, ``""`` while it may."""
        assert self._workload is not None
        missing = self._plugs.missing_at_start()
        self.are_there = missing == "" and (self._network.is_there or self._spec.interactive)
        if not self._let_go and (self.are_there or self._spec.interactive):
            self._let_go = True
            self._workload.go()
        return missing or ""

    def _processes_inside(self) -> list[int]:
        return [] if self._workload is None else self._workload.processes_inside()
