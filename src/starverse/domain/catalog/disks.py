"""Disks: a team's persistent storage, what is done with it, and what stands against that.

State says where something is, the message says why to people. Which state follows which stands in each
enum's diagram and in the table below it; attachments have their machine in ``domain/workloads/states.py``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import FieldFault
from starverse.domain.ids import is_uuid

GIB = 1024**3
GIB_MAX = 65_536
"""The largest disk, in GiB."""
NAME_CHARACTERS_MAX = 64
RESTORE_DAYS = 7
"""So long a deleted disk can be restored."""
SNAPSHOTS_MAX = 50
"""Of one disk; they cost nothing, so that they have to end somewhere."""
SNAPSHOTS_KEPT_DEFAULT = 7
"""Of those made by a schedule."""
DATA_FOLDER = "/data"


class DiskState(StrEnum):
    """A disk from its making to the end of its bytes.

    ::

        making ---> ready <---> deleted ---> purged
           '-> failed ---> purged
    """

    MAKING = "making"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"
    PURGED = "purged"


class SnapshotState(StrEnum):
    """A copy of a disk at one instant.

    ::

        making ---> made ---> removed
           '-> failed ---> removed
    """

    MAKING = "making"
    MADE = "made"
    FAILED = "failed"
    REMOVED = "removed"


class SyncState(StrEnum):
    """One copy between a disk and a remote.

    ::

        queued ---> running ---> succeeded | failed | cancelled
           '-> cancelled  '-> queued (interrupted: goes on where it was)
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SyncDirection(StrEnum):
    """``pull``: from the remote into the disk; ``push``: from the disk to the remote."""

    PULL = "pull"
    PUSH = "push"


_D, _S = DiskState, SnapshotState

DISK_TRANSITIONS: Mapping[DiskState, frozenset[DiskState]] = {
    _D.MAKING: frozenset({_D.READY, _D.FAILED}),
    _D.READY: frozenset({_D.DELETED}),
    _D.FAILED: frozenset({_D.PURGED}),
    _D.DELETED: frozenset({_D.READY, _D.PURGED}),
    _D.PURGED: frozenset(),
}
SNAPSHOT_TRANSITIONS: Mapping[SnapshotState, frozenset[SnapshotState]] = {
    _S.MAKING: frozenset({_S.MADE, _S.FAILED}),
    _S.MADE: frozenset({_S.REMOVED}),
    _S.FAILED: frozenset({_S.REMOVED}),
    _S.REMOVED: frozenset(),
}


def name_fault(name: str) -> FieldFault | None:
    """What is wrong with the name of a disk or snapshot, a folder's name inside; ``None``: nothing.

    Spaces and any script are good. Not ``/``, which ends a name; not ``:``, which ends it in
    ``--disk NAME:/path`` and ``disk cp NAME:path``; not what looks like an id.
    """
    expected = (
        f"1 to {NAME_CHARACTERS_MAX} characters and 255 bytes, without '/', ':' and control characters, "
        "no space at either end, not beginning with '.' or '-', and no id"
    )
    wrong = (
        not 1 <= len(name) <= NAME_CHARACTERS_MAX
        or len(name.encode("utf-8", "surrogatepass")) > 255
        or name != name.strip()
        or name[0] in ".-"
        or any(letter in "/:" or unicodedata.category(letter) in _NO_LETTERS for letter in name)
        or is_uuid(name)
    )
    shown = name[:80].encode("utf-8", "backslashreplace").decode()
    return FieldFault("name", shown, expected) if wrong else None


_NO_LETTERS = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})
"""Categories of Unicode that people cannot see, or that are none."""


def size_fault(gib: int) -> FieldFault | None:
    if 1 <= gib <= GIB_MAX:
        return None
    return FieldFault("gib", str(gib), f"whole GiB, from 1 to {GIB_MAX}")


