"""Jobs as people see them: rows of several tables joined into the frozen views of ``views.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.progress import last_progress
from starverse.app.running_costs import uncharged
from starverse.app.views import AllocationView, CardView, CheckpointView, JobView, NoticeView
from starverse.db import accounts, allocations, checkpoints, inventory, jobs, metering, teams
from starverse.db.metering import StoredBooks
from starverse.domain.errors import Invalid, NotFound
from starverse.domain.money import ZERO, Money, total
from starverse.domain.pricing.job_quote import Wish, quote_job
from starverse.domain.pricing.rating import HOUR_SECONDS, MemberChange, Terms
from starverse.domain.recovery.lost_work import lost_work_seconds
from starverse.domain.sbatch.hostlists import fold_hosts
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.specs import Dependencies, JobSpec
from starverse.domain.workloads.states import AllocationState, JobState

KILLED = frozenset(
    {
        EndCause.RECLAIMED,
        EndCause.NODE_LOST,
        EndCause.CARD_FAULT,
        EndCause.MONEY,
        EndCause.COST_MAX,
        EndCause.WINDOW,
        EndCause.TIME_LIMIT,
        EndCause.PLATFORM,
        EndCause.OUT_OF_MEMORY,
    }
)
"""Ends at which what ran after the newest verified checkpoint was lost."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a batch of jobs."""

    runs: dict[str, list[Allocation]]
    cards: dict[str, inventory.CardRow]
    charged: dict[str, Money]
    meters: dict[str, metering.Meter]
    newest: dict[str, checkpoints.CheckpointRow]
    checkpoint_at: dict[tuple[str, int], datetime]
    emails: dict[str, str]
    team_names: dict[str, str]
    members: dict[str, tuple[MemberChange, ...]]
    books: StoredBooks
    now: datetime


def one(platform: Platform, job_id: str) -> JobView:
    """One job with its allocations."""
    with platform.database.read() as connection:
        job = jobs.get(connection, job_id)
        if job is None:
            raise NotFound(f"There is no job {job_id}.")
        return with_allocations(platform, connection, [job])[0]


def of_new(
    job: Job, identity: Identity, members: tuple[MemberChange, ...], books: StoredBooks, now: datetime
) -> JobView:
    """A job of the caller that was queued a moment ago: nothing is read, since it has nothing yet."""
    around = _Around(
        runs={job.id: []},
        cards={},
        charged={},
        meters={},
        newest={},
        checkpoint_at={},
        emails={identity.account_id: identity.email},
        team_names={identity.team_id: identity.team_name},
        members={identity.account_id: members},
        books=books,
        now=now,
    )
    return _view(job, around)


def with_allocations(platform: Platform, connection: Connection, found: Sequence[Job]) -> list[JobView]:
    """Views with every run and the last progress line."""
    around = _read_around(platform, connection, found)
    return [
        replace(
            _view(job, around),
            allocations=tuple(_allocation(job, run, around) for run in around.runs[job.id]),
            progress=last_progress(platform.paths.logs(job.id), job.attempts),
        )
        for job in found
    ]


def plain(platform: Platform, connection: Connection, found: Sequence[Job]) -> list[JobView]:
    """Views for lists: no runs, no progress line."""
    around = _read_around(platform, connection, found)
    return [_view(job, around) for job in found]


def of_array(platform: Platform, connection: Connection, tasks: Sequence[Job]) -> JobView:
    """The whole of an array: the view of its first task, with how many tasks are in which state, and with
    what all of them cost and lost.
    """
    around = _read_around(platform, connection, tasks)
    counts = Counter(task.state.value for task in tasks)
    return replace(
        _view(tasks[0], around),
        number=str(tasks[0].number),
        array_index=None,
        own_number=tasks[0].number,
        tasks=dict(counts),
        cost_so_far=total([_cost_so_far(task, around) for task in tasks]),
        lost_work_seconds=sum(_lost_by(task, around) for task in tasks),
    )


def lost_seconds(run: Allocation, checkpoint_at: datetime | None) -> int:
    """Seconds run after the newest verified checkpoint of this run, where it was killed; else 0."""
    if run.ended_at is None or run.cause not in KILLED:
        return 0
    return lost_work_seconds(checkpoint_at, run.ready_at, run.ended_at)


def _cost_so_far(job: Job, around: _Around) -> Money:
    """Charges, and what its open run would be charged now."""
    parts = [around.charged.get(run.id, ZERO) for run in around.runs[job.id]]
    for run in around.runs[job.id]:
        open_ = uncharged(run, around.meters.get(run.id), around.members, around.books.books, around.now)
        if open_ is not None:
            parts.append(open_.amount)
    return total(parts)


def _lost_by(job: Job, around: _Around) -> int:
    return sum(
        lost_seconds(run, around.checkpoint_at.get((job.checkpoints_id, run.attempt)))
        for run in around.runs[job.id]
    )


def _read_around(platform: Platform, connection: Connection, found: Sequence[Job]) -> _Around:
    ids = [job.id for job in found]
    lines = {job.checkpoints_id for job in found}
    runs = allocations.of_jobs(connection, ids)
    all_runs = [run for own in runs.values() for run in own]
    people = {job.account_id for job in found} | {run.account_id for run in all_runs if run.open}
    owners = {job.team_id for job in found}
    return _Around(
        runs=runs,
        cards=inventory.load_cards(connection, {card for run in all_runs for card in run.cards}),
        charged=metering.charged_by_allocation(connection, ids),
        meters=metering.load_meters(connection, [run.id for run in all_runs if run.open]),
        newest=checkpoints.newest_verified(connection, lines),
        checkpoint_at=checkpoints.newest_verified_before(connection, lines),
        emails=accounts.emails_of(connection, people),
        team_names=teams.names_of(connection, owners),
        members={account_id: metering.member_changes(connection, account_id) for account_id in people},
        books=metering.load_books(connection),
        now=platform.clock.now(),
    )


