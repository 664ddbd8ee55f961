"""An engine that shows its nodes and runs nothing: for tests of what happens before a start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping

from starverse.domain.cluster import NodeReport
from starverse.domain.workloads.launch import Desired, LaunchSpec
from starverse.engines.base import Capabilities, DiskStore, EngineUnavailable, Observation, Presence
from starverse.engines.fake.disks import FakeDisks


class StillEngine:
    """Accepts every launch and never starts it."""

    def __init__(self, *reports: NodeReport) -> None:
        self._reports = reports
        self.submitted: list[LaunchSpec] = []
        self._disks = FakeDisks()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("still", binds_cards=True, multi_node=True)

    @property
    def disks(self) -> DiskStore:
        return self._disks

    def nodes(self) -> tuple[NodeReport, ...]:
        return self._reports

    def submit(self, launch: LaunchSpec) -> None:
        self.submitted.append(launch)

    def steer(self, allocation_id: str, desired: Desired) -> None:
        """Nothing runs that could be steered."""

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        known = {launch.allocation_id for launch in self.submitted}
        return {
            key: Observation(Presence.ACCEPTED if key in known else Presence.UNKNOWN)
            for key in allocation_ids
        }

    def running(self) -> tuple[str, ...]:
        return ()

    def clean(self, allocation_id: str) -> None:
        """Nothing is left of what never ran."""

    def open_stream(self, allocation_id: str, kind: str = "ssh") -> socket.socket:
        raise EngineUnavailable("it takes no connections: it does not run")

    def on_news(self, wake: Callable[[], None]) -> None:
        """There is never news."""
