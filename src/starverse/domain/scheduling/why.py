"""Why a job waits, what it waits for, and what would help: ``starverse job why``.

Advice is not guessed: each change named to a job that waits for cards was tried, on what this decision
leaves free, and would start the job now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from starverse.domain.errors import NotFound
from starverse.domain.ids import AllocationId, JobId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.decision import Decision, Placement, Wait
from starverse.domain.scheduling.shadow import shadow_start
from starverse.domain.scheduling.shortage import clock, shortage, wanted
from starverse.domain.scheduling.snapshot import Claim, RunningAllocation, Snapshot, WaitingJob
from starverse.domain.scheduling.tally import instant_of, tally_of
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.domain.workloads.specs import Resources

_FOR_CARDS = frozenset(
    {WaitReason.NO_CARDS, WaitReason.FRAGMENTED, WaitReason.BEHIND_OTHERS, WaitReason.SHADOW_START}
)

_STANDING_ADVICE = {
    WaitReason.NO_MONEY: "top up: starverse topup",
    WaitReason.PRICE_ABOVE_MAX: "a higher --price-max, or a cheaper hour: starverse offers",
    WaitReason.ARRAY_LIMIT: "a higher limit: --array=...%N",
    WaitReason.DISK_IN_USE: "detach the disk where it is: starverse disk ls",
    WaitReason.DISK_RESERVE: "only the operator can help: starverse admin status",
}


@dataclass(frozen=True, slots=True)
class Why:
    """The answer about one job. ``reason`` is a wait reason, or an end reason for what can never run.

    ``facts`` are figures, ``what_helps`` names changes that would start it now. ``start_estimate`` is
    the latest start that is promised, ``start_earliest`` one that no queue could beat; ``None``: unknown.
    """

    job_id: JobId
    number: str
    reason: WaitReason | JobEndReason
    message: str
    facts: tuple[str, ...] = ()
    what_helps: tuple[str, ...] = ()
    start_estimate: datetime | None = None
    start_earliest: datetime | None = None


def explain(snapshot: Snapshot, decision: Decision, job_id: JobId) -> Why:
    """What the decision on this snapshot means for a job; raises :class:`NotFound` when it is not waiting."""
    job = next((job for job in snapshot.waiting if job.job_id == job_id), None)
    if job is None:
        raise NotFound(f"job {job_id} is not waiting")
    for placement in decision.placements:
        if placement.job_id == job_id:
            where = ", ".join(share.node_id for share in placement.shares)
            return Why(job_id, job.number, WaitReason.STARTING, f"its cards on {where} are placed")
    for refusal in decision.refusals:
        if refusal.job_id == job_id:
            return Why(job_id, job.number, refusal.reason, refusal.message)
    wait = next((wait for wait in decision.waits if wait.job_id == job_id), None)
    if wait is None:
        return Why(job_id, job.number, WaitReason.NEW, "the scheduler has not looked at it yet")
    if wait.reason in _FOR_CARDS:
        return _for_cards(snapshot, decision, job, wait)
    advice = _STANDING_ADVICE.get(wait.reason)
    helps = () if advice is None else (advice,)
    return Why(job_id, job.number, wait.reason, wait.message, (), helps, wait.start_estimate)


def _for_cards(snapshot: Snapshot, decision: Decision, job: WaitingJob, wait: Wait) -> Why:
    now = decision.decided_at
    after = _afterwards(snapshot, decision, now)
    tally = tally_of(after, now)
    shape = tally.layout.shape(job.resources)
    details = [f"it asks for {wanted(job.resources)}"]
    for pool in shape.pools:
        lack = shortage(tally.layout, shape, (pool,), tally.room)
        on_one = lack.cards_free_on_one_node
        if job.resources.cards_per_node:
            details.append(f"{pool.pool}: {lack.cards_free} cards free, at most {on_one} on one node")
    details.extend(_queue(snapshot, decision, job))
    earliest = wait.start_estimate
    if earliest is None and shape.pools:
        shadow = shadow_start(tally, job, shape, shape.pools, lambda _pool: Fraction(0))
        earliest = None if shadow is None else instant_of(shadow.start_at)
        if earliest is not None:
            details.append(f"even without a queue not before {clock(earliest)}, unless something ends early")
    waiting = {hold.job_id for hold in decision.holds} - {job.job_id}
    rivals = tuple(other for other in snapshot.waiting if other.job_id in waiting)
    helps = tuple(
        text
        for text, changed in _changes(snapshot, decision, job, now)
        if _starts(replace(after, waiting=(*rivals, changed)), job.job_id, now)
    )
    return Why(
        job.job_id,
        job.number,
        wait.reason,
        wait.message,
        tuple(details),
        helps,
        wait.start_estimate,
        earliest,
    )


def _queue(snapshot: Snapshot, decision: Decision, job: WaitingJob) -> Iterator[str]:
    waiting = {wait.job_id for wait in decision.waits if wait.reason in _FOR_CARDS}
    others = [other for other in snapshot.waiting if other.job_id in waiting]
    greater = sum(other.claim > job.claim for other in others)
    same = sum(other.claim is job.claim for other in others) - 1
    if greater:
        yield f"{greater} jobs with a greater claim wait for cards"
    if same > 0:
        order = "the higher bid" if job.claim is Claim.SPOT else "the team that used less lately"
        yield f"{same} other {job.tariff.value} jobs wait for cards; {order} goes first"


def _changes(
    snapshot: Snapshot, decision: Decision, job: WaitingJob, now: datetime
) -> Iterator[tuple[str, WaitingJob]]:
    """Changes of one option each that might help, cheapest for the owner first."""
    r = job.resources
    mine = {r.card_model} if r.card_model else set()
    for hold in sorted(decision.holds, key=lambda hold: hold.start_at):
        seconds = int((hold.start_at - now).total_seconds())
        if hold.shadow and hold.job_id != job.job_id and 60 <= seconds < job.time_limit_seconds:
            minutes = seconds // 60
            yield f"--time={minutes}", replace(job, time_limit_seconds=minutes * 60)
            break
    for text, changed in _other_resources(r):
        yield text, replace(job, resources=changed)
    models = {card.model for node in snapshot.nodes for card in node.cards} - mine
    for model in sorted(models) if r.cards_per_node else ():
        yield f"--gres=gpu:{model}:{r.cards_per_node}", replace(job, resources=replace(r, card_model=model))
    if job.claim < Claim.ON_DEMAND:
        yield "--tariff on_demand", replace(job, tariff=Tariff.ON_DEMAND)


def _other_resources(r: Resources) -> Iterator[tuple[str, Resources]]:
    if r.exclude:
        yield "without --exclude", replace(r, exclude=())
    if r.nodelist:
        yield "without --nodelist", replace(r, nodelist=())
    if r.fabric is not None:
        yield f"without the fabric {r.fabric}", replace(r, fabric=None)
    if r.zone is not None:
        yield f"without the zone {r.zone}", replace(r, zone=None)
    model = f"{r.card_model}:" if r.card_model else ""
    if r.cards_per_node > 1 and r.cards_per_node % 2 == 0:
        half = r.cards_per_node // 2
        spread = replace(r, nodes=r.nodes * 2, cards_per_node=half)
        yield f"--nodes={spread.nodes} --gres=gpu:{model}{half}", spread
        yield f"--gres=gpu:{model}{half}", replace(r, cards_per_node=half)
    if r.nodes > 1:
        yield f"--nodes={r.nodes // 2}", replace(r, nodes=r.nodes // 2)


def _starts(snapshot: Snapshot, job_id: JobId, now: datetime) -> bool:
    return any(placement.job_id == job_id for placement in decide(snapshot, now).placements)


def _afterwards(snapshot: Snapshot, decision: Decision, now: datetime) -> Snapshot:
    """The snapshot once the decision is applied: placements run, reclaims have their notice."""
    deadline = now + timedelta(seconds=snapshot.grace_seconds)
    reclaims = {reclaim.allocation_id: reclaim for reclaim in decision.reclaims}
    running = [
        replace(a, notice_deadline=deadline, reclaimed_for=reclaims[a.id].for_job_id)
        if a.id in reclaims
        else a
        for a in snapshot.running
    ]
    jobs = {job.job_id: job for job in snapshot.waiting}
    running += [_as_running(placement, jobs[placement.job_id], now) for placement in decision.placements]
    return replace(snapshot, running=tuple(running), waiting=())


def _as_running(placement: Placement, job: WaitingJob, now: datetime) -> RunningAllocation:
    return RunningAllocation(
        id=AllocationId(f"placed-{job.job_id}"),
        job_id=job.job_id,
        number=job.number,
        team_id=job.team_id,
        tariff=job.tariff,
        shares=placement.shares,
        placed_at=now,
        expected_end_at=now + timedelta(seconds=job.time_limit_seconds),
        bid=job.bid,
        array_group=job.array_group,
    )