def _view(job: Job, around: _Around) -> JobView:
    spec, resources = job.spec, job.spec.resources
    runs = around.runs[job.id]
    last = runs[-1] if runs else None
    newest = around.newest.get(job.checkpoints_id)
    return JobView(
        id=job.id,
        number=job.display_number,
        name=spec.name,
        team=around.team_names.get(job.team_id, ""),
        account=around.emails.get(job.account_id, ""),
        state=job.state,
        reason=job.reason,
        message=job.message,
        tariff=spec.tariff,
        card=resources.card_model or (last.card_model if last else None),
        cards=resources.cards,
        nodes=resources.nodes,
        tasks_count=resources.tasks,
        cpus=resources.cpus_per_node * resources.nodes,
        memory_bytes=resources.memory_bytes * resources.nodes,
        fabric=resources.fabric or (last.fabric if last else None),
        time_limit_seconds=spec.time_limit_seconds,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        attempts=job.attempts,
        restart_count=max(0, job.attempts - 1),
        node_list=fold_hosts(last.nodes) if last and (last.open or job.ended_at is not None) else "",
        cost_label=spec.cost_label,
        comment=spec.comment,
        partition=last.zone if last else resources.zone,
        submit_dir="/workspace",
        array_index=job.array_index,
        array_number=None if job.array_index is None else job.number,
        own_number=job.own_number,
        dependency_text=dependency_text(spec.dependencies),
        begin_at=spec.begin,
        cost_so_far=_cost_so_far(job, around),
        lost_work_seconds=_lost_by(job, around),
        checkpoint=CheckpointView(newest.step, newest.attempt, newest.published_at) if newest else None,
        progress=None,
        cards_declared=last is not None
        and any(around.cards[card].declared for card in last.cards if card in around.cards),
        price_hour=_price(job, last, around),
        resume_price_hour=_resume_price(job, last, around),
        workspace_id=job.workspace_id,
        team_id=job.team_id,
    )


def _allocation(job: Job, run: Allocation, around: _Around) -> AllocationView:
    notice = None
    if run.notice_reason is not None and run.notice_deadline is not None:
        notice = NoticeView(run.notice_reason.value, run.notice_deadline)
    cards = [around.cards[card] for card in run.cards if card in around.cards]
    return AllocationView(
        id=run.id,
        attempt=run.attempt,
        state=run.state,
        cause=run.cause,
        message=run.message,
        tariff=run.tariff,
        nodes=run.nodes,
        cards=tuple(
            CardView(card.id, card.node_id, card.index, card.model, card.uuid, card.declared)
            for card in sorted(cards, key=lambda card: (card.node_id, card.index))
        ),
        placed_at=run.placed_at,
        ready_at=run.ready_at,
        ended_at=run.ended_at if run.state is not AllocationState.RUNNING else None,
        notice=notice,
        exit_code=run.exit_code,
        exit_signal=run.exit_signal,
        resume_from=run.resume_from,
        charged=around.charged.get(run.id, ZERO),
        lost_work_seconds=lost_seconds(run, around.checkpoint_at.get((job.checkpoints_id, run.attempt))),
    )


def wish_of(spec: JobSpec, terms: Terms, spent: Money = ZERO) -> Wish:
    """What a job's price depends on; ``spent`` counts against its ``--cost-max``."""
    left = None if spec.cost_max is None else max(ZERO, spec.cost_max - spent)
    return Wish(terms, spec.cards_priced, spec.time_limit_seconds, spec.window, spec.begin, left)


def _price(job: Job, last: Allocation | None, around: _Around) -> Money | None:
    """An hour of a job that has not ended, from now or from when it may start; ``None``: unknown."""
    if job.ended_at is not None:
        return None
    return _hour_price(job, last, around, _cost_so_far(job, around))


def _resume_price(job: Job, last: Allocation | None, around: _Around) -> Money | None:
    """The same of the job that would go on with one that failed or was cancelled."""
    if job.state not in (JobState.FAILED, JobState.CANCELLED):
        return None
    return _hour_price(replace(job, spec=replace(job.spec, begin=None)), last, around, ZERO)


def _hour_price(job: Job, last: Allocation | None, around: _Around, spent: Money) -> Money | None:
    """At the rate of where it runs or ran last, else of what it asks for."""
    model = (last.card_model if last else None) or job.spec.priced_resources.card_model
    if model is None or not job.spec.cards_priced:
        return None
    fabric = last.fabric if last else job.spec.resources.fabric or "eth"
    terms = Terms(job.spec.tariff, model, fabric, members=around.members[job.account_id])
    try:
        wish = replace(wish_of(job.spec, terms, spent), time_limit_seconds=HOUR_SECONDS)
        found = quote_job(wish, around.now, around.books.books)  # of the hour alone: the whole is not shown
    except Invalid:
        return None
    return None if found is None else found.hour


def dependency_text(dependencies: Dependencies) -> str:
    """As squeue shows it: ``afterok:12,singleton``; ``""`` for none."""
    parts = []
    for condition in dependencies.conditions:
        text = condition.kind.value
        if condition.job_number is not None:
            text += f":{condition.job_number}" + (
                "" if condition.array_index is None else f"_{condition.array_index}"
            )
        if condition.delay_minutes:
            text += f"+{condition.delay_minutes}"
        parts.append(text)
    return ("?" if dependencies.any_is_enough else ",").join(parts)
