"""The state machines (architecture.md, State machines), each under its diagram.

State says where something is, reason says why (typed), message is text for people: three fields. A
transition that is not in the table does not happen: :func:`advance` raises
:class:`~starverse.domain.errors.Conflict`. Late news passes through every state between: :func:`path`
names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from starverse.domain.errors import Conflict


class AllocationState(StrEnum):
    """One run of a workload on given cards.

    ::

        placed ---> starting ---> running ---> stopping ---> ended
           |          | |  |        |  |           |
           |          | |  '-> lost |  '-> lost    '-> lost
           |          | '-> failed_to_start
           v          '-> stopping  '-> ended
         ended (cancelled)
    """

    PLACED = "placed"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    FAILED_TO_START = "failed_to_start"
    LOST = "lost"


class JobState(StrEnum):
    """A batch script with an end; ``queued`` again after a reclaim, a lost node, no money, a closed window.

    ::

        queued <---> running ---> succeeded | failed | cancelled
           '-> cancelled | failed (impossible)
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class InstanceState(StrEnum):
    """An interactive GPU host.

    ::

        stopped <---> queued <---> running
        stopped <----------------- running
        stopped ---> released
    """

    STOPPED = "stopped"
    QUEUED = "queued"
    RUNNING = "running"
    RELEASED = "released"


class ReservationState(StrEnum):
    """Cards booked for a window.

    ::

        booked ---> open ---> closed | released (early, no-show)
           '-> cancelled
    """

    BOOKED = "booked"
    OPEN = "open"
    CLOSED = "closed"
    RELEASED = "released"
    CANCELLED = "cancelled"


class AttachmentState(StrEnum):
    """A disk at an allocation, which owns the attachment.

    ::

        attaching ---> attached ---> detaching ---> detached
            '-> refused                  '-> stuck ---'

    ``stuck``: it did not come out within its time and an operator has to look; it is detached once it did
    come out after all, its launcher is gone, or the operator says so.
    """

    ATTACHING = "attaching"
    ATTACHED = "attached"
    REFUSED = "refused"
    DETACHING = "detaching"
    DETACHED = "detached"
    STUCK = "stuck"


class CheckpointState(StrEnum):
    """A snapshot of a job's state.

    ::

        writing ---> published | abandoned
    """

    WRITING = "writing"
    PUBLISHED = "published"
    ABANDONED = "abandoned"


S = TypeVar("S", bound=StrEnum)

_A, _J, _I, _R, _T, _C = (
    AllocationState,
    JobState,
    InstanceState,
    ReservationState,
    AttachmentState,
    CheckpointState,
)

ALLOCATION_TRANSITIONS: Mapping[AllocationState, frozenset[AllocationState]] = {
    _A.PLACED: frozenset({_A.STARTING, _A.ENDED}),
    _A.STARTING: frozenset({_A.RUNNING, _A.STOPPING, _A.FAILED_TO_START, _A.LOST}),
    _A.RUNNING: frozenset({_A.STOPPING, _A.ENDED, _A.LOST}),
    _A.STOPPING: frozenset({_A.ENDED, _A.LOST}),
    _A.ENDED: frozenset(),
    _A.FAILED_TO_START: frozenset(),
    _A.LOST: frozenset(),
}
JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    _J.QUEUED: frozenset({_J.RUNNING, _J.CANCELLED, _J.FAILED}),
    _J.RUNNING: frozenset({_J.QUEUED, _J.SUCCEEDED, _J.FAILED, _J.CANCELLED}),
    _J.SUCCEEDED: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}
INSTANCE_TRANSITIONS: Mapping[InstanceState, frozenset[InstanceState]] = {
    _I.STOPPED: frozenset({_I.QUEUED, _I.RELEASED}),
    _I.QUEUED: frozenset({_I.RUNNING, _I.STOPPED}),
    _I.RUNNING: frozenset({_I.STOPPED, _I.QUEUED}),
    _I.RELEASED: frozenset(),
}
RESERVATION_TRANSITIONS: Mapping[ReservationState, frozenset[ReservationState]] = {
    _R.BOOKED: frozenset({_R.OPEN, _R.CANCELLED}),
    _R.OPEN: frozenset({_R.CLOSED, _R.RELEASED}),
    _R.CLOSED: frozenset(),
    _R.RELEASED: frozenset(),
    _R.CANCELLED: frozenset(),
}
ATTACHMENT_TRANSITIONS: Mapping[AttachmentState, frozenset[AttachmentState]] = {
    _T.ATTACHING: frozenset({_T.ATTACHED, _T.REFUSED}),
    _T.ATTACHED: frozenset({_T.DETACHING}),
    _T.REFUSED: frozenset(),
    _T.DETACHING: frozenset({_T.DETACHED, _T.STUCK}),
    _T.DETACHED: frozenset(),
    _T.STUCK: frozenset({_T.DETACHED}),
}
CHECKPOINT_TRANSITIONS: Mapping[CheckpointState, frozenset[CheckpointState]] = {
    _C.WRITING: frozenset({_C.PUBLISHED, _C.ABANDONED}),
    _C.PUBLISHED: frozenset(),
    _C.ABANDONED: frozenset(),
}

OPEN_ALLOCATION_STATES = frozenset({_A.PLACED, _A.STARTING, _A.RUNNING, _A.STOPPING})
"""States in which an allocation holds its cards; ``lost`` is declared only after the lease ran out."""

OPEN_ATTACHMENT_STATES = frozenset({_T.ATTACHING, _T.ATTACHED, _T.DETACHING, _T.STUCK})
"""States in which an allocation has its disk, or may have it."""

ENDED_JOB_STATES = frozenset({_J.SUCCEEDED, _J.FAILED, _J.CANCELLED})


def advance(transitions: Mapping[S, frozenset[S]], old: S, new: S) -> S:
    """The new state; raises :class:`Conflict` when the table has no such transition."""
    if new not in transitions[old]:
        kind = type(old).__name__.removesuffix("State").lower()
        raise Conflict(f"this {kind} is {old.value}; it cannot become {new.value}")
    return new


def path(transitions: Mapping[S, frozenset[S]], old: S, new: S) -> tuple[S, ...] | None:
    """The shortest way from ``old`` to ``new``, without ``old``; ``()`` when equal, ``None`` when none.

    Late news ("it has ended" about an allocation still recorded as starting) is applied along this way.
    """
    ways: list[tuple[S, ...]] = [()]
    seen = {old}
    for way in ways:
        here = way[-1] if way else old
        if here == new:
            return way
        for following in sorted(transitions[here]):
            if following not in seen:
                seen.add(following)
                ways.append((*way, following))
    return None
