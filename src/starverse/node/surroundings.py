"""What a workload has around its sandbox: disks that come and go, and its network.

The script begins when all that its launch names is there.
"""

from __future__ import annotations

import select
from collections.abc import Iterable

from starverse.domain.workloads.launch import LaunchSpec, Plug, PlugState
from starverse.node.plugs.keeper import PlugKeeper, Sandbox
from starverse.node.workload import Workload


class Surroundings:
    """From the sandbox's first process to its end. Nothing here waits. ``holds``: the script has not begun,
    something that it needs is not there yet."""

    def __init__(self, spec: LaunchSpec) -> None:
        self._spec = spec
        self._workload: Workload | None = None
        self._entered = False
        self.holds = True
        self._plugs = PlugKeeper(spec.plugs, self._processes_inside)

    def begin(self, workload: Workload) -> None:
        """The sandbox was begun; where it needs nothing, its script need not wait for anybody."""
        self._workload = workload
        if not self._spec.plugs:
            self._let_go()

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
            self._plugs.begin(Sandbox(workload.child_handle if workload.entered else -1, workload.entered))
        self._plugs.tend(now)
        if self.holds:
            missing = self._plugs.missing_at_start()
            if missing == "":
                self._let_go()
            return missing or ""
        return ""

    def plugged(self) -> tuple[PlugState, ...]:
        return self._plugs.states()

    def wait_on(self) -> list[tuple[int, int]]:
        """Descriptors, with events of ``poll``, that have news for :meth:`tend`."""
        return [(handle, select.POLLIN) for handle in self._plugs.handles()]

    def wake_at(self) -> float:
        """When to :meth:`tend` without any news."""
        return self._plugs.wake_at()

    def _let_go(self) -> None:
        assert self._workload is not None
        self.holds = False
        self._workload.go()

    def _processes_inside(self) -> list[int]:
        return [] if self._workload is None else self._workload.processes_inside()
