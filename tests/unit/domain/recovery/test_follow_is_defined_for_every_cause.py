"""What follows after each cause, with requeue allowed or not, with a cancel asked for or not."""

from __future__ import annotations

from itertools import product

import pytest

from starverse.domain.recovery.follow import FAILED_STARTS_MAX, JobFacts, start_delay_seconds, what_follows
from starverse.domain.workloads.reasons import EndCause, JobEndReason, WaitReason
from starverse.domain.workloads.states import JobState

C, S, W, E = EndCause, JobState, WaitReason, JobEndReason
Answer = tuple[JobState, WaitReason | JobEndReason]

NO_REQUEUE: Answer = (S.FAILED, E.NO_REQUEUE)
CANCELLED: Answer = (S.CANCELLED, E.CANCELLED)

TABLE: dict[EndCause, tuple[Answer, Answer, Answer]] = {
    # cause: as a rule, with --no-requeue, with a cancel asked for
    C.COMPLETED: ((S.SUCCEEDED, E.COMPLETED),) * 3,
    C.USER_CODE: ((S.FAILED, E.EXIT_CODE),) * 3,
    C.OUT_OF_MEMORY: ((S.FAILED, E.OUT_OF_MEMORY),) * 3,
    C.TIME_LIMIT: ((S.FAILED, E.TIME_LIMIT),) * 3,
    C.COST_MAX: ((S.FAILED, E.COST_MAX),) * 3,
    C.CANCELLED: (CANCELLED,) * 3,
    C.RECLAIMED: ((S.QUEUED, W.RECLAIMED), NO_REQUEUE, CANCELLED),
    C.NODE_LOST: ((S.QUEUED, W.NODE_LOST), NO_REQUEUE, CANCELLED),
    C.CARD_FAULT: ((S.QUEUED, W.CARD_FAULT), NO_REQUEUE, CANCELLED),
    C.MONEY: ((S.QUEUED, W.NO_MONEY), NO_REQUEUE, CANCELLED),
    C.WINDOW: ((S.QUEUED, W.WINDOW_CLOSED), NO_REQUEUE, CANCELLED),
    C.PLATFORM: ((S.QUEUED, W.PLATFORM), NO_REQUEUE, CANCELLED),
    C.START_FAILED: ((S.QUEUED, W.START_FAILED), (S.QUEUED, W.START_FAILED), CANCELLED),
}


@pytest.mark.parametrize("cause", EndCause)
def test_the_table(cause: EndCause) -> None:
    situations = (
        JobFacts(exit_code=1),
        JobFacts(exit_code=1, requeue=False),
        JobFacts(exit_code=1, cancel_requested=True),
    )
    answers = [what_follows(cause, facts) for facts in situations]
    assert tuple((answer.state, answer.reason) for answer in answers) == TABLE[cause]


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        (JobFacts(exit_code=99), (S.QUEUED, W.NEW)),
        (JobFacts(exit_code=99, requeue=False), NO_REQUEUE),
        (JobFacts(exit_code=99, cancel_requested=True), CANCELLED),
        (JobFacts(exit_code=2), (S.FAILED, E.EXIT_CODE)),
        (JobFacts(exit_signal=11), (S.FAILED, E.SIGNAL)),
    ],
)
def test_a_script_that_ends_by_itself(facts: JobFacts, answer: Answer) -> None:
    follow = what_follows(C.USER_CODE, facts)
    assert (follow.state, follow.reason) == answer


def test_at_the_time_limit_only_exit_99_asks_for_another_run() -> None:
    """Slurm's idiom: ``--signal=USR1@60``, save, exit with the code that RequeueExit names."""
    again = what_follows(C.TIME_LIMIT, JobFacts(exit_code=99))
    assert (again.state, again.reason) == (S.QUEUED, W.NEW)
    assert what_follows(C.TIME_LIMIT, JobFacts(exit_code=99, requeue=False)).state is S.FAILED
    assert what_follows(C.TIME_LIMIT, JobFacts(exit_signal=15)).reason is E.TIME_LIMIT


def test_asking_for_another_run_again_and_again_does_not_spin() -> None:
    assert what_follows(C.USER_CODE, JobFacts(exit_code=99)).delay_seconds > 0


