"""Reads the scheduler's picture of the world in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from sqlalchemy import Connection

from starverse.app import funding
from starverse.app.apply_decision import allocation_shares
from starverse.app.platform import Platform
from starverse.app.usage_memory import UsageMemory
from starverse.db import allocations, checkpoints, jobs, ledger, metering
from starverse.db.metering import StoredBooks
from starverse.domain.errors import Invalid
from starverse.domain.ids import AllocationId, CardId, JobId, NodeId, TeamId
from starverse.domain.money import ZERO
from starverse.domain.pricing.first_hour import (
    Affordable,
    NotFunded,
    Unfunded,
    Wanted,
    afford,
    candidate_starts,
    dearest_pool,
)
from starverse.domain.pricing.open_hours import window_opening
from starverse.domain.pricing.paying import Sources
from starverse.domain.pricing.price_book import PriceBook
from starverse.domain.pricing.rating import HOUR_SECONDS, MemberChange, Terms, rate_at
from starverse.domain.scheduling import eligibility
from starverse.domain.scheduling.eligibility import Facts, TaskFact
from starverse.domain.scheduling.fit import pools_asked
from starverse.domain.scheduling.snapshot import (
    Blocked,
    Never,
    Pool,
    RunningAllocation,
    Snapshot,
    WaitingJob,
)
from starverse.domain.scheduling.team_usage import UsageSpan, decayed_usage
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import WaitReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.specs import DependencyKind, Resources

_PRICED = (Tariff.ON_DEMAND, Tariff.SPOT)


def take_snapshot(
    platform: Platform, now: datetime, disk_has_room: bool = True, usage: UsageMemory | None = None
) -> Snapshot:
    """Nodes, what runs, what waits and why it may not start, prices and fairness, all at one instant.

    ``disk_has_room`` false keeps every job from starting (the disk reserve is reached). ``usage`` is kept
    from round to round by whoever takes many; ``None``: the whole week is read.
    """
    with platform.database.read() as connection:
        settings = platform.settings
        reader = _Reader(platform, connection, now, not disk_has_room)
        reader.usage = usage or reader.usage
        if not platform.engine.capabilities.binds_cards:  # a wish that nobody can grant makes nobody wait
            reader.nodes = tuple(replace(node, links=()) for node in reader.nodes)
        return reader.snapshot(settings.grace_seconds)


@dataclass(frozen=True, slots=True)
class _Person:
    members: tuple[MemberChange, ...]
    factor: Fraction


class _Reader:
    """One reading; caches what several jobs share."""

    def __init__(
        self, platform: Platform, connection: Connection, now: datetime, disk_reserve_reached: bool
    ) -> None:
        self.connection, self.now = connection, now
        self.disk_reserve_reached = disk_reserve_reached
        self.books: StoredBooks = metering.load_books(connection)
        self.book: PriceBook = self.books.books.at(now)
        self.nodes = platform.nodes.read(connection)
        self.kinds = platform.nodes.kinds(self.nodes)
        self.unexamined = allocations.lines_not_examined(connection)
        self.usage = UsageMemory()
        self.people: dict[str, _Person] = {}
        self.sources: dict[str, Sources] = {}
        self.starts = candidate_starts(now, platform.settings.start_timeout_seconds, self.books.books)
        self.hours: dict[tuple[object, ...], Affordable | NotFunded] = {}
        self.dearest: dict[tuple[object, ...], tuple[str, str] | None] = {}

    def snapshot(self, grace_seconds: int) -> Snapshot:
        open_ones = allocations.open_ones(self.connection)
        busy = {allocation.job_id for allocation in open_ones}
        queued = [j for j in jobs.queued(self.connection) if j.id not in busy]
        owners = jobs.get_many(self.connection, busy)
        tariffs = {allocation.tariff for allocation in open_ones} | {job.spec.tariff for job in queued}
        return Snapshot(
            nodes=self.nodes,
            running=self._running(open_ones, owners),
            waiting=self._waiting(queued),
            team_usage=self._team_usage(open_ones),
            prices=self._prices([tariff for tariff in _PRICED if tariff in tariffs]),
            grace_seconds=grace_seconds,
        )

    def _running(self, open_ones: list[Allocation], owners: dict[str, Job]) -> tuple[RunningAllocation, ...]:
        node_of = {card.id: node.id for node in self.nodes for card in node.cards}
        newest = checkpoints.newest_verified(self.connection, {j.checkpoints_id for j in owners.values()})
        return tuple(
            _running_one(a, owners[a.job_id], node_of, newest, self._person(a.account_id).factor)
            for a in open_ones
        )

    def _waiting(self, queued: list[Job]) -> tuple[WaitingJob, ...]:
        states = self._dependency_facts(queued)
        promised = allocations.promises(self.connection, {job.id for job in queued})
        singletons = _singletons(self.connection, queued)
        return tuple(self._waiting_one(job, states, singletons, promised) for job in queued)

    def _waiting_one(
        self,
        job: Job,
        states: dict[int, tuple[TaskFact, ...]],
        singletons: dict[str, tuple[int, ...]],
        promised: dict[str, datetime],
    ) -> WaitingJob:
        spec = job.spec
        bid = None if spec.price_max is None else Fraction(spec.price_max.micro)
        return WaitingJob(
            job_id=JobId(job.id),
            number=job.display_number,
            team_id=TeamId(job.team_id),
            tariff=spec.tariff,
            resources=spec.resources,
            submitted_at=job.submitted_at,
            time_limit_seconds=spec.time_limit_seconds,
            bid=bid,
            bid_rank=bid if bid is not None else self._list_price(job),
            member_factor=self._person(job.account_id).factor,
            blocked=self._blocked(job, states, singletons),
            promised_at=promised.get(job.id),
            array_group=None if job.array_index is None else str(job.number),
            array_running_max=spec.array.running_max if spec.array else None,
            at_once=spec.at_once and not job.attempts,
            script=spec.name,
        )

    def _blocked(
        self, job: Job, states: dict[int, tuple[TaskFact, ...]], singletons: dict[str, tuple[int, ...]]
    ) -> Blocked | Never | None:
        spec = job.spec
        hour = self._first_hour(job)
        refusal = hour if isinstance(hour, NotFunded) else None
        why = refusal.why if refusal else None
        closed = why is Unfunded.WINDOW_CLOSED
        short = refusal if why is Unfunded.NO_MONEY else None
        return eligibility.blocked(
            Facts(
                dependencies=spec.dependencies,
                dependency_tasks=states,
                singletons_open=singletons.get(job.id, ()),
                begin=spec.begin,
                retry_at=job.not_before,
                retry_message=job.message.partition("; tried again at")[0],
                retry_reason=_retry_reason(job),
                checkpoint_pending=job.resume_allowed and job.checkpoints_id in self.unexamined,
                window=spec.window,
                window_open=not closed,
                window_opens_at=window_opening(self.books.books, spec.window, self.now)
                if closed and spec.window
                else None,
                priced=why is not Unfunded.NO_PRICE,
                cost_max_used_up=why is Unfunded.COST_MAX,
                money_free=short.available if short else None,
                money_needed=short.needed if short else None,
                disk_reserve_reached=self.disk_reserve_reached,
            ),
            self.now,
        )

    def _first_hour(self, job: Job) -> Affordable | NotFunded | None:
        """Whether its first hour could be held now, by the rule of the hold itself, at its dearest pool.

        ``None``: there is nothing to price, because it asks for no cards or none of its pools is here.
        """
        asked = job.spec.priced_resources
        pool = self._dearest_pool(asked)
        if pool is None:
            return NotFunded(Unfunded.NO_PRICE) if pools_asked(self.kinds, asked) else None
        spec, left = job.spec, funding.cost_left(self.connection, job, ZERO)
        seconds = min(HOUR_SECONDS, spec.time_limit_seconds)
        key = (job.team_id, job.account_id, spec.tariff, pool, asked.cards, seconds, spec.window, left)
        if key not in self.hours:
            terms = Terms(spec.tariff, *pool, members=self._person(job.account_id).members)
            wanted = Wanted(
                terms, asked.cards, seconds, window=spec.window, cost_left=left, taken_at=self.now
            )
            if job.team_id not in self.sources:
                wallet = ledger.team_wallet(self.connection, TeamId(job.team_id))
                self.sources[job.team_id] = funding.sources_of(wallet)
            self.hours[key] = afford(wanted, self.starts, self.sources[job.team_id], self.books.books)
        return self.hours[key]

    def _dearest_pool(self, asked: Resources) -> tuple[str, str] | None:
        key = (asked.card_model, asked.fabric, asked.zone, asked.cards_per_node > 0)
        if key not in self.dearest:
            self.dearest[key] = dearest_pool(pools_asked(self.kinds, asked), self.book)
        return self.dearest[key]

    def _list_price(self, job: Job) -> Fraction:
        pool = self._dearest_pool(job.spec.priced_resources)
        return Fraction(0) if pool is None else Fraction(self.book.list_price_of(*pool).micro)

    def _person(self, account_id: str) -> _Person:
        if account_id not in self.people:
            members = metering.member_changes(self.connection, account_id)
            terms = Terms(tariff=Tariff.ON_DEMAND, model="", members=members)
            factor = self.book.member_factor(terms.member_at(self.now))
            self.people[account_id] = _Person(members, factor)
        return self.people[account_id]

    def _prices(self, tariffs: Collection[Tariff]) -> dict[tuple[Pool, Tariff], Fraction]:
        """Of the tariffs that somebody runs on or waits for."""
        pools = {node.pool(card.model) for node in self.kinds for card in node.cards}
        prices = {}
        for pool in pools:
            for tariff in tariffs:
                try:
                    rate, _ = rate_at(Terms(tariff, pool.model, pool.fabric), self.now, self.books.books)
                except Invalid:
                    continue  # a model without a price is not sold: it is simply not checked here
                prices[pool, tariff] = rate
        return prices

    def _team_usage(self, open_ones: list[Allocation]) -> dict[TeamId, float]:
        """What ended, from memory, and what runs."""
        standing = self.usage.ended(self.connection, self.now)
        spans: dict[TeamId, list[UsageSpan]] = defaultdict(list)
        for a in open_ones:
            if a.cards and a.ready_at is not None and a.ready_at < self.now:
                spans[TeamId(a.team_id)].append(UsageSpan(len(a.cards), a.ready_at, self.now))
        for team_id, own in spans.items():
            standing[team_id] = standing.get(team_id, 0.0) + decayed_usage(own, self.now)
        return standing

    def _dependency_facts(self, queued: list[Job]) -> dict[int, tuple[TaskFact, ...]]:
        numbers = {
            condition.job_number
            for job in queued
            for condition in job.spec.dependencies.conditions
            if condition.job_number is not None
        }
        facts: dict[int, list[TaskFact]] = defaultdict(list)
        if numbers:
            for number, fact in jobs.dependency_facts(self.connection, numbers):
                facts[number].append(TaskFact(*fact))
        return {number: tuple(found) for number, found in facts.items()}


def _running_one(
    a: Allocation,
    job: Job,
    node_of: Mapping[CardId, NodeId],
    newest: dict[str, checkpoints.CheckpointRow],
    factor: Fraction,
) -> RunningAllocation:
    checkpoint = newest.get(job.checkpoints_id)
    stopping = a.stop_requested_at
    return RunningAllocation(
        id=AllocationId(a.id),
        job_id=JobId(a.job_id),
        number=job.display_number,
        team_id=TeamId(a.team_id),
        tariff=a.tariff,
        shares=allocation_shares(a, node_of),
        placed_at=a.placed_at,
        expected_end_at=(a.ready_at or a.placed_at) + timedelta(seconds=job.spec.time_limit_seconds),
        bid=None if job.spec.price_max is None else Fraction(job.spec.price_max.micro),
        member_factor=factor,
        ready_at=a.ready_at,
        newest_verified_checkpoint_at=checkpoint.published_at if checkpoint else None,
        notice_deadline=a.notice_deadline or stopping,
        reclaimed_for=JobId(a.notice_for) if a.notice_for else None,
        requeue=job.spec.requeue,
        array_group=None if job.array_index is None else str(job.number),
        script=job.spec.name,
    )


def _retry_reason(job: Job) -> WaitReason:
    try:
        return WaitReason(job.reason)
    except ValueError:
        return WaitReason.START_FAILED


def _singletons(connection: Connection, queued: list[Job]) -> dict[str, tuple[int, ...]]:
    """Job id -> numbers of earlier open jobs of the same team and name, for jobs that depend on them."""
    found: dict[str, tuple[int, ...]] = {}
    for job in queued:
        if any(c.kind is DependencyKind.SINGLETON for c in job.spec.dependencies.conditions):
            found[job.id] = jobs.open_of_name(connection, job.team_id, job.spec.name, before=job.number)
    return found
