"""Notices that the world makes due: a window closes, a card is faulty, the money or the cost limit ends."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app import funding
from starverse.app.apply_decision import give_notice
from starverse.app.observing import unfunded_reason
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import allocations, jobs, metering
from starverse.domain.errors import Conflict
from starverse.domain.ids import CardId
from starverse.domain.pricing.first_hour import window_end
from starverse.domain.workloads.reasons import NoticeReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import AllocationState

AHEAD_SECONDS = 5
"""A notice for the end of funds is given this much before launchers give it by themselves: they cannot say
why the funds end."""

TEXTS = {
    NoticeReason.WINDOW_CLOSED: "its window closes",
    NoticeReason.NO_MONEY: "the money of the team ends",
    NoticeReason.COST_MAX: "its --cost-max is reached",
    NoticeReason.CARD_FAULT: "a card of it is faulty",
}


def give_due_notices(platform: Platform) -> str:
    """One round over everything that runs and is not under notice yet; says what it did."""
    with platform.database.read() as connection:
        running = [
            a
            for a in allocations.open_ones(connection)
            if a.state is AllocationState.RUNNING and a.notice_reason is None
        ]
        owners = jobs.get_many(connection, {a.job_id for a in running})
        nodes = platform.nodes.read(connection)
        faulty_cards = {card.id for node in nodes for card in node.cards if not card.usable}
        due: list[tuple[Allocation, NoticeReason, datetime]] = []

        def look(allocation: Allocation) -> str:
            faulty = not faulty_cards.isdisjoint(map(CardId, allocation.cards))
            found = _due(connection, platform, allocation, owners[allocation.job_id], faulty)
            if found is not None:
                due.append((allocation, *found))
            return ""

        round_ = Round()
        round_.act_on(running, look)
    round_.act_on(due, lambda found: _say(found[0], found[1]) if _give(platform, *found) else "")
    return ", ".join(round_.end())


def _say(allocation: Allocation, reason: NoticeReason) -> str:
    return f"{allocation.id}: {reason.value}"


def _due(
    connection: Connection, platform: Platform, allocation: Allocation, job: Job, faulty: bool
) -> tuple[NoticeReason, datetime] | None:
    now = platform.clock.now()
    grace, ahead = timedelta(seconds=platform.settings.grace_seconds), timedelta(seconds=AHEAD_SECONDS)
    if faulty:
        return NoticeReason.CARD_FAULT, now + grace
    if job.spec.window is not None:
        books = metering.load_books(connection).books
        end = window_end(books, job.spec.window, now)
        if end is None:
            return NoticeReason.WINDOW_CLOSED, now
        stop = end - timedelta(seconds=platform.settings.kill_after_seconds)
        if now >= stop - grace:
            return NoticeReason.WINDOW_CLOSED, stop
    until = funding.stops_by(allocation, job, platform.settings.kill_after_seconds)
    if until is not None and now >= until - grace - ahead and not _ends_by_time_limit(allocation, job, until):
        return unfunded_reason(connection, platform, allocation, job), until
    return None


def _ends_by_time_limit(allocation: Allocation, job: Job, until: datetime) -> bool:
    if allocation.ready_at is None:
        return False
    return until >= allocation.ready_at + timedelta(seconds=job.spec.time_limit_seconds)


def _give(platform: Platform, allocation: Allocation, reason: NoticeReason, deadline: datetime) -> bool:
    def act(connection: Connection) -> bool:
        current = allocations.get(connection, allocation.id)
        if current is None or current.state is not AllocationState.RUNNING or current.notice_reason:
            return False
        if current.funded_until != allocation.funded_until and reason in (
            NoticeReason.NO_MONEY,
            NoticeReason.COST_MAX,
        ):
            return False
        give_notice(
            connection,
            platform,
            current,
            reason,
            platform.clock.now(),
            TEXTS.get(reason, reason.value),
            deadline=deadline,
        )
        return True

    try:
        return platform.database.write_retrying(act)
    except Conflict:
        return False
