"""What the scheduler answers: placements, reclaims, waits and refusals, all of them plain immutable data.

The applier has no choice left: it re-checks each placement with the same fit rule and takes it whole or
refuses it. Every waiting job of the snapshot is in exactly one of ``placements``, ``waits``, ``refusals``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from starverse.domain.ids import AllocationId, JobId, NodeId, TeamId
from starverse.domain.scheduling.snapshot import Claim, NodeShare, Pool
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import JobEndReason, NoticeReason, WaitReason


@dataclass(frozen=True, slots=True)
class Placement:
    """Start this job now on exactly these cards: one share per node, all in one pool.

    ``link_quality_min`` is the weakest link between two of its cards on one node (0: not linked, or one
    card per node). Each share carries the node generation to compare with.
    """

    job_id: JobId
    number: str
    team_id: TeamId
    tariff: Tariff
    pool: Pool
    shares: tuple[NodeShare, ...]
    link_quality_min: int = 0


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Give this allocation its notice. ``for_job_id`` ``None``: its bid is below the price.

    ``lost_work_seconds`` is what would be lost if it saved nothing more.
    """

    allocation_id: AllocationId
    job_id: JobId
    reason: NoticeReason
    for_job_id: JobId | None
    cards: int
    lost_work_seconds: int
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """This job goes on waiting. ``start_estimate`` is the earliest start known, ``None``: not known."""

    job_id: JobId
    reason: WaitReason
    message: str
    start_estimate: datetime | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """This job can never run here; it ends as failed."""

    job_id: JobId
    reason: JobEndReason
    message: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Cards kept for a job that cannot start yet, so that it never starves.

    ``shadow`` true: the EASY shadow start of the first blocked job of its claim class in that pool;
    false: cards that are coming free for it (a reclaim in progress).
    """

    job_id: JobId
    claim: Claim
    pool: Pool
    node_ids: tuple[NodeId, ...]
    start_at: datetime
    shadow: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Made at ``decided_at``. Empty tuples: nothing to do; their order is the one to apply in."""

    decided_at: datetime
    placements: tuple[Placement, ...] = ()
    reclaims: tuple[Reclaim, ...] = ()
    waits: tuple[Wait, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    holds: tuple[Hold, ...] = ()
