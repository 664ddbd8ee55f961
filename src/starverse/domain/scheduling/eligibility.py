"""May this job start at all, whatever is free: dependencies, times, windows, price, money.

Pure functions over facts that the caller read in the same transaction as the snapshot; the answer goes
into :attr:`~starverse.domain.scheduling.snapshot.WaitingJob.blocked`. The array limit and the price of
each pool are also watched by ``decide()`` itself, because they change with what it places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from starverse.domain.money import Money
from starverse.domain.scheduling.shortage import clock, yuan
from starverse.domain.scheduling.snapshot import Blocked, Never
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.domain.workloads.specs import Dependencies, Dependency, DependencyKind
from starverse.domain.workloads.states import ENDED_JOB_STATES, JobState

COST_MAX_TEXT = "its --cost-max is used up; cancel it, or submit it again with a higher one"
NO_PRICE_TEXT = "no card that it may use has a price in the price book of now"


@dataclass(frozen=True, slots=True)
class TaskFact:
    """A job, or a task of an array, that another job depends on.

    ``first_started_at`` ``None``: it never ran. ``ended_at`` is set in every ended state.
    """

    state: JobState
    array_index: int | None = None
    first_started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED_JOB_STATES


@dataclass(frozen=True, slots=True)
class Facts:
    """What the eligibility of one job depends on, beside the instant.

    ``dependency_tasks`` maps a job number to its tasks (one for a plain job); a number that is missing
    names no job. ``singletons_open`` are the numbers of earlier jobs of the same team and name that have
    not ended. ``retry_at`` is the end of the pause after a start that failed or could not be funded, for
    ``retry_reason``. ``window_opens_at`` is the next opening while ``window_open`` is false (it is closed,
    or closes too soon). ``checkpoint_pending``: its newest checkpoint is being verified. ``priced`` false:
    no pool it may use has a price. ``cost_max_used_up``: not one second fits into what is left of its
    ``--cost-max``. ``rate`` is the lowest rate the job could run at now, micro-yuan per card-hour.
    ``money_free`` and ``money_needed`` (one hour) ``None``: not checked.
    """

    dependencies: Dependencies = field(default_factory=Dependencies)
    dependency_tasks: Mapping[int, tuple[TaskFact, ...]] = field(default_factory=dict)
    singletons_open: tuple[int, ...] = ()
    begin: datetime | None = None
    retry_at: datetime | None = None
    retry_message: str = ""
    retry_reason: WaitReason = WaitReason.START_FAILED
    checkpoint_pending: bool = False
    window: str | None = None
    window_open: bool = True
    window_opens_at: datetime | None = None
    priced: bool = True
    cost_max_used_up: bool = False
    rate: Fraction | None = None
    price_max: Money | None = None
    money_free: Money | None = None
    money_needed: Money | None = None
    disk_reserve_reached: bool = False


def blocked(facts: Facts, now: datetime) -> Blocked | Never | None:
    """The first thing that keeps a job from starting; ``None``: it may start.

    What can never come true is told before what only takes time.
    """
    dependency = dependency_block(facts, now)
    if isinstance(dependency, Never):
        return dependency
    return (
        dependency
        or begin_block(facts.begin, now)
        or retry_block(facts, now)
        or checkpoint_block(facts.checkpoint_pending)
        or window_block(facts)
        or limits_block(facts)
        or price_block(facts.rate, facts.price_max)
        or money_block(facts.money_free, facts.money_needed)
        or disk_block(facts.disk_reserve_reached)
    )


def dependency_block(facts: Facts, now: datetime) -> Blocked | Never | None:
    """Slurm's ``--dependency`` (sbatch manual page): all conditions (``,``) or any one (``?``)."""
    answers = [condition_block(each, facts, now) for each in facts.dependencies.conditions]
    if not answers:
        return None
    nevers = [answer for answer in answers if isinstance(answer, Never)]
    waits = [answer for answer in answers if isinstance(answer, Blocked)]
    if facts.dependencies.any_is_enough:
        if any(answer is None for answer in answers):
            return None
        return waits[0] if waits else nevers[0]
    return nevers[0] if nevers else waits[0] if waits else None


def condition_block(condition: Dependency, facts: Facts, now: datetime) -> Blocked | Never | None:
    """One condition. An array counts as a whole unless one task is named."""
    if condition.kind is DependencyKind.SINGLETON:
        if not facts.singletons_open:
            return None
        return _depends(f"job {min(facts.singletons_open)} of the same name to end")
    number, index = condition.job_number, condition.array_index
    tasks = facts.dependency_tasks.get(number, ()) if number is not None else ()
    if index is not None:
        tasks = tuple(task for task in tasks if task.array_index == index)
    name = f"job {number}" if index is None else f"job {number}_{index}"
    if not tasks:
        return Never(JobEndReason.DEPENDENCY_NEVER, f"it depends on {name}, which does not exist")
    if condition.kind is DependencyKind.AFTER:
        return _after(condition, name, tasks, now)
    return _after_end(condition.kind, name, tasks)


