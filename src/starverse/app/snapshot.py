"""Reads the scheduler's picture of the world in one transaction."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from sqlalchemy import Connection

from starverse.app.apply_decision import allocation_shares
from starverse.app.funding import sources_of
from starverse.app.platform import Platform
from starverse.db import allocations, checkpoints, inventory, jobs, ledger, metering
from starverse.db.metering import StoredBooks
from starverse.domain.errors import Invalid
from starverse.domain.ids import AllocationId, JobId, TeamId
from starverse.domain.money import Money
from starverse.domain.pricing.paying import Piece, Sources, pay
from starverse.domain.pricing.price_book import PriceBook
from starverse.domain.pricing.rating import (
    MemberChange,
    Subject,
    SubjectKind,
    Terms,
    Usage,
    charge_usages,
    rate_at,
)
from starverse.domain.pricing.windows import holds, window_edges
from starverse.domain.scheduling import eligibility
from starverse.domain.scheduling.eligibility import Facts, TaskFact
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
from starverse.domain.timespan import Timespan, ceil_to_second
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.specs import DependencyKind
from starverse.domain.workloads.states import JobState

USAGE_REACH = timedelta(days=7)
"""Usage older than seven half-lives counts less than one per cent."""

_PRICED = (Tariff.ON_DEMAND, Tariff.SPOT)


def take_snapshot(platform: Platform, now: datetime, disk_has_room: bool = True) -> Snapshot:
    """Nodes, what runs, what waits and why it may not start, prices and fairness, all at one instant.

    ``disk_has_room`` false keeps every job from starting (the disk reserve is reached).
    """
    with platform.database.read() as connection:
        return _Reader(connection, now, not disk_has_room).snapshot(platform.settings.grace_seconds)


@dataclass(frozen=True, slots=True)
class _Person:
    members: tuple[MemberChange, ...]
    factor: Fraction


class _Reader:
    """One reading; caches what several jobs share."""

    def __init__(self, connection: Connection, now: datetime, disk_reserve_reached: bool) -> None:
        self.connection, self.now = connection, now
        self.disk_reserve_reached = disk_reserve_reached
        self.books: StoredBooks = metering.load_books(connection)
        self.book: PriceBook = self.books.books.at(now)
        self.nodes = inventory.load_nodes(connection)
        self.people: dict[str, _Person] = {}
        self.sources: dict[str, Sources] = {}
        self.hour_costs: dict[tuple[object, ...], Money] = {}

    def snapshot(self, grace_seconds: int) -> Snapshot:
        open_ones = allocations.open_ones(self.connection)
        busy = {allocation.job_id for allocation in open_ones}
        queued = [j for j in jobs.in_state(self.connection, JobState.QUEUED) if j.id not in busy]
        owners = jobs.get_many(self.connection, busy)
        return Snapshot(
            nodes=self.nodes,
            running=self._running(open_ones, owners),
            waiting=self._waiting(queued),
            team_usage=self._team_usage(),
            prices=self._prices(),
            grace_seconds=grace_seconds,
        )

    def _running(self, open_ones: list[Allocation], owners: dict[str, Job]) -> tuple[RunningAllocation, ...]:
        by_card = inventory.load_cards(self.connection, {card for a in open_ones for card in a.cards})
        newest = checkpoints.newest_verified(self.connection, {j.checkpoints_id for j in owners.values()})
        return tuple(
            _running_one(a, owners[a.job_id], by_card, newest, self._person(a.account_id).factor)
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
        )

    def _blocked(
        self, job: Job, states: dict[int, tuple[TaskFact, ...]], singletons: dict[str, tuple[int, ...]]
    ) -> Blocked | Never | None:
        spec = job.spec
        window = self.book.windows.get(spec.window) if spec.window else None
        window_open = window is None or holds(window, self.now, self.book.timezone)
        opens = None
        if window is not None and not window_open:
            reach = Timespan(self.now, self.now + timedelta(hours=50))
            opens = next(iter(window_edges(window, reach, self.book.timezone)), None)
        needed, free = self._money(job)
        return eligibility.blocked(
            Facts(
                dependencies=spec.dependencies,
                dependency_tasks=states,
                singletons_open=singletons.get(job.id, ()),
                begin=spec.begin,
                retry_at=job.not_before,
                retry_message=job.message.partition("; tried again at")[0],
                window=spec.window,
                window_open=window_open,
                window_opens_at=opens,
                money_free=free,
                money_needed=needed,
                disk_reserve_reached=self.disk_reserve_reached,
            ),
            self.now,
        )

    def _money(self, job: Job) -> tuple[Money | None, Money | None]:
        """What the first hour needs, and what of it the wallet can pay; ``None`` where there is no price."""
        model, fabric = self._pool_of(job)
        if model is None:
            return None, None
        seconds = min(3600, job.spec.time_limit_seconds)
        key = (job.team_id, job.account_id, job.spec.tariff, model, fabric, job.spec.resources.cards, seconds)
        needed = self.hour_costs.get(key)
        start = ceil_to_second(self.now)
        span = Timespan(start, start + timedelta(seconds=seconds))
        if needed is None:
            members = self._person(job.account_id).members
            terms = Terms(tariff=job.spec.tariff, model=model, fabric=fabric, members=members)
            usage = Usage(Subject(SubjectKind.ALLOCATION, ""), span, job.spec.resources.cards, terms)
            needed = self.hour_costs[key] = charge_usages([usage], self.books.books).total
        if job.team_id not in self.sources:
            self.sources[job.team_id] = sources_of(ledger.team_wallet(self.connection, TeamId(job.team_id)))
        sources = self.sources[job.team_id]
        payment = pay((Piece(span.start, span.end, needed),), sources, self.book.coupon_share_max)
        return needed, needed - payment.missing

    def _pool_of(self, job: Job) -> tuple[str | None, str]:
        """A pool the job may land in, to price its first hour by; the dearest one."""
        asked = job.spec.resources
        if not asked.cards:
            return None, ""
        pools = {
            (card.model, node.fabric)
            for node in self.nodes
            for card in node.cards
            if asked.card_model in (None, card.model) and asked.fabric in (None, node.fabric)
        }
        priced = [pool for pool in sorted(pools) if self._has_price(*pool)]
        if not priced:
            return None, ""
        return max(priced, key=lambda pool: self.book.list_price_of(*pool).micro)

    def _has_price(self, model: str, fabric: str) -> bool:
        return bool(self.book.list_price.get(f"{model}/{fabric}") or self.book.list_price.get(model))

    def _list_price(self, job: Job) -> Fraction:
        model, fabric = self._pool_of(job)
        return Fraction(0) if model is None else Fraction(self.book.list_price_of(model, fabric).micro)

    def _person(self, account_id: str) -> _Person:
        if account_id not in self.people:
            members = metering.member_changes(self.connection, account_id)
            terms = Terms(tariff=Tariff.ON_DEMAND, model="", members=members)
            factor = self.book.member_factor(terms.member_at(self.now))
            self.people[account_id] = _Person(members, factor)
        return self.people[account_id]

    def _prices(self) -> dict[tuple[Pool, Tariff], Fraction]:
        pools = {node.pool(card.model) for node in self.nodes for card in node.cards}
        prices = {}
        for pool in pools:
            for tariff in _PRICED:
                try:
                    rate, _ = rate_at(Terms(tariff, pool.model, pool.fabric), self.now, self.books.books)
                except Invalid:
                    continue  # a model without a price is not sold: it is simply not checked here
                prices[pool, tariff] = rate
        return prices

    def _team_usage(self) -> dict[TeamId, float]:
        spans: dict[TeamId, list[UsageSpan]] = defaultdict(list)
        for team_id, cards, start, end in allocations.recent_usage(self.connection, self.now - USAGE_REACH):
            until = min(end or self.now, self.now)
            if start < until:
                spans[TeamId(team_id)].append(UsageSpan(cards, start, until))
        return {team_id: decayed_usage(own, self.now) for team_id, own in spans.items()}

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
    by_card: dict[str, inventory.CardRow],
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
        shares=allocation_shares(a, by_card),
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
    )


def _singletons(connection: Connection, queued: list[Job]) -> dict[str, tuple[int, ...]]:
    """Job id -> numbers of earlier open jobs of the same team and name, for jobs that depend on them."""
    found: dict[str, tuple[int, ...]] = {}
    for job in queued:
        if any(c.kind is DependencyKind.SINGLETON for c in job.spec.dependencies.conditions):
            found[job.id] = jobs.open_of_name(connection, job.team_id, job.spec.name, before=job.number)
    return found
