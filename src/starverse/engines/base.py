"""What the platform asks of an engine, and nothing else.

An engine executes; the control plane decides. Every call is idempotent and may be repeated after a
crash. ``tests/contract/`` holds the one suite that every engine passes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from starverse.domain.cluster import CardReport, LinkReport, NodeReport
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import StarverseError
from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec


class EngineUnavailable(StarverseError):
    """The engine does not answer right now; nothing is known to have changed, it is asked again later."""

    code = "engine_unavailable"


class StorageFailed(StarverseError):
    """The storage of a disk cannot do this, and will not when asked again; the message says why."""

    code = "storage_failed"


__all__ = [
    "Capabilities",
    "CardReport",
    "DiskStore",
    "DiskTree",
    "DiskUse",
    "Engine",
    "EngineUnavailable",
    "LinkReport",
    "NodeReport",
    "Observation",
    "Presence",
    "StorageFailed",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. ``binds_cards`` false: it picks the card indices itself and reports them.

    ``cannot`` names, for ``doctor`` and for error texts, what this engine does not isolate or limit.
    ``no_block_disks`` says why no workload can have a block disk, and after the last colon what helps;
    ``""``: no reason is known, and each attaching finds out.
    """

    name: str
    binds_cards: bool
    multi_node: bool
    cannot: tuple[str, ...] = ()
    no_block_disks: str = ""


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


@dataclass(frozen=True, slots=True)
class DiskTree:
    """A disk as storage knows it. ``unix_uid`` ``None``: what is in it belongs to the platform's own user."""

    disk_id: str
    kind: DiskKind
    gib: int
    unix_uid: int | None = None


@dataclass(frozen=True, slots=True)
class DiskUse:
    """What a disk takes: ``files`` ``None`` where nobody looked inside (a block disk)."""

    bytes: int
    files: int | None


class DiskStore(Protocol):
    """Where the bytes of disks lie, which all nodes reach. Every call may be repeated after a crash.

    Raises :class:`StorageFailed` for what will not do, :class:`EngineUnavailable` for "ask again".
    """

    def make(self, tree: DiskTree, snapshot: tuple[str, str] | None) -> bool:
        """Have a disk, empty or as a snapshot (its disk's id and its own); whether its size is a hard limit.

        A disk that is there already stays as it is.
        """
        ...

    def grow(self, tree: DiskTree) -> None:
        """Give a disk the size that it has now; a block disk must not be in use."""
        ...

    def take_snapshot(self, tree: DiskTree, snapshot_id: str) -> int:
        """Copy a disk whole; the bytes that the copy takes. A block disk must not be in use."""
        ...

    def remove_snapshot(self, disk_id: str, snapshot_id: str) -> None:
        """Delete a snapshot, or what there is of it."""
        ...

    def remove(self, disk_id: str) -> None:
        """Delete a disk and all its snapshots."""
        ...

    def measure(self, tree: DiskTree, seconds_max: float) -> DiskUse | None:
        """What a disk takes now; ``None`` where that could not be found out in the time."""
        ...

    def ids(self) -> tuple[str, ...]:
        """The ids of all disks whose bytes are there."""
        ...


class Engine(Protocol):
    """Runs allocations. Errors: :class:`EngineUnavailable` from any call, meaning "ask again"."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def disks(self) -> DiskStore:
        """Where disks lie."""
        ...

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

    def open_stream(self, allocation_id: str, kind: str = "ssh") -> socket.socket:
        """A blocking socket to the agent of an instance: for ``ssh`` to an sshd inside it.

        Edge-triggered: :class:`EngineUnavailable` says why there was none within some seconds.
        """
        ...

    def on_news(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever a launcher reported something new; only a wake-up, never the truth."""
        ...