def begin_block(begin: datetime | None, now: datetime) -> Blocked | None:
    """``--begin``."""
    if begin is None or begin <= now:
        return None
    return Blocked(WaitReason.BEGIN_TIME, f"begins at {clock(begin)}", begin)


def retry_block(facts: Facts, now: datetime) -> Blocked | None:
    """The pause after a start that failed (:mod:`starverse.domain.recovery.follow`) or was not funded."""
    if facts.retry_at is None or facts.retry_at <= now:
        return None
    text = f"{facts.retry_message or 'its start failed'}; tried again at {clock(facts.retry_at)}"
    return Blocked(facts.retry_reason, text, facts.retry_at)


def checkpoint_block(pending: bool) -> Blocked | None:
    """It goes on from its newest checkpoint, once every byte of that was read."""
    return Blocked(WaitReason.CHECKPOINT, "its newest checkpoint is being verified") if pending else None


def window_block(facts: Facts) -> Blocked | None:
    """``--window``: outside of it not a second is run."""
    if facts.window is None or facts.window_open:
        return None
    opens = facts.window_opens_at
    text = f"window {facts.window} is closed" + (f"; it opens at {clock(opens)}" if opens else "")
    return Blocked(WaitReason.WINDOW_CLOSED, text, opens)


def limits_block(facts: Facts) -> Blocked | None:
    """Its ``--cost-max``, and whether it can be priced at all."""
    if not facts.priced:
        return Blocked(WaitReason.NO_CARDS, NO_PRICE_TEXT)
    if facts.cost_max_used_up:
        return Blocked(WaitReason.NO_MONEY, COST_MAX_TEXT)
    return None


def price_block(rate: Fraction | None, price_max: Money | None) -> Blocked | None:
    """``--price-max``, per card-hour."""
    if rate is None or price_max is None or rate <= price_max.micro:
        return None
    text = f"the price is {yuan(rate)} per card-hour now, its limit {price_max}"
    return Blocked(WaitReason.PRICE_ABOVE_MAX, text)


def money_block(free: Money | None, needed: Money | None) -> Blocked | None:
    """One hour at the current rate must be there (pricing.md, Holds)."""
    if free is None or needed is None or free >= needed:
        return None
    text = f"the first hour costs {needed}, {free} is free; top up, or choose a cheaper tariff"
    return Blocked(WaitReason.NO_MONEY, text)


def disk_block(reached: bool) -> Blocked | None:
    """No new starts below the disk reserve."""
    if not reached:
        return None
    return Blocked(
        WaitReason.DISK_RESERVE, "the platform's disk is down to its reserve; the operator is told"
    )


def array_block(active: int, running_max: int | None) -> Blocked | None:
    """``--array=...%limit``: how many tasks hold cards now."""
    if running_max is None or active < running_max:
        return None
    text = f"{active} tasks of its array are running; its limit is {running_max}"
    return Blocked(WaitReason.ARRAY_LIMIT, text)


def _after(
    condition: Dependency, name: str, tasks: tuple[TaskFact, ...], now: datetime
) -> Blocked | Never | None:
    """``after``: begun, or cancelled before it began; then so many minutes more."""
    begun = [task.first_started_at or task.ended_at for task in tasks]
    if any(instant is None for instant in begun):
        return _depends(f"{name} to start")
    due = max(i for i in begun if i is not None) + timedelta(minutes=condition.delay_minutes)
    if due <= now:
        return None
    text = f"waits until {condition.delay_minutes} minutes after the start of {name}"
    return Blocked(WaitReason.DEPENDENCY, text, due)


def _after_end(kind: DependencyKind, name: str, tasks: tuple[TaskFact, ...]) -> Blocked | Never | None:
    """``afterany``, ``afterok`` (all succeeded), ``afternotok`` (ended, and not all succeeded)."""
    done = all(task.ended for task in tasks)
    failed = any(task.ended and task.state is not JobState.SUCCEEDED for task in tasks)
    if kind is DependencyKind.AFTEROK and failed:
        return Never(JobEndReason.DEPENDENCY_NEVER, f"it needs {name} to succeed, which it did not")
    if not done:
        goal = {DependencyKind.AFTEROK: "succeed", DependencyKind.AFTERNOTOK: "fail"}.get(kind, "end")
        return _depends(f"{name} to {goal}")
    if kind is DependencyKind.AFTERNOTOK and not failed:
        return Never(JobEndReason.DEPENDENCY_NEVER, f"it needs {name} to fail, and it succeeded")
    return None


def _depends(text: str) -> Blocked:
    return Blocked(WaitReason.DEPENDENCY, f"waits for {text}")