def test_failed_starts_pause_longer_each_time_and_the_fifth_is_the_last() -> None:
    follows = [what_follows(C.START_FAILED, JobFacts(failed_starts=n, message="no image")) for n in range(5)]
    assert [f.delay_seconds for f in follows] == [10, 20, 40, 80, 0]
    assert [f.state for f in follows] == [S.QUEUED] * 4 + [S.FAILED]
    assert follows[0].message == "start 1 of at most 5 failed: no image"
    assert follows[4].reason is E.START_FAILED
    assert what_follows(C.START_FAILED, JobFacts(failed_starts=FAILED_STARTS_MAX + 3)).state is S.FAILED
    assert start_delay_seconds(99) == 300


def test_every_third_reclaim_without_a_new_checkpoint_warns_the_owner() -> None:
    count, warned = 0, []
    for _ in range(6):
        follow = what_follows(C.RECLAIMED, JobFacts(reclaims_without_checkpoint=count))
        count = follow.reclaims_without_checkpoint
        warned.append(follow.warn_owner)
    assert (count, warned) == (6, [False, False, True, False, False, True])


def test_a_new_checkpoint_begins_the_count_anew() -> None:
    follow = what_follows(C.RECLAIMED, JobFacts(reclaims_without_checkpoint=2, checkpointed=True))
    assert (follow.reclaims_without_checkpoint, follow.warn_owner) == (0, False)


def test_other_ends_keep_the_count() -> None:
    follow = what_follows(C.NODE_LOST, JobFacts(reclaims_without_checkpoint=2))
    assert (follow.reclaims_without_checkpoint, follow.warn_owner) == (2, False)


@pytest.mark.parametrize("cause", EndCause)
def test_only_a_lost_node_and_a_faulty_card_are_credited(cause: EndCause) -> None:
    for requeue in (True, False):
        follow = what_follows(cause, JobFacts(requeue=requeue))
        assert follow.credit_back is (cause in (C.NODE_LOST, C.CARD_FAULT))


def test_reasons_belong_to_the_state() -> None:
    for cause, requeue, cancel, code in product(EndCause, (True, False), (True, False), (None, 0, 1, 99)):
        follow = what_follows(cause, JobFacts(requeue, cancel, exit_code=code))
        kind = WaitReason if follow.state is S.QUEUED else JobEndReason
        assert isinstance(follow.reason, kind)
        assert not follow.delay_seconds or follow.state is S.QUEUED
        assert not follow.warn_owner or follow.state is S.QUEUED


OF_INSTANCES: dict[EndCause, tuple[Answer, Answer]] = {
    # cause: where it is to start elsewhere, where it is to stay
    C.COMPLETED: ((S.SUCCEEDED, E.COMPLETED),) * 2,
    C.USER_CODE: ((S.FAILED, E.EXIT_CODE),) * 2,
    C.OUT_OF_MEMORY: ((S.FAILED, E.OUT_OF_MEMORY),) * 2,
    C.TIME_LIMIT: ((S.FAILED, E.TIME_LIMIT),) * 2,
    C.COST_MAX: ((S.FAILED, E.COST_MAX),) * 2,
    C.CANCELLED: (CANCELLED,) * 2,
    C.RECLAIMED: ((S.QUEUED, W.RECLAIMED), NO_REQUEUE),
    C.NODE_LOST: ((S.QUEUED, W.NODE_LOST), NO_REQUEUE),
    C.CARD_FAULT: ((S.QUEUED, W.CARD_FAULT), NO_REQUEUE),
    C.PLATFORM: ((S.QUEUED, W.PLATFORM), NO_REQUEUE),
    C.MONEY: ((S.FAILED, E.NO_MONEY),) * 2,
    C.WINDOW: ((S.FAILED, E.NO_MONEY),) * 2,
    C.START_FAILED: ((S.FAILED, E.START_FAILED),) * 2,
}


@pytest.mark.parametrize("cause", EndCause)
def test_a_start_of_an_instance_is_tried_once_and_goes_on_elsewhere_only_where_its_owner_wants_that(
    cause: EndCause,
) -> None:
    situations = [JobFacts(exit_code=99, interactive=True, requeue=requeue) for requeue in (True, False)]
    answers = [what_follows(cause, facts) for facts in situations]
    assert tuple((answer.state, answer.reason) for answer in answers) == OF_INSTANCES[cause]
    assert not any(answer.credit_back for answer in answers), "its files are there: nothing was lost"
    asked = JobFacts(exit_code=1, interactive=True, cancel_requested=True)
    assert what_follows(cause, asked).state is S.CANCELLED
