"""Keep the money of what runs ahead of the clock: charge hours that are over, hold the next ones.

When the next hour cannot be held, the cheapest claim of the team stops first (idle, spot, on-demand), the
newest first, so that dearer work goes on with what comes free (pricing.md, Holds).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app import funding, metering
from starverse.app.apply_decision import give_notice
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.app.wallet import wallet_view
from starverse.db import allocations, events, jobs
from starverse.db import metering as meter_rows
from starverse.db.events import Event
from starverse.domain.ids import TeamId
from starverse.domain.pricing.first_hour import NotFunded, Unfunded
from starverse.domain.pricing.rating import HOUR_SECONDS
from starverse.domain.scheduling.snapshot import claim_of
from starverse.domain.timespan import ceil_to_second
from starverse.domain.workloads.reasons import NoticeReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import AllocationState

RUNWAY_SLACK_SECONDS = 600
"""Looked at when an hour is held, ten minutes ahead: an hour from then on."""


def meter_all(platform: Platform) -> str:
    """One round over everything that runs."""
    now = platform.clock.now()
    with platform.database.read() as connection:
        running = [a for a in allocations.open_ones(connection) if a.ready_at is not None]
        owners = jobs.get_many(connection, {a.job_id for a in running})
        spans = meter_rows.hold_spans(connection, [a.id for a in running])

    def keep_ahead(allocation: Allocation) -> str:
        job, did = owners[allocation.job_id], []
        if _hour_is_over(allocation, spans.get(allocation.id, []), now) and _charge(
            platform, allocation, job
        ):
            did.append(f"charged an hour of job {job.display_number}")
        if _wants_more(allocation, now) and _extend(platform, allocation, job):
            did.append(f"held an hour for job {job.display_number}")
        return ", ".join(did)

    return ", ".join(each(running, keep_ahead))


def _hour_is_over(allocation: Allocation, spans: list[tuple[int, str]], now: datetime) -> bool:
    """Whether a held hour may have ended: a cheap test before a write transaction is opened.

    ``spans`` are (seconds, state) of its holds; the last one stays open.
    """
    if allocation.ready_at is None or allocation.alive_at is None:
        return False
    end = ceil_to_second(allocation.ready_at)
    for seconds, state in spans[:-1]:
        end += timedelta(seconds=seconds)
        if state == "open":
            return end <= min(now, allocation.alive_at)
    return False


def _charge(platform: Platform, allocation: Allocation, job: Job) -> int:
    def act(connection: Connection) -> int:
        current = allocations.get(connection, allocation.id)
        if current is None or not current.open:
            return 0
        return metering.close_full_hours(connection, current, job, platform.clock.now(), platform.ids)

    return platform.database.write_retrying(act)


def _wants_more(allocation: Allocation, now: datetime) -> bool:
    until = allocation.funded_until
    if until is None or allocation.state is not AllocationState.RUNNING:
        return False
    if allocation.alive_at is None or allocation.alive_at < until - timedelta(seconds=HOUR_SECONDS):
        return False  # nothing was heard of it in the hour that ends: no further one is held
    return now >= until - timedelta(seconds=funding.EXTEND_BEFORE_SECONDS)


def _extend(platform: Platform, allocation: Allocation, job: Job) -> int:
    with platform.database.read() as connection:
        asked = funding.ask_next(connection, allocation, job)
    if isinstance(asked, NotFunded) and asked.why is not Unfunded.NO_MONEY:
        return 0  # its own limits end it: asked every few seconds, it is not worth a write

    def act(connection: Connection) -> int:
        now = platform.clock.now()
        current = allocations.get(connection, allocation.id)
        if current is None or current.funded_until != allocation.funded_until or not current.open:
            return 0
        funded = funding.take_next(connection, current, job, now, platform.ids)
        if isinstance(funded, funding.Funded):
            until = (current.funded_until or now) + timedelta(seconds=funded.seconds)
            allocations.change(connection, current, funded_until=until)
            _warn_of_last_hour(connection, platform, current, now)
            return 1
        if funded.why is Unfunded.NO_MONEY:
            _money_ends(connection, platform, current, funded, now)
        return 0

    return platform.database.write_retrying(act)


def _warn_of_last_hour(
    connection: Connection, platform: Platform, allocation: Allocation, now: datetime
) -> None:
    """Tell the team once when its money lasts an hour more at the present burn (pricing.md, Holds)."""
    wallet = wallet_view(connection, TeamId(allocation.team_id), "", now)
    if wallet.runway_seconds is None or wallet.runway_seconds > HOUR_SECONDS + RUNWAY_SLACK_SECONDS:
        return
    if not events.exists(connection, allocation.job_id, "warning", "money_low", since=allocation.ready_at):
        text = f"the money lasts {wallet.runway_seconds // 60} min at the present burn; top up to go on"
        happened = Event(now, "job", allocation.job_id, "warning", "money_low", text, allocation.team_id)
        events.record(connection, happened)


def _money_ends(
    connection: Connection, platform: Platform, allocation: Allocation, why: NotFunded, now: datetime
) -> None:
    """Warn the team once, and stop its cheapest claim, the newest of equals, so that this one goes on."""
    needed, available = why.needed.decimal(), why.available.decimal()
    text = (
        f"the next hour needs CNY {needed}, CNY {available} is free; it runs out at {allocation.funded_until}"
    )
    if not events.exists(connection, allocation.job_id, "warning", "money_ends", since=allocation.ready_at):
        events.record(
            connection,
            Event(
                now,
                "job",
                allocation.job_id,
                "warning",
                "money_ends",
                text,
                allocation.team_id,
                allocation.account_id,
            ),
        )
    victim = cheapest_claim([a for a in allocations.open_ones(connection) if a.team_id == allocation.team_id])
    if victim is not None and victim.id != allocation.id:
        give_notice(
            connection,
            platform,
            victim,
            NoticeReason.NO_MONEY,
            now,
            "the money of the team ends",
            allocation.job_id,
        )


def cheapest_claim(open_ones: list[Allocation]) -> Allocation | None:
    """Which of a team's allocations stops first when money ends: lowest claim, then newest.

    ``None`` while one of them is under notice already: what it frees is waited for.
    """
    running = [a for a in open_ones if a.state is AllocationState.RUNNING]
    if not running or any(a.notice_reason is NoticeReason.NO_MONEY for a in open_ones):
        return None
    lowest = min(claim_of(a.tariff) for a in running)
    return max((a for a in running if claim_of(a.tariff) == lowest), key=lambda a: (a.placed_at, a.id))
