"""Compare what engines report with what is recorded, and tell launchers what is wanted of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from starverse.app import funding
from starverse.app.binding import follow_binding, is_proven, note_fault, read_bindings
from starverse.app.disks.attachments import note_plugged, wanted_plugs
from starverse.app.endings import End, record_end, record_ready
from starverse.app.instances.evidence import note_activity
from starverse.app.launching import is_too_late, ttl_left
from starverse.app.node_reports import record_nodes
from starverse.app.one_by_one import each
from starverse.app.overdue import MARGIN_SECONDS, Watch, Witness, why_overdue
from starverse.app.platform import Platform
from starverse.db import allocations, inventory, jobs, metering
from starverse.domain.pricing.open_hours import window_end
from starverse.domain.pricing.rating import rate_at
from starverse.domain.recovery.causes import EndFacts, end_cause
from starverse.domain.timespan import ceil_to_second
from starverse.domain.workloads.launch import FUNDS_END, Desired, LauncherState
from starverse.domain.workloads.reasons import EndCause, NoticeReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import AllocationState
from starverse.engines.base import EngineUnavailable, Observation, Presence


def observe_all(platform: Platform, watch: Watch) -> str:
    """One round over every open allocation that was handed to the engine."""
    with platform.database.read() as connection:
        open_ones = [a for a in allocations.open_ones(connection) if a.submitted_at is not None]
        owners = jobs.get_many(connection, {a.job_id for a in open_ones})
    watch.keep_only([a.id for a in open_ones])
    if not open_ones:
        return ""
    asked_at = platform.clock.now()  # an answer is judged as of then: this server may hang before it judges
    seen = platform.engine.observe([a.id for a in open_ones])
    alive = list(_signs_of_life(seen))
    if alive:
        with platform.database.write() as connection:
            allocations.note_alive(connection, alive)

    with platform.database.read() as connection:
        bindings = read_bindings(connection, platform, seen, open_ones)

    def look(allocation: Allocation) -> str:
        job, observation = owners[allocation.job_id], seen.get(allocation.id)
        if observation is None:  # the engine cannot tell just now
            return ""
        if observation.state is not None:
            wrong = follow_binding(platform, allocation, observation.state, bindings)
            lives = observation.presence is Presence.ALIVE  # else its cards may have been given on by now
            starting = lives and allocation.state is AllocationState.STARTING
            if wrong and starting and is_proven(platform, allocation, observation.state, bindings, open_ones):
                return _wrongly_bound(platform, allocation, wrong)
        if observation.presence is Presence.ALIVE and observation.state is not None:
            witness = watch.look(allocation, observation.state.alive_at, asked_at)
            return _alive(platform, allocation, job, observation.state, witness, asked_at)
        return _not_alive(platform, allocation, job, observation, asked_at)

    return ", ".join(each(open_ones, look))


def _signs_of_life(seen: Mapping[str, Observation]) -> Iterator[tuple[str, datetime]]:
    """When each living launcher last spoke; a time that is none keeps no other from being recorded."""
    for allocation_id, observation in seen.items():
        if observation.state is not None and observation.presence is Presence.ALIVE:
            with contextlib.suppress(ValueError, OverflowError, OSError):
                yield allocation_id, _instant(observation.state.alive_at)


def _not_alive(
    platform: Platform, allocation: Allocation, job: Job, observation: Observation, now: datetime
) -> str:
    state = observation.state
    if observation.presence is Presence.ENDED and state is not None:
        return _ended(platform, allocation, job, state)
    if observation.presence is Presence.GONE:
        return _gone(platform, allocation, job, observation, now)
    if observation.presence in (Presence.UNKNOWN, Presence.ACCEPTED):
        return _not_there(platform, allocation, observation, now)
    platform.engine.steer(allocation.id, desired_of(platform, allocation, job))
    return ""


def _alive(
    platform: Platform,
    allocation: Allocation,
    job: Job,
    state: LauncherState,
    witness: Witness,
    seen_at: datetime,
) -> str:
    """Its launcher holds the claim: follow it, tell it what is wanted, end it where it hangs."""
    starting = allocation.state is AllocationState.STARTING
    if starting and state.ready_at is not None:
        record_ready(platform, allocation.id, _instant(state.ready_at), _instant(state.alive_at))
    note_plugged(platform, allocation, state)
    note_activity(platform, allocation, job, state)
    late = starting and state.ready_at is None and is_too_late(platform, allocation, seen_at=seen_at)
    why = why_overdue(allocation, job, state, witness, platform.settings)
    if not why and late:
        slack = platform.settings.kill_after_seconds + MARGIN_SECONDS
        why = "does not start" if is_too_late(platform, allocation, slack, seen_at=seen_at) else ""
    if why:
        ended = "it was ended" if _clean(platform, allocation) else "it resists"
        return f"the launcher of {allocation.id} {why}; {ended}"
    platform.engine.steer(
        allocation.id, Desired(stop=True) if late else desired_of(platform, allocation, job)
    )
    return f"{allocation.id} took too long to start" if late else ""


def _wrongly_bound(platform: Platform, allocation: Allocation, why: str) -> str:
    """Its engine gave it cards that it cannot have: it never counts as ready, so that nobody pays for it."""
    if not _clean(platform, allocation):
        return f"{allocation.id}: {why}; it resists"
    end = End(AllocationState.FAILED_TO_START, EndCause.START_FAILED, why, ended_at=platform.clock.now())
    if record_end(platform, allocation.id, end):
        note_fault(platform, allocation, why)
    return f"{allocation.id}: {why}"


def _clean(platform: Platform, allocation: Allocation) -> bool:
    """Have the engine end and remove it; false while something resists, to be asked again."""
    try:
        platform.engine.clean(allocation.id)
    except EngineUnavailable:
        return False
    return True


def desired_of(platform: Platform, allocation: Allocation, job: Job) -> Desired:
    """What the platform wants of a launcher, from the record alone."""
    stops = funding.stops_by(allocation, job, platform.settings.kill_after_seconds)
    plugs = ttl_seconds = None
    if job.spec.disks or job.instance_id is not None:
        with platform.database.read() as connection:
            plugs = wanted_plugs(connection, platform, allocation.id)
            ttl_seconds = ttl_left(connection, allocation, job)
    return Desired(
        funded_until=stops.timestamp() if stops else None,
        notice_reason=allocation.notice_reason.value if allocation.notice_reason else "",
        notice_deadline=allocation.notice_deadline.timestamp() if allocation.notice_deadline else None,
        stop=allocation.stop_requested_at is not None,
        signal_count=allocation.signal_count or 0,
        signal_name=allocation.signal_name or "",
        signal_to=allocation.signal_to or "",
        plugs=plugs,
        ttl_seconds=ttl_seconds,
    )


def _ended(platform: Platform, allocation: Allocation, job: Job, state: LauncherState) -> str:
    ready_at = None if state.ready_at is None else _instant(state.ready_at)
    cause, message = end_cause(
        EndFacts(
            state=state,
            notice_reason=_why_stopped(platform, allocation, job, state),
            cancel_requested=job.cancel_requested_at is not None and allocation.stop_requested_at is not None,
            card_fault=_card_fault(platform, allocation),
            signal_asked=job.spec.signal is not None,
            interactive=job.spec.interactive,
        )
    )
    failed = ready_at is None and allocation.stop_requested_at is None
    end = End(
        state=AllocationState.FAILED_TO_START if failed else AllocationState.ENDED,
        cause=cause,
        message=message,
        ended_at=_instant(state.ended_at if state.ended_at is not None else state.alive_at),
        ready_at=ready_at,
        exit_code=state.exit_code,
        exit_signal=state.exit_signal,
        unclean=state.unclean,
    )
    note_plugged(platform, allocation, state)
    if cause is EndCause.NODE_LOST:
        _see_nodes(platform)
    record_end(platform, allocation.id, end)
    platform.engine.steer(allocation.id, Desired(release=True))
    return f"{allocation.id} ended: {cause.value}"


def _see_nodes(platform: Platform) -> None:
    """Before anything is placed again: which nodes went down just now."""
    with contextlib.suppress(EngineUnavailable):
        record_nodes(platform)


def _card_fault(platform: Platform, allocation: Allocation) -> str:
    with platform.database.read() as connection:
        cards = inventory.load_cards(connection, allocation.cards)
    faulty = sorted(card.id for card in cards.values() if not card.usable)
    return f"card {', '.join(faulty)} is faulty" if faulty else ""


def _why_stopped(
    platform: Platform, allocation: Allocation, job: Job, state: LauncherState
) -> NoticeReason | None:
    """Why the launcher stopped it: the notice on record, or what a stop for lack of funds stood for."""
    if allocation.notice_reason is not None and state.stopped_by not in ("unfunded", "time_limit"):
        return allocation.notice_reason
    if state.stopped_by == "time_limit":
        return NoticeReason.TIME_LIMIT
    if state.stopped_by != "unfunded" and state.notice_reason not in (FUNDS_END, NoticeReason.NO_MONEY.value):
        return allocation.notice_reason
    with platform.database.read() as connection:
        if allocation.notice_reason is not None:
            return allocation.notice_reason
        return unfunded_reason(connection, platform, _as_it_was(connection, allocation, state), job)


def _as_it_was(connection: Connection, allocation: Allocation, state: LauncherState) -> Allocation:
    """The allocation with its ready and its funds, also when nobody looked while it ran."""
    if allocation.funded_until is not None or state.ready_at is None:
        return allocation
    ready_at = _instant(state.ready_at)
    held = metering.held_seconds(connection, allocation.id)
    until = ceil_to_second(ready_at) + timedelta(seconds=held)
    return replace(allocation, ready_at=ready_at, funded_until=until)


def unfunded_reason(
    connection: Connection, platform: Platform, allocation: Allocation, job: Job
) -> NoticeReason:
    """What a lack of funded seconds stands for: a closed window, a used-up cost limit, or no money.

    A first hold that the window bounds is for its latest start: one that started at once has funds to a
    little before its window closes.
    """
    until = allocation.funded_until
    if job.spec.window is not None and until is not None:
        books = metering.load_books(connection).books
        latest = until + timedelta(seconds=platform.settings.start_timeout_seconds)
        if window_end(books, job.spec.window, latest) is None:
            return NoticeReason.WINDOW_CLOSED
    if job.spec.cost_max is not None:
        left = job.spec.cost_max - metering.charged_of_job(connection, job.id)
        held = metering.open_amount(metering.holds_of(connection, allocation.id))
        if (left - held).micro < _second_price(connection, allocation):
            return NoticeReason.COST_MAX
    return NoticeReason.NO_MONEY


def _second_price(connection: Connection, allocation: Allocation) -> int:
    """Micro-yuan of one second, rounded up, at the present end of its funds."""
    books = metering.load_books(connection).books
    at = allocation.funded_until or allocation.placed_at
    rate, _ = rate_at(funding.terms_of(connection, allocation), at, books)
    exact = rate * allocation.cards_priced / 3600
    return -(-exact.numerator // exact.denominator) + 1


def _gone(
    platform: Platform, allocation: Allocation, job: Job, observation: Observation, now: datetime
) -> str:
    """Its launcher died without a word. Lost only once its lease ran out; first nothing of it may run on."""
    state = observation.state
    told = allocation.alive_at or allocation.submitted_at or now
    last = _instant(state.alive_at) if state is not None else told
    cleaned = _clean(platform, allocation)
    if not cleaned or now < last + timedelta(seconds=platform.settings.lease_seconds):
        return ""
    state = platform.engine.observe([allocation.id])[allocation.id].state or state
    ready_at = state.ready_at if state is not None else None
    never_ready = ready_at is None and allocation.ready_at is None
    _see_nodes(platform)
    record_end(
        platform,
        allocation.id,
        End(
            state=AllocationState.FAILED_TO_START if never_ready else AllocationState.LOST,
            cause=EndCause.START_FAILED if never_ready else EndCause.NODE_LOST,
            message="its launcher died" if not never_ready else "its launcher died before the script started",
            ended_at=last,
            ready_at=None if ready_at is None else _instant(ready_at),
            unclean=() if state is None else state.unclean,
        ),
    )
    return f"{allocation.id} is lost"


def _not_there(platform: Platform, allocation: Allocation, observation: Observation, now: datetime) -> str:
    """Submitted and not claimed: cancelled or too late ends it, once the engine confirms nothing runs."""
    stopped = allocation.stop_requested_at is not None
    if allocation.state is not AllocationState.STARTING:
        if allocation.alive_at is None:
            return ""
        # It ran, and its folder knows nothing of that any more (a power cut): first it is revoked.
        lease_over = now >= allocation.alive_at + timedelta(seconds=platform.settings.lease_seconds)
        if lease_over and _clean(platform, allocation) and observation.presence is Presence.UNKNOWN:
            return _forgotten(platform, allocation)
        return ""
    if not stopped and not is_too_late(platform, allocation, seen_at=now):
        return ""
    # Its id is revoked before its cards are free: a start that is under way at this moment comes to nothing.
    if not _clean(platform, allocation) or observation.presence is Presence.ACCEPTED:
        return ""
    cause = EndCause.CANCELLED if stopped else EndCause.START_FAILED
    end = AllocationState.FAILED_TO_START
    message = "cancelled while starting" if stopped else "no launcher answered in time"
    record_end(platform, allocation.id, End(end, cause, message, ended_at=now))
    return f"{allocation.id}: {message}"


def _forgotten(platform: Platform, allocation: Allocation) -> str:
    """The engine has no trace of something that ran: its node and its folder are gone."""
    record_end(
        platform,
        allocation.id,
        End(
            AllocationState.LOST,
            EndCause.NODE_LOST,
            "the engine has no trace of it any more",
            ended_at=allocation.alive_at or platform.clock.now(),
        ),
    )
    return f"{allocation.id} is lost"


def _instant(seconds: float) -> datetime:
    """A launcher's time as an instant: usage follows its clock, which does not jump (pricing.md, Clock)."""
    return datetime.fromtimestamp(seconds, UTC)
