"""The only writer of allocations: each placement in one transaction, re-checked on current rows.

The same ``fits()`` rule as the decision, compare-and-swap on each node's generation, the allocation
``placed`` and the hold for its first hour: capacity and money together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app import funding
from starverse.app.disks import attachments
from starverse.app.instances.following import follow_end, follow_placed
from starverse.app.launching import start_within_seconds
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import allocations, events, instances, inventory, jobs
from starverse.db.events import Event
from starverse.domain.errors import Conflict
from starverse.domain.ids import AllocationId, CardId, NodeId
from starverse.domain.pricing.first_hour import NotFunded, Unfunded
from starverse.domain.sbatch.hostlists import host_order
from starverse.domain.scheduling.decision import Decision, Placement, Reclaim, Refusal
from starverse.domain.scheduling.eligibility import COST_MAX_TEXT, NO_PRICE_TEXT
from starverse.domain.scheduling.fit import free_of, share_fits
from starverse.domain.scheduling.snapshot import NodeShare
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.specs import DiskMount
from starverse.domain.workloads.states import AllocationState, JobState


@dataclass(frozen=True, slots=True)
class Applied:
    """How a decision fared: what was placed, noticed, refused on current rows and why.

    ``fault``: what kept one part of it from being applied, which nobody had expected.
    """

    placed: tuple[AllocationId, ...]
    noticed: tuple[AllocationId, ...]
    refused: tuple[tuple[str, WaitReason, str], ...]
    fault: Exception | None = None


POSTPONED_SECONDS = 15
"""So long a job that could not be funded or placed is passed over, so that others get its cards."""

PLACING_FAILED_TEXT = "the platform failed to place it; the operator is told"


class _Refused(Exception):
    """``ends``: the job is over, since it starts at once or not at all; ``None``: it waits on."""

    def __init__(
        self, reason: WaitReason, message: str, *, postpone: bool = False, ends: JobEndReason | None = None
    ) -> None:
        self.reason, self.message, self.postpone, self.ends = reason, message, postpone, ends
        super().__init__(message)


def apply_decision(platform: Platform, decision: Decision) -> Applied:
    """Record what still holds of a decision, one transaction per step."""
    placed: list[AllocationId] = []
    noticed: list[AllocationId] = []
    refused: list[tuple[str, WaitReason, str]] = []
    postponed: list[str] = []

    def refuse(job_id: str, why: _Refused) -> None:
        refused.append((job_id, why.reason, why.message))
        if why.postpone:
            postponed.append(job_id)

    def place(placement: Placement) -> str:
        try:
            placed.append(_place(platform, placement))
        except _Refused as why:
            if why.ends is None:
                refuse(placement.job_id, why)
            else:
                _end_impossible(platform, Refusal(placement.job_id, why.ends, why.message))
        except Exception:
            refuse(placement.job_id, _Refused(WaitReason.PLATFORM, PLACING_FAILED_TEXT, postpone=True))
            raise
        return ""

    def notice(reclaim: Reclaim) -> str:
        if _notice(platform, reclaim):
            noticed.append(reclaim.allocation_id)
        return ""

    round_ = Round()
    round_.act_on(decision.refusals, lambda refusal: _end_impossible(platform, refusal))
    round_.act_on(decision.placements, place)
    round_.act_on(decision.reclaims, notice)
    waits: list[tuple[str, str, str]] = [(w.job_id, w.reason.value, w.message) for w in decision.waits]
    waits += [(job_id, reason.value, message) for job_id, reason, message in refused]
    _note_waits(platform, waits, postponed)
    return Applied(tuple(placed), tuple(noticed), tuple(refused), round_.fault)


def _place(platform: Platform, placement: Placement) -> AllocationId:
    try:
        return platform.database.write_retrying(lambda connection: _insert(connection, platform, placement))
    except IntegrityError as taken:
        raise _Refused(WaitReason.NO_CARDS, "a card was taken at the same moment") from taken
    except Conflict as lost:
        raise _Refused(WaitReason.BEHIND_OTHERS, lost.detail) from lost


def _insert(connection: Connection, platform: Platform, placement: Placement) -> AllocationId:
    now = platform.clock.now()
    job = jobs.get(connection, placement.job_id)
    if job is None or job.state is not JobState.QUEUED or job.cancel_requested_at is not None:
        raise _Refused(WaitReason.BEHIND_OTHERS, "the job is not waiting any more")
    _check_capacity(connection, placement, job)
    shares = sorted(placement.shares, key=lambda share: host_order(share.node_id))
    new = Allocation(
        id=platform.ids.uuid7(),
        job_id=job.id,
        attempt=job.attempts + 1,
        team_id=job.team_id,
        account_id=job.account_id,
        tariff=job.spec.tariff,
        card_model=placement.pool.model or job.spec.priced_card,
        fabric=placement.pool.fabric,
        zone=placement.pool.zone,
        state=AllocationState.PLACED,
        placed_at=now,
        nodes=tuple(share.node_id for share in shares),
        cards=tuple(card for share in shares for card in share.card_ids),
        cpus=shares[0].cpus,
        memory_bytes=shares[0].memory_bytes,
        channel_token=platform.ids.secret(),
    )
    allocations.insert_allocation(connection, new)
    within = start_within_seconds(connection, platform, job)
    funded = funding.take_first(connection, new, job, within, platform.ids)
    if isinstance(funded, NotFunded):
        raise _Refused(*_unfunded(funded), postpone=True)
    jobs.change(
        connection,
        job,
        attempts=job.attempts + 1,
        reason=WaitReason.STARTING.value,
        message="cards are placed",
    )
    _take_disks(connection, platform, new, job)
    follow_placed(connection, job, new.id, now)
    events.record(
        connection,
        Event(
            now,
            "job",
            job.id,
            "placed",
            job.spec.tariff.value,
            _where(placement),
            job.team_id,
            job.account_id,
        ),
    )
    return AllocationId(new.id)


def _take_disks(connection: Connection, platform: Platform, allocation: Allocation, job: Job) -> None:
    """Its disks are its own from here on, as its cards are. What an earlier start of the same instance still
    has is waited for."""
    mounts = _wanted_disks(connection, job)
    disk_ids = [mount.disk_id for mount in mounts]
    own = job.instance_id is not None and job.instance_id in attachments.instances_at(connection, disk_ids)
    refused = attachments.place(connection, platform, allocation, mounts, allocation.placed_at)
    if refused is not None:
        at_once = job.spec.at_once and not job.attempts and not own
        ends = JobEndReason.DISK_IN_USE if at_once else None
        raise _Refused(WaitReason.DISK_IN_USE, refused, postpone=not own, ends=ends)


def _wanted_disks(connection: Connection, job: Job) -> tuple[DiskMount, ...]:
    """An instance's are those that it has by now: they come and go after its run was asked for, which is
    placed more than once."""
    if job.instance_id is None:
        return job.spec.disks
    return tuple(disk.mount for disk in instances.disks_of(connection, [job.instance_id])[job.instance_id])


def _check_capacity(connection: Connection, placement: Placement, job: Job) -> None:
    named = [share.node_id for share in placement.shares]
    nodes = inventory.load_nodes_named(connection, named)
    node_of = {card.id: node.id for node in nodes.values() for card in node.cards}
    open_ones = allocations.open_on(connection, named)
    open_shares = [share for a in open_ones for share in allocation_shares(a, node_of)]
    for share in placement.shares:
        node = nodes.get(share.node_id)
        if node is None:
            raise _Refused(WaitReason.NO_CARDS, f"node {share.node_id} is not there any more")
        misfit = share_fits(node, job.spec.resources, share, free_of(node, open_shares))
        if misfit is not None:
            raise _Refused(WaitReason.NO_CARDS, misfit.message)
    generations = {share.node_id: nodes[share.node_id].generation for share in placement.shares}
    if not inventory.bump_generation(connection, {str(node): n for node, n in generations.items()}):
        raise _Refused(WaitReason.NO_CARDS, "a node changed at the same moment")


def allocation_shares(allocation: Allocation, node_of: Mapping[CardId, NodeId]) -> tuple[NodeShare, ...]:
    """What one allocation holds of each of its nodes; of nodes that ``node_of`` leaves out, no cards."""
    held: dict[str, list[CardId]] = {node_id: [] for node_id in allocation.nodes}
    for card in map(CardId, allocation.cards):
        node_id = node_of.get(card)
        if node_id in held:
            held[node_id].append(card)
    return tuple(
        NodeShare(NodeId(node_id), tuple(cards), allocation.cpus, allocation.memory_bytes)
        for node_id, cards in held.items()
    )


def _unfunded(why: NotFunded) -> tuple[WaitReason, str]:
    if why.why is Unfunded.NO_MONEY:
        needed, available = why.needed.decimal(), why.available.decimal()
        return WaitReason.NO_MONEY, f"the first hour needs CNY {needed} free, CNY {available} is there"
    if why.why is Unfunded.WINDOW_CLOSED:
        return WaitReason.WINDOW_CLOSED, "the window is closed, or closes too soon"
    if why.why is Unfunded.NO_PRICE:
        return WaitReason.NO_CARDS, NO_PRICE_TEXT
    return WaitReason.NO_MONEY, COST_MAX_TEXT


def _notice(platform: Platform, reclaim: Reclaim) -> bool:
    def act(connection: Connection) -> bool:
        now = platform.clock.now()
        allocation = allocations.get(connection, reclaim.allocation_id)
        if allocation is None or not allocation.open or allocation.notice_reason is not None:
            return False
        give_notice(
            connection, platform, allocation, reclaim.reason, now, reclaim.message, reclaim.for_job_id
        )
        return True

    try:
        return platform.database.write_retrying(act)
    except Conflict:
        return False


def give_notice(
    connection: Connection,
    platform: Platform,
    allocation: Allocation,
    reason: object,
    now: datetime,
    message: str,
    for_job_id: str | None = None,
    deadline: datetime | None = None,
) -> Allocation:
    """Announce a stop: recorded here, delivered by ``observe`` until the launcher has it."""
    if deadline is None:
        deadline = now + timedelta(seconds=platform.settings.grace_seconds)
    noticed = allocations.change(
        connection,
        allocation,
        notice_reason=reason,
        notice_at=now,
        notice_deadline=deadline,
        notice_for=for_job_id,
        state=AllocationState.STOPPING if allocation.state is AllocationState.RUNNING else allocation.state,
    )
    events.record(
        connection,
        Event(now, "job", allocation.job_id, "notice", str(reason), message, allocation.team_id),
    )
    return noticed


def _end_impossible(platform: Platform, refusal: Refusal) -> str:
    def act(connection: Connection) -> None:
        now = platform.clock.now()
        job = jobs.get(connection, refusal.job_id)
        if job is None or job.state is not JobState.QUEUED:
            return
        failed = jobs.change(
            connection,
            job,
            state=JobState.FAILED,
            reason=refusal.reason.value,
            message=refusal.message,
            ended_at=now,
        )
        follow_end(connection, platform, failed, None, now)
        events.record(
            connection,
            Event(now, "job", job.id, "state", refusal.reason.value, refusal.message, job.team_id),
        )

    platform.database.write_retrying(act)
    return ""


def _note_waits(platform: Platform, waits: list[tuple[str, str, str]], postponed: list[str]) -> None:
    if not waits:
        return
    with platform.database.read() as connection:
        known = jobs.waiting_notes(connection)
    changed = [wait for wait in waits if known.get(wait[0]) != (wait[1], wait[2])]
    until = platform.clock.now() + timedelta(seconds=POSTPONED_SECONDS)

    def act(connection: Connection) -> None:
        jobs.set_waiting(connection, changed)
        jobs.postpone(connection, postponed, until)

    if changed or postponed:
        platform.database.write_retrying(act)


def _where(placement: Placement) -> str:
    cards = sum(len(share.card_ids) for share in placement.shares)
    return (
        f"{cards} x {placement.pool.model or 'no card'} on {', '.join(s.node_id for s in placement.shares)}"
    )
