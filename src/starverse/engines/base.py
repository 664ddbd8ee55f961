"""What the platform asks of an engine, and nothing else.

An engine executes; the control plane decides. Every call is idempotent and may be repeated after a
crash. ``tests/contract/`` holds the one suite that every engine passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from starverse.domain.cluster import CardReport, LinkReport, NodeReport
from starverse.domain.errors import StarverseError
from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec


class EngineUnavailable(StarverseError):
    """The engine does not answer right now; nothing is known to have changed, it is asked again later."""

    code = "engine_unavailable"


__all__ = [
    "Capabilities",
    "CardReport",
    "Engine",
    "EngineUnavailable",
    "LinkReport",
    "NodeReport",
    "Observation",
    "Presence",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. ``binds_cards`` false: it picks the card indices itself and reports them.

    ``cannot`` names, for ``doctor`` and for error texts, what this engine does not isolate or limit.
    """

    name: str
    binds_cards: bool
    multi_node: bool
    cannot: tuple[str, ...] = ()


class Presence(StrEnum):
    """What the engine knows of an allocation.

    ``unknown``: no trace of it. ``accepted``: submitted, its launcher has not claimed yet. ``alive``: its
    launcher holds the claim. ``ended``: a final report is there. ``gone``: it was claimed, the claim is
    free again and there is no final report: the launcher died; its workload is dead or will be killed.
    """

    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    ALIVE = "alive"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Observation:
    """``state`` is the launcher's newest report, ``None`` before it claimed or where it cannot be read."""

    presence: Presence
    state: LauncherState | None = None


class Engine(Protocol):
    """Runs allocations. Errors: :class:`EngineUnavailable` from any call, meaning "ask again"."""

    @property
    def capabilities(self) -> Capabilities: ...

    def nodes(self) -> tuple[NodeReport, ...]:
        """Every node with its cards, as seen now."""
        ...

    def submit(self, launch: LaunchSpec) -> None:
        """Start a launcher for the allocation; a repeat is harmless (the launcher claims its id)."""
        ...

    def steer(self, allocation_id: str, desired: Desired) -> None:
        """Set what the platform wants of the launcher; delivered at once or as soon as it connects."""
        ...

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        """What is known of each of these allocations; one entry for each id asked."""
        ...

    def running(self) -> tuple[str, ...]:
        """The ids of all allocations with a living launcher, so that what nobody owns is found."""
        ...

    def clean(self, allocation_id: str) -> None:
        """Remove what is left of an ended allocation (processes, cgroups, sockets); never its logs."""
        ...

    def on_news(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever a launcher reported something new; only a wake-up, never the truth."""
        ...
