"""An engine that shows its nodes and runs nothing: for tests of what happens before a start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from starverse.domain.cluster import CardReport, NodeReport
from starverse.domain.workloads.launch import Desired, LaunchSpec
from starverse.engines.base import Capabilities, Observation, Presence

GIB = 1024**3


class StillEngine:
    """Accepts every launch and never starts it."""

    def __init__(self, *reports: NodeReport) -> None:
        self._reports = reports
        self.submitted: list[LaunchSpec] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("still", binds_cards=True, multi_node=True)

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

    def on_news(self, wake: Callable[[], None]) -> None:
        """There is never news."""


def node_report(
    node_id: str = "n1", model: str = "rtx4090", cards: int = 8, *, fabric: str = "eth", zone: str = "bj1"
) -> NodeReport:
    """A node of declared cards of one model."""
    return NodeReport(
        node_id=node_id,
        zone=zone,
        fabric=fabric,
        cpus=64,
        memory_bytes=256 * GIB,
        cards=tuple(
            CardReport(
                card_id=f"{node_id}:{index}",
                index=index,
                uuid=f"GPU-{node_id}-{index}",
                model=model,
                memory_bytes=24 * GIB,
                declared=True,
            )
            for index in range(cards)
        ),
    )