def resize_fault(kind: DiskKind, old: int, new: int, used_bytes: int | None) -> str | None:
    """Why a disk cannot become so large; ``None``: it can.

    A block disk only grows: the file system in it is not moved together. A shared one may shrink to what
    was measured of it.
    """
    if new >= old:
        return None
    if kind is DiskKind.BLOCK:
        return f"a block disk only grows; it has {old} GiB"
    if used_bytes is None:
        return "what it holds was not measured yet; try again in some minutes"
    if used_bytes > new * GIB:
        return f"it holds {-(-used_bytes // GIB)} GiB; remove files first"
    return None


def mount_target(name: str, path: str | None) -> str:
    """Where a disk is had inside: ``/data/NAME`` unless a path below ``/data`` was asked for.

    Raises ``ValueError`` with what would be right. Only below ``/data`` a disk can be plugged into what runs.
    """
    target = f"{DATA_FOLDER}/{name}" if path is None else path
    inside = target.removeprefix(f"{DATA_FOLDER}/")
    wrong = (
        inside == target
        or "/" in inside
        or name_fault(inside) is not None
        or len(target.encode("utf-8", "surrogatepass")) > 255
    )
    if wrong:
        raise ValueError(f"a path such as {DATA_FOLDER}/NAME, with one name below {DATA_FOLDER}")
    return target


SYNCING_TEXT = "a sync of it runs, and a block disk has one user at a time; wait for its end, or cancel it"


@dataclass(frozen=True, slots=True)
class AttachFacts:
    """What counts when a disk is to be attached to a run. ``growing``: storage does not have its size yet.

    ``same_team`` and ``reachable`` (the run goes on) are about the run; ``taken_by`` names who has a block
    disk, ``""``: nobody; ``syncing``: a copy to or from a remote runs; ``has_it`` and ``target_taken`` are
    about this very run.
    """

    kind: DiskKind
    state: DiskState
    growing: bool = False
    snapshot_making: bool = False
    syncing: bool = False
    same_team: bool = True
    reachable: bool = True
    nodes: int = 1
    taken_by: str = ""
    has_it: bool = False
    target_taken: bool = False


def attach_refusal(facts: AttachFacts) -> str | None:
    """Why a disk is not attached, in words for its owner; ``None``: it may be."""
    if not facts.same_team:
        return "it belongs to another team"
    if facts.state is not DiskState.READY:
        return f"the disk is {facts.state.value}"
    if not facts.reachable:
        return "the run is ending"
    if facts.has_it:
        return "it is attached there already"
    if facts.target_taken:
        return "another disk is attached at that path"
    if facts.kind is DiskKind.SHARED:
        return None
    if facts.nodes > 1:
        return f"a block disk has one writer and this runs on {facts.nodes} nodes; use a shared disk"
    if facts.taken_by:
        return f"a block disk has one writer, and {facts.taken_by} has it; detach it there first"
    if facts.syncing:
        return SYNCING_TEXT
    if facts.growing:
        return "its file system is being grown; try again in a moment"
    if facts.snapshot_making:
        return "a snapshot of it is being made; try again in a moment"
    return None


def over_quota(kind: DiskKind, gib: int, used_bytes: int | None) -> bool:
    """Whether a shared disk was measured to hold more than its size: attachments made from then on are
    read-only until it holds less, or is resized. A block disk cannot."""
    return kind is DiskKind.SHARED and used_bytes is not None and used_bytes > gib * GIB


def restorable_until(deleted_at: datetime) -> datetime:
    return deleted_at + timedelta(days=RESTORE_DAYS)


@dataclass(frozen=True, slots=True)
class ScheduledSnapshot:
    """One that a schedule made."""

    id: str
    made_at: datetime


def snapshots_to_remove(made: Collection[ScheduledSnapshot], kept: int) -> tuple[str, ...]:
    """Of the snapshots that a disk's schedule made, those beyond the newest ``kept``, the oldest first."""
    newest_first = sorted(made, key=lambda one: (one.made_at, one.id), reverse=True)
    return tuple(one.id for one in reversed(newest_first[kept:]))
