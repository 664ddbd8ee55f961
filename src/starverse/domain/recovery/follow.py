"""What follows for a job when its allocation ended, cause by cause.

===============  =====================================================================
cause            what follows
===============  =====================================================================
completed        succeeded
user_code        failed with its exit code or signal; exit code 99 queues it again
out_of_memory    failed
time_limit       failed; exit code 99 after its notice queues it again (Slurm's RequeueExit)
cost_max         failed
cancelled        cancelled
reclaimed        queued; three in a row without a new checkpoint warn the owner
node_lost        queued; the seconds since the newest verified checkpoint are credited
card_fault       queued; credited likewise
money            queued until the wallet is filled
window           queued until the window opens
platform         queued after a pause
start_failed     queued after a pause that doubles; the fifth in a row is a failure
===============  =====================================================================

``--no-requeue`` turns *queued* after a run into *failed*; a cancel that was asked for turns it into
*cancelled*.

A start of an instance goes on elsewhere after *reclaimed*, *node_lost*, *card_fault* and *platform* only, if
its owner wants that; it is tried once, and nothing is credited: what it had on its disks is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from starverse.domain.recovery.causes import exit_text
from starverse.domain.workloads.launch import EXIT_FOR_REQUEUE
from starverse.domain.workloads.reasons import EndCause, JobEndReason, WaitReason
from starverse.domain.workloads.states import JobState

FAILED_STARTS_MAX = 5
START_DELAY_SECONDS = 10
START_DELAY_SECONDS_MAX = 300
PLATFORM_DELAY_SECONDS = 60
ASKED_DELAY_SECONDS = 10
"""Before a script that asked for another run without a notice gets it: a loop must not spin."""

RECLAIMS_BEFORE_WARNING = 3


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The job before this end. ``failed_starts`` and ``reclaims_without_checkpoint`` count in a row,
    this end not included; ``checkpointed`` says that the run published a verified checkpoint.
    ``interactive``: it is one start of an instance, and ``requeue`` says that it is to start elsewhere."""

    requeue: bool = True
    cancel_requested: bool = False
    failed_starts: int = 0
    reclaims_without_checkpoint: int = 0
    checkpointed: bool = False
    exit_code: int | None = None
    exit_signal: int | None = None
    message: str = ""
    interactive: bool = False


@dataclass(frozen=True, slots=True)
class Follow:
    """The job's next state, why, and what else is due.

    ``reason`` is a :class:`WaitReason` when queued, else a :class:`JobEndReason`. ``delay_seconds``:
    not before. ``credit_back``: the seconds since the newest verified checkpoint come back as credit
    (pricing.md, Clock). ``reclaims_without_checkpoint`` is the count from now on.
    """

    state: JobState
    reason: WaitReason | JobEndReason
    message: str
    delay_seconds: int = 0
    warn_owner: bool = False
    credit_back: bool = False
    reclaims_without_checkpoint: int = 0


_ENDS: Mapping[EndCause, tuple[JobState, JobEndReason]] = {
    EndCause.COMPLETED: (JobState.SUCCEEDED, JobEndReason.COMPLETED),
    EndCause.OUT_OF_MEMORY: (JobState.FAILED, JobEndReason.OUT_OF_MEMORY),
    EndCause.TIME_LIMIT: (JobState.FAILED, JobEndReason.TIME_LIMIT),
    EndCause.COST_MAX: (JobState.FAILED, JobEndReason.COST_MAX),
    EndCause.CANCELLED: (JobState.CANCELLED, JobEndReason.CANCELLED),
}

_GOES_ON: Mapping[EndCause, WaitReason] = {
    EndCause.RECLAIMED: WaitReason.RECLAIMED,
    EndCause.NODE_LOST: WaitReason.NODE_LOST,
    EndCause.CARD_FAULT: WaitReason.CARD_FAULT,
    EndCause.MONEY: WaitReason.NO_MONEY,
    EndCause.WINDOW: WaitReason.WINDOW_CLOSED,
    EndCause.PLATFORM: WaitReason.PLATFORM,
}

_CREDITED = frozenset({EndCause.NODE_LOST, EndCause.CARD_FAULT})
_ELSEWHERE = frozenset({EndCause.RECLAIMED, EndCause.NODE_LOST, EndCause.CARD_FAULT, EndCause.PLATFORM})


def what_follows(cause: EndCause, facts: JobFacts) -> Follow:
    """The job's next state after an allocation ended for ``cause``; defined for every cause."""
    if facts.interactive:
        return _of_instance(cause, facts)
    reclaims = 0 if facts.checkpointed else facts.reclaims_without_checkpoint
    asks_again = facts.exit_signal is None and facts.exit_code == EXIT_FOR_REQUEUE
    if cause is EndCause.TIME_LIMIT and asks_again:
        return _if_allowed(_after_user_code(facts, reclaims), facts)
    if cause in _ENDS:
        state, reason = _ENDS[cause]
        return Follow(state, reason, facts.message, reclaims_without_checkpoint=reclaims)
    if cause is EndCause.START_FAILED:
        return _after_failed_start(facts, reclaims)
    if cause is EndCause.USER_CODE:
        follow = _after_user_code(facts, reclaims)
    else:
        follow = _after_interruption(cause, facts, reclaims)
    return _if_allowed(follow, facts)


def _of_instance(cause: EndCause, facts: JobFacts) -> Follow:
    if facts.cancel_requested:
        return Follow(JobState.CANCELLED, JobEndReason.CANCELLED, facts.message)
    if cause in _ENDS:
        return Follow(*_ENDS[cause], facts.message)
    if cause is EndCause.USER_CODE:
        reason = JobEndReason.EXIT_CODE if facts.exit_signal is None else JobEndReason.SIGNAL
        text = facts.message or exit_text(facts.exit_code, facts.exit_signal)
        return Follow(JobState.FAILED, reason, text)
    if cause is EndCause.START_FAILED:
        return Follow(JobState.FAILED, JobEndReason.START_FAILED, facts.message)
    if cause in _ELSEWHERE and facts.requeue:
        delay = PLATFORM_DELAY_SECONDS if cause is EndCause.PLATFORM else 0
        return Follow(JobState.QUEUED, _GOES_ON[cause], facts.message, delay_seconds=delay)
    reason = JobEndReason.NO_REQUEUE if cause in _ELSEWHERE else JobEndReason.NO_MONEY
    return Follow(JobState.FAILED, reason, facts.message)


def start_delay_seconds(failed_starts: int) -> int:
    """The pause after the n-th failed start in a row: 10, 20, 40, 80 s, at most 300 s."""
    return min(START_DELAY_SECONDS_MAX, START_DELAY_SECONDS << min(10, max(0, failed_starts - 1)))


def _after_failed_start(facts: JobFacts, reclaims: int) -> Follow:
    failed = facts.failed_starts + 1
    if facts.cancel_requested:
        return Follow(
            JobState.CANCELLED, JobEndReason.CANCELLED, facts.message, reclaims_without_checkpoint=reclaims
        )
    if failed >= FAILED_STARTS_MAX:
        return Follow(
            JobState.FAILED,
            JobEndReason.START_FAILED,
            f"{failed} starts in a row failed, the last one: {facts.message}",
            reclaims_without_checkpoint=reclaims,
        )
    return Follow(
        JobState.QUEUED,
        WaitReason.START_FAILED,
        f"start {failed} of at most {FAILED_STARTS_MAX} failed: {facts.message}",
        delay_seconds=start_delay_seconds(failed),
        reclaims_without_checkpoint=reclaims,
    )


def _after_user_code(facts: JobFacts, reclaims: int) -> Follow:
    text = facts.message or exit_text(facts.exit_code, facts.exit_signal)
    if facts.exit_signal is None and facts.exit_code == EXIT_FOR_REQUEUE:
        return Follow(
            JobState.QUEUED,
            WaitReason.NEW,
            text,
            delay_seconds=ASKED_DELAY_SECONDS,
            reclaims_without_checkpoint=reclaims,
        )
    reason = JobEndReason.EXIT_CODE if facts.exit_signal is None else JobEndReason.SIGNAL
    return Follow(JobState.FAILED, reason, text, reclaims_without_checkpoint=reclaims)


def _after_interruption(cause: EndCause, facts: JobFacts, reclaims: int) -> Follow:
    if cause is EndCause.RECLAIMED and not facts.checkpointed:
        reclaims += 1
    warn = cause is EndCause.RECLAIMED and reclaims > 0 and reclaims % RECLAIMS_BEFORE_WARNING == 0
    return Follow(
        JobState.QUEUED,
        _GOES_ON[cause],
        facts.message,
        delay_seconds=PLATFORM_DELAY_SECONDS if cause is EndCause.PLATFORM else 0,
        warn_owner=warn,
        credit_back=cause in _CREDITED,
        reclaims_without_checkpoint=reclaims,
    )


def _if_allowed(follow: Follow, facts: JobFacts) -> Follow:
    """Queued again only where nobody asked for the contrary."""
    if follow.state is not JobState.QUEUED:
        return follow
    if facts.cancel_requested:
        return replace(
            follow,
            state=JobState.CANCELLED,
            reason=JobEndReason.CANCELLED,
            delay_seconds=0,
            warn_owner=False,
        )
    if not facts.requeue:
        return replace(
            follow,
            state=JobState.FAILED,
            reason=JobEndReason.NO_REQUEUE,
            message=f"{follow.message}; not queued again (--no-requeue)",
            delay_seconds=0,
            warn_owner=False,
        )
    return follow
